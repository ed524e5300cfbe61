"""Compose: the stack is closed by default, drains in time, and has the settings that .env.example explains."""

from __future__ import annotations

import re
from typing import Any

import pytest

from lingon.gateway.documents import MOST_BYTES
from lingon.serving.settings import CLIENT_VARIABLES, DOCUMENT_BYTES, DOCUMENT_PROCESSES, Settings, load
from tests.support.deploy_files import DEPLOY, read, seconds
from tests.support.repository import ROOT

TEXT = (DEPLOY / "compose.yaml").read_text(encoding="utf-8")
COMPOSE = read(DEPLOY / "compose.yaml")
SECURE = read(DEPLOY / "compose.secure.yaml")
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
SERVERS = {name: service for name, service in SERVICES.items() if name.startswith("lingon-")}
EXAMPLE = (DEPLOY / ".env.example").read_text(encoding="utf-8")

ADDED = ("secure", "http", "stores")
"""The files that are given after compose.yaml."""

TOP_KEYS = {"name", "services", "networks", "volumes", "secrets", "configs", "include"}
SERVICE_KEYS = {
    *("build", "cap_drop", "command", "deploy", "depends_on", "environment", "healthcheck", "image", "init", "logging"),
    *("networks", "ports", "profiles", "read_only", "restart", "security_opt", "stop_grace_period", "tmpfs", "user"),
    "volumes",
}
HEALTHCHECK_KEYS = {"test", "interval", "timeout", "retries", "start_period", "start_interval"}
DURATIONS = ("interval", "timeout", "start_period", "start_interval")


