"""Settings: where each came from, and one clear line for what is wrong with it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lingon.errors import SettingsError
from lingon.serving.settings import load
from lingon.serving.system.cpu import engines_by_default, granted_cores, threads_for, usable_cores


def toml(folder: Path, text: str) -> Path:
    path = folder / "server.toml"
    path.write_text(text)
    return path


def test_flags_come_before_environment_before_file_before_defaults(tmp_path: Path):
    config = toml(tmp_path, "max_rows = 1\nmax_texts = 2\nport = 3\n")
    loaded = load({"port": 5, "device": None}, {"LINGON_MAX_TEXTS": "4", "LINGON_PORT": "6", "HOME": "/"}, config)
    settings, origins = loaded.settings, loaded.origins
    assert (settings.max_rows, settings.max_texts, settings.port, settings.device) == (1, 4, 5, "auto")
    assert (origins["max_rows"], origins["max_texts"]) == (str(config), "LINGON_MAX_TEXTS")
    assert (origins["port"], origins["device"]) == ("--port", "default")


def test_the_file_may_be_named_by_the_environment(tmp_path: Path):
    config = toml(tmp_path, "max_rows = 7\n")
    assert load({}, {"LINGON_CONFIG": str(config)}, None).settings.max_rows == 7


def test_several_models_are_separated_by_commas_in_the_environment():
    assert load({}, {"LINGON_MODELS": "models/en-de, /m/x"}, None).settings.models == (
        Path("models/en-de"),
        Path("/m/x"),
    )


def test_engines_share_the_cores_that_may_be_used():
    assert 1 <= engines_by_default() <= usable_cores()
    assert threads_for(1) == usable_cores()
    assert threads_for(2) == max(usable_cores() // 2, 1)
    assert threads_for(500) == 1


@pytest.mark.parametrize(
    ("flags", "environment", "text", "message"),
    [
        ({}, {"LINGON_MAX_ROW": "1"}, "", "unknown environment variable LINGON_MAX_ROW; did you mean LINGON_MAX_ROWS?"),
        ({}, {}, "max_quue_texts = 3", "server.toml: unknown setting max_quue_texts; did you mean max_queue_texts?"),
        ({}, {}, "xyz = 3", "server.toml: unknown setting xyz$"),
        ({}, {}, "port = ", "server.toml: not TOML"),
        ({"engines": 0}, {}, "", "engines (from --engines): input should be greater than or equal to 1, got 0"),
        ({"max_rows": 0}, {}, "", "max_rows (from --max-rows): input should be greater than or equal to 1, got 0"),
        ({}, {"LINGON_PORT": "x"}, "", "port (from LINGON_PORT): .*, got 'x'"),
        ({"device": "tpu"}, {}, "", "device (from --device): .*'auto', 'cpu' or 'cuda', got 'tpu'"),
        ({}, {"LINGON_MODELS": ""}, "", "models (from LINGON_MODELS): "),
        ({"drain_seconds": float("inf")}, {}, "", "drain_seconds (from --drain-seconds)"),
        ({"max_message_bytes": 3 * 10**9}, {}, "", "max_message_bytes (from --max-message-bytes): .*2147483647"),
        ({}, {}, "max_connection_age_seconds = 2592000", "max_connection_age_seconds (from .*2147483, got"),
    ],
)
def test_what_is_wrong_is_named_with_its_origin(
    tmp_path: Path, flags: dict[str, object], environment: dict[str, str], text: str, message: str
):
    pattern = re.escape(message).replace(r"\.\*", ".*").replace(r"\$", "$")
    with pytest.raises(SettingsError, match=pattern):
        load(flags, environment, toml(tmp_path, text))


def test_a_missing_file_is_named(tmp_path: Path):
    with pytest.raises(SettingsError, match=r"nope\.toml: No such file"):
        load({}, {}, tmp_path / "nope.toml")


@pytest.mark.parametrize(("quota", "cores"), [("150000 100000", 1.5), ("max 100000", None)])
def test_the_tightest_cgroup_limit_counts(tmp_path: Path, quota: str, cores: float | None):
    folder = tmp_path / "a" / "b"
    folder.mkdir(parents=True)
    (folder / "cpu.max").write_text("max 100000\n")
    (tmp_path / "a" / "cpu.max").write_text(f"{quota}\n")
    membership = tmp_path / "membership"
    membership.write_text("0::/a/b\n")
    assert granted_cores(tmp_path, membership) == cores


def test_cgroups_of_the_first_version_count_too(tmp_path: Path):
    folder = tmp_path / "cpu" / "a"
    folder.mkdir(parents=True)
    (folder / "cpu.cfs_quota_us").write_text("200000\n")
    (folder / "cpu.cfs_period_us").write_text("100000\n")
    membership = tmp_path / "membership"
    membership.write_text("4:memory:/x\n3:cpu,cpuacct:/a\n")
    assert granted_cores(tmp_path, membership) == 2.0
    assert granted_cores(tmp_path / "nowhere", tmp_path / "nowhere") is None


def test_at_least_one_core_is_usable():
    assert usable_cores() >= 1
