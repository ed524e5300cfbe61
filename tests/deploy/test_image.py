"""The image: pinned, small, without compilers and torch, run by an unprivileged user."""

from __future__ import annotations

import http.server
import re
import subprocess
import sys
import threading
import tomllib

import pytest

from kernels.build import CARD_LIBRARY, LIBRARY
from lingon.serving.settings import Settings
from tests.support.deploy_files import DEPLOY, DOCKERFILE, environment, instructions, stages
from tests.support.repository import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_every_base_image_has_an_exact_version():
    everything = stages()
    outside = {parent for parent, _ in everything.values() if parent not in everything}
    assert [image for image in outside if not re.search(r":\d+\.\d+\.\d+[\w.-]*(@sha256:[0-9a-f]{64})?$", image)] == []


@pytest.mark.parametrize("stage", ["cpu", "gpu"])
def test_an_image_builds_nothing_itself(stage):
    """It compiles and downloads nothing; the built files are copied from another stage."""
    runs = [line for line in instructions(stage) if line.startswith("RUN ")]
    assert not any(re.search(r"apt|gcc|g\+\+|make|curl|wget|pip3? install|torch", line) for line in runs)
    assert f"COPY --from=build-{stage} /opt/lingon /opt/lingon" in instructions(stage)


@pytest.mark.parametrize("stage", ["cpu", "gpu"])
def test_an_image_runs_as_a_user_that_owns_no_file(stage):
    lines = instructions(stage)
    assert [line for line in lines if line.startswith("USER ")] == ["USER 10001:10001"]
    assert not any("chown" in line for line in lines)


@pytest.mark.parametrize("status", [200, 503])
def test_the_health_check_of_an_image_asks_the_metrics_port_without_tls(status: int):
    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/healthz" else 404)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    (line,) = [each for each in instructions("cpu") if each.startswith("HEALTHCHECK ")]
    check = line.partition(" CMD ")[2].replace("python ", f"{sys.executable} ", 1)
    with http.server.HTTPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        port = {"LINGON_METRICS_PORT": str(server.server_port)}
        done = subprocess.run(["sh", "-c", check], env=port, capture_output=True, check=False)
        server.shutdown()
    assert (done.returncode == 0) == (status == 200), done.stderr
    assert "LINGON_METRICS_PORT:-9464" in check


@pytest.mark.parametrize("stage", ["cpu", "gpu"])
def test_an_image_declares_its_ports_and_stop_signal(stage):
    lines = instructions(stage)
    assert {"EXPOSE 50051 9464 8080", "STOPSIGNAL SIGTERM", 'ENTRYPOINT ["lingon", "serve"]'} <= set(lines)
    own = {name: value for name, value in environment(stage).items() if name.startswith("LINGON_")}
    assert (own["LINGON_HOST"], own["LINGON_METRICS_HOST"], own["LINGON_MODELS"]) == ("0.0.0.0", "0.0.0.0", "/models")
    assert Settings.model_validate({name.removeprefix("LINGON_").lower(): value for name, value in own.items()})
    assert own["LINGON_DEVICE"] == {"cpu": "cpu", "gpu": "cuda"}[stage]


def test_the_image_for_cpus_is_the_default_target():
    assert next(reversed(stages())) == "cpu"


def test_the_build_context_holds_only_files_that_are_copied():
    ignore = (DEPLOY / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    rules = [line for line in ignore if line and not line.startswith("#")]
    assert rules[0] == "*"
    sent = {line.removeprefix("!") for line in rules if line.startswith("!")}
    copied = {
        source
        for line in DOCKERFILE.splitlines()
        if line.startswith("COPY ") and "--from" not in line
        for source in line.split()[1:-1]
    }
    assert sent == copied
    assert all((ROOT / source).exists() for source in sent)


def test_the_build_copies_all_sources_of_the_wheel():
    copied = {line.split()[1] for line in stages()["source"][1] if line.startswith("COPY ")}
    assert set(PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]) <= copied


def test_a_stage_of_its_own_compiles_the_native_operators_and_leaves_the_libraries_alone():
    compiling = {name for name, (_, lines) in stages().items() if any("g++" in line for line in lines)}
    assert compiling == {"kernels"}
    assert [name for name, (parent, _) in stages().items() if parent == "kernels"] == []
    copied = [line for _, lines in stages().values() for line in lines if "--from=kernels" in line]
    libraries = [library.relative_to(ROOT) for library in (LIBRARY, CARD_LIBRARY)]
    assert copied == [f"COPY --from=kernels /build/{each} {each.relative_to('lingon')}" for each in libraries]


def test_the_installer_installs_locked_wheels_only():
    script = (DEPLOY / "install.sh").read_text(encoding="utf-8")
    fetching = [line for line in script.splitlines() if re.search(r"pip. (install|wheel)", line)]
    assert fetching
    for line in fetching:
        assert "--require-hashes --only-binary :all:" in line or "--no-index --no-deps" in line


@pytest.mark.parametrize("arguments", [[], ["serve"], ["train", "folder"]])
def test_the_installer_prints_its_usage(arguments):
    ran = subprocess.run([DEPLOY / "install.sh", *arguments], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (2, "lingon: error: usage: deploy/install.sh serve|gpu FOLDER\n")


def test_without_docker_no_digest_is_written(tmp_path):
    (tmp_path / "docker").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "docker").chmod(0o755)
    path = f"{tmp_path}:/usr/bin:/bin"
    ran = subprocess.run(
        [DEPLOY / "pin_digests.sh", "--check"], env={"PATH": path}, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 1
    assert ran.stderr.startswith("lingon: error: digests are resolved by")


def test_digests_are_written_to_every_base_image(tmp_path):
    """With a fake docker that has a digest for every image, the image names change and nothing else."""
    digest = "sha256:" + "5" * 64
    (tmp_path / "bin").mkdir()
    docker = tmp_path / "bin" / "docker"
    docker.write_text(f"#!/bin/sh\ncase $2 in version) ;; *) echo {digest} ;; esac\n")
    docker.chmod(0o755)
    for name in ("pin_digests.sh", "Dockerfile", "compose.yaml"):
        (tmp_path / name).write_bytes((DEPLOY / name).read_bytes())
    call = ["sh", tmp_path / "pin_digests.sh"]
    env = {"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin"}
    for _ in range(2):  # the second run must change nothing
        subprocess.run(call, env=env, check=True, capture_output=True)
        for name, count in (("Dockerfile", 1), ("compose.yaml", 3)):
            text = (tmp_path / name).read_text()
            assert text.count(f"@{digest}") == count
            original = (DEPLOY / name).read_text()
            assert re.sub(r"@sha256:[0-9a-f]{64}", "", text) == re.sub(r"@sha256:[0-9a-f]{64}", "", original)
    assert subprocess.run([*call, "--check"], env=env, capture_output=True, check=False).returncode == 0
