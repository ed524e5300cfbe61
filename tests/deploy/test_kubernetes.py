"""Kubernetes: selectors match labels, probes fit the server's settings, and a pod has no unneeded privileges."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from lingon.serving.observability.metrics import families
from lingon.serving.settings import Settings
from tests.support.deploy_files import DEPLOY, documents, metrics_in, read

FOLDER = DEPLOY / "kubernetes"
BASE = {
    document["kind"]: document
    for path in sorted((FOLDER / "base").glob("*.yaml"))
    if path.name != "kustomization.yaml"
    for document in documents(path)
}
POD = BASE["Deployment"]["spec"]["template"]
(SERVER,) = POD["spec"]["containers"]
LABELS = POD["metadata"]["labels"]
KUSTOMIZATIONS = sorted(FOLDER.rglob("kustomization.yaml"))


def environment(container: dict[str, Any]) -> dict[str, str]:
    return {entry["name"]: entry["value"] for entry in container["env"]}


def patience(probe: dict[str, Any]) -> float:
    """Seconds of failing checks before a probe acts."""
    return float(probe["periodSeconds"] * probe["failureThreshold"])


def patch_of(folder: Path, kind: str = "Deployment") -> dict[str, Any]:
    """The only patch of a kustomization for this kind of object."""
    contents = [yaml.safe_load(patch["patch"]) for patch in read(folder / "kustomization.yaml")["patches"]]
    (content,) = [content for content in contents if isinstance(content, dict) and content["kind"] == kind]
    return dict(content)


def project_version() -> str:
    text = (DEPLOY.parent / "pyproject.toml").read_text(encoding="utf-8")
    return str(tomllib.loads(text)["project"]["version"])


@pytest.mark.parametrize("path", KUSTOMIZATIONS, ids=lambda path: path.parent.name)
def test_a_kustomization_lists_all_files_of_its_folder(path: Path):
    content = read(path)
    named = {(path.parent / name).resolve() for name in content.get("resources", [])}
    assert all(name.exists() for name in named)
    beside = {other.resolve() for other in path.parent.glob("*.yaml")} - {path.resolve()}
    assert beside <= named


def test_the_base_holds_one_object_of_each_kind():
    kinds = {"Deployment", "Service", "PodDisruptionBudget", "HorizontalPodAutoscaler", "NetworkPolicy"}
    assert set(BASE) == kinds
    assert {document["metadata"]["name"] for document in BASE.values()} == {"lingon"}


def test_every_selector_finds_the_pods():
    selectors = [
        BASE["Deployment"]["spec"]["selector"]["matchLabels"],
        BASE["Service"]["spec"]["selector"],
        BASE["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"],
        BASE["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"],
        *(each["labelSelector"]["matchLabels"] for each in POD["spec"]["topologySpreadConstraints"]),
    ]
    assert all(selector and selector.items() <= LABELS.items() for selector in selectors)
    (monitor,) = documents(FOLDER / "components" / "service-monitor" / "service-monitor.yaml")
    assert monitor["spec"]["selector"]["matchLabels"].items() <= BASE["Service"]["metadata"]["labels"].items()
    target = BASE["HorizontalPodAutoscaler"]["spec"]["scaleTargetRef"]
    assert (target["kind"], target["name"]) == ("Deployment", BASE["Deployment"]["metadata"]["name"])


def test_port_names_are_declared():
    ports = {port["name"]: port["containerPort"] for port in SERVER["ports"]}
    assert ports == {"grpc": Settings().port, "metrics": Settings().metrics_port}
    service = BASE["Service"]["spec"]
    assert {port["targetPort"] for port in service["ports"]} <= set(ports)
    assert {rule["port"] for entry in BASE["NetworkPolicy"]["spec"]["ingress"] for rule in entry["ports"]} == set(ports)
    probes = [SERVER[f"{kind}Probe"] for kind in ("startup", "readiness", "liveness")]
    assert all(probe["grpc"] == {"port": ports["grpc"]} for probe in probes)


def test_clients_balance_load():
    assert BASE["Service"]["spec"]["clusterIP"] == "None"
    assert float(environment(SERVER)["LINGON_MAX_CONNECTION_AGE_SECONDS"]) > 0


def test_a_model_may_load_for_a_minute_at_the_start_and_after_an_engine_failure():
    assert patience(SERVER["startupProbe"]) >= 60
    assert patience(SERVER["livenessProbe"]) > 60


def test_a_hung_server_is_restarted_and_a_draining_one_is_not():
    values = {name.removeprefix("LINGON_").lower(): value for name, value in environment(SERVER).items()}
    settings = Settings.model_validate(values)
    assert patience(SERVER["livenessProbe"]) <= 120
    assert patience(SERVER["livenessProbe"]) > settings.propagation_seconds + settings.drain_seconds
    assert settings.hang_seconds < patience(SERVER["livenessProbe"])  # the server detects a hung engine first
    assert patience(SERVER["readinessProbe"]) <= settings.propagation_seconds


def test_the_grace_period_is_longer_than_the_drain():
    values = environment(SERVER)
    drain = float(values["LINGON_PROPAGATION_SECONDS"]) + float(values["LINGON_DRAIN_SECONDS"])
    assert POD["spec"]["terminationGracePeriodSeconds"] > drain + 10


def test_a_rollout_and_a_drained_node_leave_servers_running():
    assert BASE["Deployment"]["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    assert BASE["PodDisruptionBudget"]["spec"]["maxUnavailable"] == 1
    assert BASE["HorizontalPodAutoscaler"]["spec"]["minReplicas"] >= 2
    assert "replicas" not in BASE["Deployment"]["spec"]  # the autoscaler sets it


def test_a_pod_has_no_unneeded_privileges():
    pod, container = POD["spec"], SERVER["securityContext"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] == 10001
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["automountServiceAccountToken"] is False
    assert container == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert [mount["mountPath"] for mount in SERVER["volumeMounts"]] == ["/tmp"]
    assert "memory" in SERVER["resources"]["limits"]
    assert BASE["NetworkPolicy"]["spec"]["egress"] == []
    assert set(BASE["NetworkPolicy"]["spec"]["policyTypes"]) == {"Ingress", "Egress"}


def test_no_variable_of_a_service_is_read_as_a_setting():
    """A Service named lingon would set LINGON_PORT=tcp://..., and the server reads LINGON_PORT."""
    assert POD["spec"]["enableServiceLinks"] is False


