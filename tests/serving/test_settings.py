"""Settings: the origin of each value, one line for an invalid one, and the options made from them."""

from __future__ import annotations

import inspect
import logging
import re
from pathlib import Path
from typing import Any

import pytest
from typer.models import ArgumentInfo, OptionInfo

from lingon.errors import SettingsError
from lingon.gateway.app import CALL_SECONDS
from lingon.machine import granted_cores, usable_cores
from lingon.serving.cli import log_settings, with_setting_options
from lingon.serving.engine.limits import EngineLimits
from lingon.serving.models import supervisor
from lingon.serving.models.loading import default_engines, threads_per_engine
from lingon.serving.rpc import ports
from lingon.serving.settings import FIXED, HTTP_CONNECTIONS, TEST_HOOKS, Settings, describe_settings, load


def toml(folder: Path, text: str) -> Path:
    path = folder / "server.toml"
    path.write_text(text)
    return path


def test_flags_override_environment_override_file_override_defaults(tmp_path: Path):
    config = toml(tmp_path, "max_rows = 1\nmax_texts = 2\nport = 3\n")
    loaded = load({"port": 5, "device": None}, {"LINGON_MAX_TEXTS": "4", "LINGON_PORT": "6", "HOME": "/"}, config)
    settings, origins = loaded.settings, loaded.origins
    assert (settings.max_rows, settings.max_texts, settings.port, settings.device) == (1, 4, 5, "auto")
    assert (origins["max_rows"], origins["max_texts"]) == (str(config), "LINGON_MAX_TEXTS")
    assert (origins["port"], origins["device"]) == ("--port", "default")


def test_the_file_may_be_named_by_the_environment(tmp_path: Path):
    config = toml(tmp_path, "max_rows = 7\n")
    assert load({}, {"LINGON_CONFIG": str(config)}, None).settings.max_rows == 7


def test_an_empty_variable_is_unset_unless_it_names_a_file():
    loaded = load({}, {"LINGON_PRECISION": "", "LINGON_ENGINES": "", "LINGON_HTTP_CORS": ""}, None)
    assert (loaded.settings, set(loaded.origins.values())) == (Settings(), {"default"})
    assert load({}, {"LINGON_API_KEYS": ""}, None).settings.api_keys is not None, "a server without keys is open"


def test_several_models_are_separated_by_commas_in_the_environment():
    assert load({}, {"LINGON_MODELS": "models/en-de, /m/x"}, None).settings.models == (
        Path("models/en-de"),
        Path("/m/x"),
    )