def by_default(value: str) -> str:
    """A value of the file if no variable is set."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", str(value))


def added_to(name: str) -> list[dict[str, Any]]:
    """The servers as one of the other files changes them."""
    return list(read(DEPLOY / f"compose.{name}.yaml")["services"].values())


def settings_of(names: set[str]) -> set[str]:
    ours = {name for name in names if name.startswith("LINGON_")} - {"LINGON_TAG"}
    return {name.removeprefix("LINGON_").lower() for name in ours}


def mentioned() -> dict[str, str]:
    """The variables of .env.example with the values it shows."""
    return dict(re.findall(r"^#([A-Z0-9_]+)=(\S*)$", EXAMPLE, re.MULTILINE))


def used() -> set[str]:
    """The variables that the files read as ${NAME} or pass on to a container."""
    texts = TEXT + "".join((DEPLOY / f"compose.{name}.yaml").read_text(encoding="utf-8") for name in ADDED)
    servers = [*SERVERS.values(), *added_to("http"), *added_to("stores")]
    environments = [service["environment"] for service in servers]
    passed_on = {name for environment in environments for name, value in environment.items() if value is None}
    return set(re.findall(r"\$\{(\w+)", texts)) | passed_on


def test_keys_are_those_of_the_compose_specification():
    assert {key for key in COMPOSE if not key.startswith("x-")} <= TOP_KEYS
    assert {key for service in SERVICES.values() for key in service} <= SERVICE_KEYS
    for service in SERVICES.values():
        check = service.get("healthcheck", {})
        assert set(check) <= HEALTHCHECK_KEYS
        assert all(seconds(check[key]) > 0 for key in DURATIONS if key in check)
        assert set(service["deploy"]["resources"]) <= {"limits", "reservations"}
        assert set(service.get("depends_on", [])) <= set(SERVICES)


def test_volumes_are_declared_or_are_in_the_repository():
    for service in SERVICES.values():
        for volume in service.get("volumes", []):
            source = by_default(volume).split(":")[0]
            assert (DEPLOY / source).resolve().is_relative_to(ROOT) if source.startswith(".") else True
            assert (DEPLOY / source).exists() if source.startswith(".") else source in COMPOSE["volumes"]


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_has_no_unneeded_privileges(name):
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert not re.match(r"(0|root)\b", service["user"])
    assert {"memory", "pids"} <= set(service["deploy"]["resources"]["limits"])
    assert service["restart"] == "unless-stopped"
    assert service["logging"]["options"].keys() >= {"max-size", "max-file"}
    assert all(by_default(port).startswith("127.0.0.1:") for port in service["ports"])


@pytest.mark.parametrize("name", SERVICES)
def test_an_image_has_an_exact_version(name):
    image = by_default(SERVICES[name]["image"])
    assert re.search(r":v?\d+\.\d+\.\d+[\w.-]*(@sha256:[0-9a-f]{64})?$", image), image


@pytest.mark.parametrize("name", SERVERS)
def test_a_server_can_write_to_tmpfs_only(name):
    service = SERVERS[name]
    assert all(volume.endswith(":ro") for volume in service["volumes"])
    assert [mount.split(":")[0] for mount in service["tmpfs"]] == ["/tmp"]


@pytest.mark.parametrize("name", SERVERS)
def test_the_grace_period_is_longer_than_the_drain(name):
    service = SERVERS[name]
    waits = {
        key: float(by_default(service["environment"][f"LINGON_{key}_SECONDS"])) for key in ("PROPAGATION", "DRAIN")
    }
    assert seconds(by_default(service["stop_grace_period"])) > sum(waits.values()) + 10


@pytest.mark.parametrize("name", SERVERS)
def test_a_server_may_load_for_a_minute_and_checks_its_own_health(name):
    check = SERVERS[name]["healthcheck"]
    assert check["test"] == ["CMD", "lingon", "healthcheck"]
    assert seconds(check["start_period"]) >= 60


def test_each_profile_is_a_server_with_its_monitoring():
    for profile in ("cpu", "gpu"):
        chosen = {name for name, service in SERVICES.items() if profile in service["profiles"]}
        assert chosen == {f"lingon-{profile}", "prometheus", "grafana"}
        assert SERVERS[f"lingon-{profile}"]["build"]["target"] == profile
        assert by_default(SERVERS[f"lingon-{profile}"]["image"]).endswith(f"-{profile}")
    (device,) = SERVERS["lingon-gpu"]["deploy"]["resources"]["reservations"]["devices"]
    assert (device["driver"], device["capabilities"]) == ("nvidia", ["gpu"])


def test_prometheus_finds_servers_by_their_network_alias():
    scraped = {job["job_name"]: job for job in read(DEPLOY / "prometheus" / "prometheus.yml")["scrape_configs"]}
    assert scraped["lingon"]["dns_sd_configs"][0]["names"] == ["lingon"]
    assert all(service["networks"]["default"]["aliases"] == ["lingon"] for service in SERVERS.values())


def test_servers_get_settings_that_exist():
    """A server does not start with an unknown LINGON_ variable."""
    for service in [*SERVERS.values(), *SECURE["services"].values()]:
        assert settings_of(set(service["environment"])) <= set(Settings.model_fields)


def test_every_setting_can_be_set_or_is_fixed_in_the_image():
    inside = {"models", "host", "port", "metrics_host", "metrics_port", "device"}  # set in the image
    added = [service for name in ADDED for service in added_to(name)]
    secured = settings_of({name for service in added for name in service["environment"]})
    for_tests = {"failpoints", "testing"}
    needs_a_collector = {"traces", "trust_traceparent"}
    plain = settings_of(set(SERVERS["lingon-cpu"]["environment"]))
    assert set(Settings.model_fields) - inside - for_tests - needs_a_collector == plain | secured


def test_the_example_explains_every_variable_and_shows_its_default():
    shown = mentioned()
    assert set(shown) == used() - CLIENT_VARIABLES
    paragraphs = re.split(r"\n\s*\n", EXAMPLE)
    assert all(part.startswith("# ") for part in paragraphs)
    defaults = dict(re.findall(r"\$\{(\w+):-([^}]*)\}", TEXT))
    assert {name: shown[name] for name in defaults} == defaults
    passed_on = {name: value for name, value in shown.items() if name.startswith("LINGON_") and name not in defaults}
    values = {name.removeprefix("LINGON_").lower() for name in passed_on}
    settings = load({"models": ("models",)}, passed_on, None).settings
    of_the_image = {"log_format"}  # json
    assert {name for name in values if getattr(settings, name) != Settings.model_fields[name].default} <= of_the_image


def test_the_secure_stack_mounts_the_files_that_it_names():
    for name, service in SECURE["services"].items():
        assert name in SERVERS
        paths = {key: value for key, value in service["environment"].items() if str(value).startswith("/")}
        target = by_default(service["volumes"][0]).split(":")[1]
        assert all(value.startswith(f"{target}/") for value in paths.values())
        assert service["volumes"][0].endswith(":ro")
        fields = {name.removeprefix("LINGON_").lower(): value for name, value in service["environment"].items()}
        assert Settings.model_validate(fields).admin_host == "127.0.0.1"


def test_grafana_has_no_default_password():
    environment = SERVICES["grafana"]["environment"]
    assert environment["GF_SECURITY_DISABLE_INITIAL_ADMIN_CREATION"] == "true"
    assert environment["GF_AUTH_ANONYMOUS_ORG_ROLE"] == "Viewer"
    assert not any("PASSWORD" in name for name in environment)


def test_the_http_apis_are_on_this_machine_alone_and_their_settings_exist():
    http = read(DEPLOY / "compose.http.yaml")
    assert set(http["services"]) == set(SERVERS)
    for service in http["services"].values():
        assert [by_default(port) for port in service["ports"]] == ["127.0.0.1:8080:8080"]
        assert settings_of(set(service["environment"])) <= set(Settings.model_fields)
        folder = service["environment"]["LINGON_HTTP_DATA_DIR"]
        (mount,) = service["tmpfs"]
        ((path, size),) = re.findall(r"^(/[\w/-]+):size=(\d+)m,mode=1777,noexec,nosuid,nodev$", mount)
        assert folder.startswith(f"{path}/")
        assert int(size) * 2**20 > MOST_BYTES, "a full store, and the file that tells how far a document is"


def test_with_the_http_apis_a_server_has_the_memory_of_documents_and_of_the_store_beside_its_own():
    http = read(DEPLOY / "compose.http.yaml")["services"]["lingon-cpu"]
    limits = [service["deploy"]["resources"]["limits"]["memory"] for service in (SERVERS["lingon-cpu"], http)]
    own, with_http = (int(by_default(limit).removesuffix("g")) << 30 for limit in limits)
    assert with_http - own >= DOCUMENT_PROCESSES * DOCUMENT_BYTES + MOST_BYTES


def test_what_servers_keep_is_on_a_volume_that_belongs_to_their_user():
    content = read(DEPLOY / "compose.stores.yaml")
    assert set(content["services"]) == set(SERVERS)
    image = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    for service in content["services"].values():
        (mount,) = service["volumes"]
        name, folder = mount.split(":")
        assert name in content["volumes"]
        assert service["environment"]["LINGON_DATA_DIR"] == folder
        assert f"install --directory --mode=0700 --owner=10001 --group=10001 {folder} " in image