def test_servers_get_settings_that_exist():
    names = set(environment(SERVER))
    patch = patch_of(FOLDER / "components" / "tls")["spec"]["template"]["spec"]["containers"][0]
    names |= set(environment(patch))
    assert {name.removeprefix("LINGON_").lower() for name in names} <= set(Settings.model_fields)


@pytest.mark.parametrize("name", ["cpu", "gpu"])
def test_an_overlay_uses_its_image_at_the_project_version(name):
    content = read(FOLDER / "overlays" / name / "kustomization.yaml")
    (image,) = content["images"]
    assert image["name"] == SERVER["image"]
    assert image["newTag"] == f"{project_version()}-{name}"


def test_a_gpu_server_requests_one_gpu():
    (server,) = patch_of(FOLDER / "overlays" / "gpu")["spec"]["template"]["spec"]["containers"]
    assert server["resources"]["limits"]["nvidia.com/gpu"] == 1


def test_the_autoscaler_and_its_adapter_use_the_same_metrics_of_the_server():
    metrics = [metric["pods"] for metric in BASE["HorizontalPodAutoscaler"]["spec"]["metrics"]]
    rules = read(FOLDER / "prometheus-adapter.yaml")["rules"]["custom"]
    names = {rule["name"]["as"] for rule in rules}
    assert {metric["metric"]["name"] for metric in metrics} == names == {"lingon_queue_depth", "lingon_queue_tokens"}
    assert all(metrics_in(rule["seriesQuery"]) == {rule["name"]["as"]} for rule in rules)
    assert names <= {f"lingon_{family.name}" for family, _ in families()}


def test_the_autoscaler_acts_before_the_queue_is_half_full():
    """The alert fires then."""
    targets = {
        metric["pods"]["metric"]["name"]: int(metric["pods"]["target"]["averageValue"])
        for metric in BASE["HorizontalPodAutoscaler"]["spec"]["metrics"]
    }
    assert targets["lingon_queue_depth"] < Settings().max_queue_texts / 2
    assert targets["lingon_queue_tokens"] < Settings().max_queue_tokens / 2


def built(folder: Path, overlay: str, components: list[str]) -> dict[tuple[str, str], dict[str, Any]]:
    """The objects of an overlay with these components, by kind and name."""
    if shutil.which("kubectl") is None:
        pytest.skip("ops: no kubectl command")
    for name in ("kubernetes", "envoy"):
        shutil.copytree(DEPLOY / name, folder / name)
    kustomization = folder / "kubernetes" / "overlays" / overlay / "kustomization.yaml"
    with kustomization.open("a") as file:
        file.write(f"components: {json.dumps([f'../../components/{name}' for name in components])}\n")
    command = ["kubectl", "kustomize", kustomization.parent]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert ran.returncode == 0, ran.stderr
    (folder / "built.yaml").write_text(ran.stdout)
    return {(each["kind"], each["metadata"]["name"]): each for each in documents(folder / "built.yaml")}


@pytest.mark.ops
@pytest.mark.parametrize("overlay", ["cpu", "gpu"])
@pytest.mark.parametrize("components", [[], ["service-monitor", "tls"]], ids=["plain", "secured"])
def test_kustomize_builds_an_overlay(overlay, components, tmp_path):
    objects = built(tmp_path, overlay, components)
    assert {kind for kind, _ in objects} == set(BASE) | ({"ServiceMonitor"} if components else set())
    (server,) = objects["Deployment", "lingon"]["spec"]["template"]["spec"]["containers"]
    assert server["image"].endswith(f":{project_version()}-{overlay}")
    assert ("grpc" in server["livenessProbe"]) == (not components)
    assert ("httpGet" in server["livenessProbe"]) == bool(components)
    assert len(server["volumeMounts"]) == (2 if components else 1)


