"""KServe: the files fit its API, and say what the server needs."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from lingon.bundle import manifest
from lingon.serving.settings import PREFIX, Settings
from tests.support.deploy_files import DEPLOY, read
from tests.support.processes import server_process
from tests.support.shipped_model import MODEL

FOLDER = DEPLOY / "kserve"
RUNTIME = read(FOLDER / "serving-runtime.yaml")
SERVICE = read(FOLDER / "inference-service.yaml")
POLICY = read(FOLDER / "network.yaml")
SCHEMA = json.loads(Path(__file__).with_name("kserve.schema.json").read_text(encoding="utf-8"))
(SERVER,) = RUNTIME["spec"]["containers"]


def environment() -> dict[str, str]:
    return {entry["name"]: entry["value"] for entry in SERVER["env"]}


@pytest.mark.parametrize("name", ["ServingRuntime", "InferenceService"])
def test_a_resource_fits_the_api(name):
    document = {"ServingRuntime": RUNTIME, "InferenceService": SERVICE}[name]
    jsonschema.validate(document, {**SCHEMA["$defs"][name], "$defs": SCHEMA["$defs"]})


def test_the_service_names_the_runtime_and_a_format_that_it_supports():
    model = SERVICE["spec"]["predictor"]["model"]
    assert model["runtime"] == RUNTIME["metadata"]["name"]
    (supported,) = RUNTIME["spec"]["supportedModelFormats"]
    assert model["modelFormat"] == {"name": supported["name"], "version": supported["version"]}
    assert supported["version"] == str(manifest.FORMAT)


def test_the_port_is_that_of_grpc_and_has_the_name_of_http_2():
    (port,) = SERVER["ports"]
    assert (port["name"], port["containerPort"]) == ("h2c", Settings().port)
    assert all(SERVER[f"{kind}Probe"]["grpc"]["port"] == Settings().port for kind in ("readiness", "liveness"))


def test_a_server_gets_settings_that_exist_and_time_to_drain():
    values = environment()
    assert {name.removeprefix(PREFIX).lower() for name in values} <= set(Settings.model_fields)
    assert float(values["LINGON_MAX_CONNECTION_AGE_SECONDS"]) > 0
    drain = float(values["LINGON_PROPAGATION_SECONDS"]) + float(values["LINGON_DRAIN_SECONDS"])
    assert SERVICE["spec"]["predictor"]["terminationGracePeriodSeconds"] > drain + 10


def test_the_server_has_no_unneeded_privileges():
    assert SERVER["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": 10001,
        "seccompProfile": {"type": "RuntimeDefault"},
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert SERVICE["spec"]["predictor"]["automountServiceAccountToken"] is False


def test_the_network_of_the_pods_is_closed_but_for_calls_scrapes_and_the_download_of_the_model():
    selector = POLICY["spec"]["podSelector"]["matchLabels"]
    assert selector == {"serving.kserve.io/inferenceservice": SERVICE["metadata"]["name"]}
    assert set(POLICY["spec"]["policyTypes"]) == {"Ingress", "Egress"}
    calls, scrapes = POLICY["spec"]["ingress"]
    assert all(rule["from"] and rule["ports"] for rule in (calls, scrapes))
    assert {"port": Settings().port} in calls["ports"]
    assert {"port": Settings().metrics_port} not in calls["ports"]
    assert scrapes["ports"] == [{"port": Settings().metrics_port}]
    assert {rule["port"] for entry in POLICY["spec"]["egress"] for rule in entry["ports"]} == {53, 443}


def test_the_number_of_calls_of_a_pod_is_not_limited():
    """Else the server would get single calls, and could not decode them together."""
    assert SERVICE["spec"]["predictor"]["containerConcurrency"] == 0


def test_a_folder_that_holds_a_bundle_is_served_whatever_its_name(tmp_path):
    (bundle,) = MODEL.iterdir()
    shutil.copytree(bundle, tmp_path / "models")
    verb, folder, *options = SERVER["args"]
    assert (SERVER["command"], verb, folder) == (["lingon"], "serve", "/mnt/models")
    with server_process(tmp_path, *options, model=tmp_path / "models") as server:
        assert server.is_healthy()


def test_kustomize_applies_every_file():
    beside = {path.name for path in FOLDER.glob("*.yaml")} - {"kustomization.yaml"}
    assert set(read(FOLDER / "kustomization.yaml")["resources"]) == beside


@pytest.mark.ops
def test_kustomize_sets_the_image():
    if shutil.which("kubectl") is None:
        pytest.skip("ops: no kubectl command")
    ran = subprocess.run(["kubectl", "kustomize", FOLDER], capture_output=True, text=True, check=False, timeout=60)
    assert ran.returncode == 0, ran.stderr
    built: dict[str, Any] = {document["kind"]: document for document in yaml.safe_load_all(ran.stdout)}
    (image,) = read(FOLDER / "kustomization.yaml")["images"]
    assert set(built) == {"ServingRuntime", "InferenceService", "NetworkPolicy"}
    assert built["ServingRuntime"]["spec"]["containers"][0]["image"] == f"lingon:{image['newTag']}"