def test_engines_share_the_usable_cores():
    assert 1 <= default_engines() <= usable_cores()
    assert threads_per_engine(1) == usable_cores()
    assert threads_per_engine(2) == max(usable_cores() // 2, 1)
    assert threads_per_engine(500) == 1


@pytest.mark.parametrize(
    ("flags", "environment", "text", "message"),
    [
        ({}, {"LINGON_MAX_ROW": "1"}, "", "unknown environment variable LINGON_MAX_ROW; did you mean LINGON_MAX_ROWS?"),
        ({}, {}, "max_quue_texts = 3", "server.toml: unknown setting max_quue_texts; did you mean max_queue_texts?"),
        ({}, {}, "xyz = 3", "server.toml: unknown setting xyz$"),
        ({}, {}, "max_calls = 9", "server.toml: unknown setting max_calls; it is fixed at 2,048 calls$"),
        (
            {},
            {"LINGON_MAX_CALLS": "9"},
            "",
            "unknown environment variable LINGON_MAX_CALLS; it is fixed at 2,048 calls",
        ),
        ({}, {}, "port = ", "server.toml: not TOML"),
        ({}, {}, "port = " + "[" * 10_000, "server.toml: not TOML"),
        ({"engines": 0}, {}, "", "engines (from --engines): input should be greater than or equal to 1, got 0"),
        ({"max_rows": 0}, {}, "", "max_rows (from --max-rows): input should be greater than or equal to 1, got 0"),
        ({}, {"LINGON_PORT": "x"}, "", "port (from LINGON_PORT): .*, got 'x'"),
        (
            {"pivot_language": "e n"},
            {},
            "",
            "pivot_language (from --pivot-language): must be language tags such as en, any, or none, got 'e n'",
        ),
        ({"device": "tpu"}, {}, "", "device (from --device): .*'auto', 'cpu' or 'cuda', got 'tpu'"),
        ({}, {"LINGON_MODELS": ""}, "", "models (from LINGON_MODELS): "),
        ({"drain_seconds": float("inf")}, {}, "", "drain_seconds (from --drain-seconds)"),
        ({"max_message_bytes": 3 * 10**9}, {}, "", "max_message_bytes (from --max-message-bytes): .*2147483647"),
        ({}, {}, "max_connection_age_seconds = 2592000", "max_connection_age_seconds (from .*2147483, got"),
    ],
)
def test_an_invalid_setting_is_named_with_its_origin(
    tmp_path: Path, flags: dict[str, object], environment: dict[str, str], text: str, message: str
):
    pattern = re.escape(message).replace(r"\.\*", ".*").replace(r"\$", "$")
    with pytest.raises(SettingsError, match=pattern):
        load(flags, environment, toml(tmp_path, text))


@pytest.mark.parametrize("name", FIXED)
def test_a_setting_that_is_fixed_now_is_refused_with_its_value(tmp_path: Path, name: str):
    assert name not in Settings.model_fields
    for environment, text in (({}, f"{name} = 9"), ({f"LINGON_{name.upper()}": "9"}, "")):
        with pytest.raises(SettingsError, match=f"it is fixed at {FIXED[name]}"):
            load({}, environment, toml(tmp_path, text))


def test_the_values_of_fixed_settings_are_those_in_use():
    values = {
        "http_max_call_seconds": CALL_SECONDS,
        "http_max_connections": HTTP_CONNECTIONS,
        "max_call_seconds": ports.MAX_CALL_SECONDS,
        "max_calls": ports.MAX_CALLS,
        "max_connection_idle_seconds": ports.IDLE_SECONDS,
        "max_connections": ports.MAX_CONNECTIONS,
        "max_receive_seconds": ports.RECEIVE_SECONDS,
        "max_restarts": supervisor.MAX_RESTARTS,
    }
    assert values == {name: float(text.split()[0].replace(",", "")) for name, text in FIXED.items()}


def test_none_is_no_pivot_language():
    assert load({}, {}, None).settings.pivot_language == "en"
    assert load({"pivot_language": "none"}, {}, None).settings.pivot_language is None
    assert load({}, {"LINGON_PIVOT_LANGUAGE": "none"}, None).settings.pivot_language is None


def options_of_serve() -> dict[str, OptionInfo | ArgumentInfo]:
    verb = with_setting_options(lambda config, flags: None)
    return {name: each.annotation.__metadata__[0] for name, each in inspect.signature(verb).parameters.items()}


def test_every_setting_except_the_test_hooks_is_an_option_with_description_default_and_variable():
    options = options_of_serve()
    assert set(options) == set(Settings.model_fields) - TEST_HOOKS | {"config"}
    for setting in describe_settings():
        assert setting.description.endswith(".")
        assert setting.description in options[setting.name].help
        assert f"LINGON_{setting.name.upper()})" in options[setting.name].help
    assert "(default: 50051; LINGON_PORT)" in options["port"].help
    assert "(default: false; LINGON_TRACES)" in options["traces"].help


def test_options_that_are_not_given_are_not_passed_as_flags():
    given: dict[str, Any] = {}
    with_setting_options(lambda config, flags: given.update(flags))(config=None, port=1, host=None)
    assert load(given, {}, None).origins["port"] == "--port"
    assert load(given, {}, None).origins["host"] == "default"


def test_the_limits_of_an_engine_have_the_defaults_of_the_settings():
    assert load({}, {}, None).settings.engine_limits() == EngineLimits()


def test_given_settings_are_logged_at_info_and_defaults_at_debug(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.DEBUG)
    log_settings(load({"max_rows": 8}, {"LINGON_DEVICE": "cpu"}, None))
    levels: dict[int, list[dict[str, Any]]] = {}
    for record in caplog.records:
        levels.setdefault(record.levelno, []).append(record.fields)
    assert sorted((line["name"], line["value"], line["origin"]) for line in levels[logging.INFO]) == [
        ("device", "cpu", "LINGON_DEVICE"),
        ("max_rows", 8, "--max-rows"),
    ]
    assert len(levels[logging.DEBUG]) == len(Settings.model_fields) - 2


SERVICE_LINKS = {  # of a Service `lingon` with a port named grpc, and of a Service `lingon-metrics`
    "LINGON_SERVICE_HOST": "10.0.0.7",
    "LINGON_SERVICE_PORT": "50051",
    "LINGON_SERVICE_PORT_GRPC": "50051",
    "LINGON_PORT": "tcp://10.0.0.7:50051",
    "LINGON_PORT_50051_TCP": "tcp://10.0.0.7:50051",
    "LINGON_PORT_50051_TCP_PROTO": "tcp",
    "LINGON_PORT_50051_TCP_PORT": "50051",
    "LINGON_PORT_50051_TCP_ADDR": "10.0.0.7",
    "LINGON_METRICS_SERVICE_HOST": "10.0.0.8",
    "LINGON_METRICS_PORT": "tcp://[fd00::8]:9464",
    "LINGON_METRICS_PORT_9464_TCP_ADDR": "fd00::8",
}


def test_variables_that_kubernetes_adds_for_services_are_ignored_with_a_warning(caplog: pytest.LogCaptureFixture):
    loaded = load({}, {**SERVICE_LINKS, "LINGON_MAX_ROWS": "8"}, None)
    assert loaded.settings == Settings(max_rows=8)
    log_settings(loaded)
    (line,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert "set enableServiceLinks: false" in line.message
    assert line.fields["names"].split(",") == sorted(SERVICE_LINKS)


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("LINGON_PORT", "udp", "port (from LINGON_PORT): .*, got 'udp'"),
        ("LINGON_HOST_PORT", "tcp:/10.0.0.7", "unknown environment variable LINGON_HOST_PORT"),
        ("LINGON_PORTS", "tcp://10.0.0.7:1", "unknown environment variable LINGON_PORTS"),
        ("LINGON_SERVICE", "10.0.0.7", "unknown environment variable LINGON_SERVICE"),
        ("LINGON_PORT_TCP", "1", "unknown environment variable LINGON_PORT_TCP"),
    ],
)
def test_a_variable_that_kubernetes_does_not_add_is_not_ignored(variable: str, value: str, message: str):
    with pytest.raises(SettingsError, match=re.escape(message).replace(r"\.\*", ".*")):
        load({}, {variable: value}, None)