@pytest.mark.ops
def test_the_component_envoy_puts_our_configuration_in_front_of_the_pods(tmp_path):
    objects = built(tmp_path, "cpu", ["envoy", "http", "service-monitor"])
    (configuration,) = [each for kind, each in objects.items() if kind[0] == "ConfigMap"]
    assert configuration["data"]["envoy.yaml"] == (DEPLOY / "envoy/envoy.yaml").read_text(encoding="utf-8")
    descriptors = base64.b64decode(configuration["binaryData"]["lingon.binpb"])
    assert descriptors == (DEPLOY / "envoy/lingon.binpb").read_bytes()
    pod = objects["Deployment", "lingon-envoy"]["spec"]["template"]
    assert pod["spec"]["volumes"][0]["configMap"]["name"] == configuration["metadata"]["name"]
    labels = pod["metadata"]["labels"]
    assert objects["Service", "lingon-envoy"]["spec"]["selector"].items() <= labels.items()
    assert not objects["Service", "lingon"]["spec"]["selector"].items() <= labels.items()


def test_the_component_envoy_names_the_ports_and_paths_of_its_configuration():
    folder = FOLDER / "components" / "envoy"
    (proxy,) = read(folder / "deployment.yaml")["spec"]["template"]["spec"]["containers"]
    configuration = read(DEPLOY / "envoy" / "envoy.yaml")
    (listener,) = configuration["static_resources"]["listeners"]
    listened = {
        "calls": listener["address"]["socket_address"]["port_value"],
        "admin": configuration["admin"]["address"]["socket_address"]["port_value"],
    }
    assert {port["name"]: port["containerPort"] for port in proxy["ports"]} == listened
    assert {port["targetPort"] for port in read(folder / "service.yaml")["spec"]["ports"]} == set(listened)
    (cluster,) = configuration["static_resources"]["clusters"]
    (endpoint,) = cluster["load_assignment"]["endpoints"][0]["lb_endpoints"]
    socket = endpoint["endpoint"]["address"]["socket_address"]
    assert socket == {"address": BASE["Service"]["metadata"]["name"], "port_value": Settings().port}
    assert "/etc/envoy/lingon.binpb" in (DEPLOY / "envoy" / "envoy.yaml").read_text(encoding="utf-8")
    assert proxy["volumeMounts"][0]["mountPath"] == "/etc/envoy"
    (outgoing, _) = read(folder / "network.yaml")["spec"]["egress"]
    assert outgoing["ports"] == [{"port": Settings().port}]
    assert re.search(r":distroless-v\d+\.\d+\.\d+$", proxy["image"])


@pytest.mark.parametrize("name", sorted(path.name for path in (FOLDER / "components").iterdir()))
def test_a_component_that_opens_a_server_to_others_asks_for_keys(name):
    """The pod does not start without the secret that holds them: its volume is not optional."""
    text = (FOLDER / "components" / name / "kustomization.yaml").read_text(encoding="utf-8")
    if "LINGON_" not in text or name == "stores":  # it changes no setting of a server, or none that opens it
        return
    pod = patch_of(FOLDER / "components" / name)["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    keys = Path(environment(container)["LINGON_API_KEYS"])
    (mount,) = [each for each in container["volumeMounts"] if Path(each["mountPath"]) == keys.parent]
    (volume,) = [each for each in pod["volumes"] if each["name"] == mount["name"]]
    assert mount["readOnly"] is True
    assert volume["secret"].keys() == {"secretName", "defaultMode"}
    assert pod["securityContext"]["fsGroup"] == POD["spec"]["securityContext"]["runAsGroup"]
    assert keys.name in text.partition("apiVersion")[0]  # the comment says how to make the secret
    settings = {each.removeprefix("LINGON_").lower() for each in environment(container)}
    assert settings <= set(Settings.model_fields)


def test_the_component_http_opens_one_port_everywhere():
    service, deployment, policy = read(FOLDER / "components" / "http" / "kustomization.yaml")["patches"]
    (container,) = yaml.safe_load(deployment["patch"])["spec"]["template"]["spec"]["containers"]
    assert container["ports"] == [{"name": "http", "containerPort": 8080}]
    assert environment(container).items() >= {"LINGON_HTTP_HOST": "0.0.0.0", "LINGON_HTTP_PORT": "8080"}.items()
    assert yaml.safe_load(service["patch"])["spec"]["ports"][0]["targetPort"] == "http"
    assert yaml.safe_load(policy["patch"])[0]["value"] == {"port": "http"}


def test_the_component_stores_keeps_data_on_a_volume_that_all_pods_share_and_may_write():
    folder = FOLDER / "components" / "stores"
    pod = patch_of(folder)["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    (mount,), (volume,) = container["volumeMounts"], pod["volumes"]
    claim = read(folder / "claim.yaml")
    assert Path(environment(container)["LINGON_DATA_DIR"]).parent == Path(mount["mountPath"])
    assert volume == {"name": mount["name"], "persistentVolumeClaim": {"claimName": claim["metadata"]["name"]}}
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    assert pod["securityContext"]["fsGroup"] == POD["spec"]["securityContext"]["runAsGroup"]