def test_a_missing_file_is_named(tmp_path: Path):
    with pytest.raises(SettingsError, match=r"nope\.toml: No such file"):
        load({}, {}, tmp_path / "nope.toml")


@pytest.mark.parametrize(("quota", "cores"), [("150000 100000", 1.5), ("max 100000", None)])
def test_the_lowest_cgroup_limit_applies(tmp_path: Path, quota: str, cores: float | None):
    folder = tmp_path / "a" / "b"
    folder.mkdir(parents=True)
    (folder / "cpu.max").write_text("max 100000\n")
    (tmp_path / "a" / "cpu.max").write_text(f"{quota}\n")
    membership = tmp_path / "membership"
    membership.write_text("0::/a/b\n")
    assert granted_cores(tmp_path, membership) == cores


def test_limits_of_cgroups_v1_apply_too(tmp_path: Path):
    folder = tmp_path / "cpu" / "a"
    folder.mkdir(parents=True)
    (folder / "cpu.cfs_quota_us").write_text("200000\n")
    (folder / "cpu.cfs_period_us").write_text("100000\n")
    membership = tmp_path / "membership"
    membership.write_text("4:memory:/x\n3:cpu,cpuacct:/a\n")
    assert granted_cores(tmp_path, membership) == 2.0
    assert granted_cores(tmp_path / "missing", tmp_path / "missing") is None


def test_at_least_one_core_is_usable():
    assert usable_cores() >= 1
