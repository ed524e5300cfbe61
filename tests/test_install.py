"""Each extra alone in a bare environment does its verb, and says in one line what another verb would need."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.repository import ROOT
from tests.support.tiny_training import tiny_config_text, write_digit_corpus

pytestmark = pytest.mark.timeout(900)  # where torch is not at hand, it is downloaded twice
BARE = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ} | {"OMP_NUM_THREADS": "2"}


@dataclass(frozen=True)
class Environment:
    """A virtual environment that holds Lingon with some extras and nothing else."""

    folder: Path

    def run(self, *command: object) -> subprocess.CompletedProcess[str]:
        """Runs one of its programs, away from the repository, so that only what is installed can be imported."""
        program, *arguments = map(str, command)
        call = [self.folder / "bin" / program, *arguments]
        return subprocess.run(call, cwd=self.folder, env=BARE, capture_output=True, text=True, timeout=120, check=False)

    def imports(self, *modules: str) -> set[str]:
        """Those of the modules that it can import."""
        code = "import sys, importlib.util as u; print(*(m for m in sys.argv[1:] if u.find_spec(m)))"
        return set(self.run("python", "-c", code, *modules).stdout.split())


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    pip("wheel", "--no-deps", "--wheel-dir", folder, ROOT)
    return next(folder.glob("*.whl"))


def pip(*arguments: object) -> None:
    """Runs pip with the pinned versions; it is that of the environment in which these tests run."""
    pins = {"PIP_CONSTRAINT": "constraints.txt", "PIP_BUILD_CONSTRAINT": "constraints.txt"}
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *map(str, arguments)]
    answer = subprocess.run(command, cwd=ROOT, env={**os.environ, **pins}, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr


def install(environment: Environment, wheel: Path, *extras: str) -> None:
    """Adds what some extras ask for. Not compiled ahead: of torch, that would take longer than to run what is used."""
    what = f"lingon[{','.join(extras)}] @ {wheel.as_uri()}" if extras else wheel
    pip("--python", environment.folder / "bin" / "python", "install", "--no-compile", what)


@pytest.fixture(scope="module")
def made(wheel, tmp_path_factory):
    """Makes a bare environment with one extra, or with none."""
    folders: list[Path] = []

    def make(*extras: str) -> Environment:
        folders.append(tmp_path_factory.mktemp("-".join(["lingon", *extras])))
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folders[-1]], check=True)
        install(Environment(folders[-1]), wheel, *extras)
        return Environment(folders[-1])

    yield make
    # In the background: where a disk is told of every block that is freed, this takes longer than all the tests here.
    subprocess.run(["sh", "-c", 'rm -rf "$@" > /dev/null 2>&1 &', "rm", *folders], check=True)


@pytest.fixture(scope="module")
def base(made) -> Environment:
    return made()


@pytest.fixture(scope="module")
def serve(made) -> Environment:
    return made("serve")


@pytest.fixture(scope="module")
def train(made) -> Environment:
    return made("train")


@pytest.fixture(scope="module")
def config(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("digits")
    write_digit_corpus(folder, pairs=300)
    steps = {"max_steps": 2, "warmup_steps": 1, "cooldown_steps": 1, "valid_every": 2, "valid_sentences": 10}
    (folder / "digits.toml").write_text(tiny_config_text(training=steps), encoding="utf-8")
    return folder / "digits.toml"


@pytest.fixture(scope="module")
def run(train, config) -> Path:
    """The folder of a run of two steps, trained by what the extra `train` installs."""
    assert train.imports("torch", "onnx", "onnxruntime", "grpc_health", "prometheus_client") == {"torch"}
    output = config.parent / "run"
    answer = train.run("lingon", "train", config, "--output", output)
    assert answer.returncode == 0, answer.stderr
    return output


@pytest.fixture(scope="module")
def bundle(train, run, wheel) -> Path:
    """The bundle of that run, exported by what the extras `export` and `serve` install.

    They go where `train` is, all of which `export` asks for too: a second torch would be a minute more, and no other.
    """
    install(train, wheel, "export", "serve")
    models = run.parent / "models" / "digits"
    answer = train.run("lingon", "export", run, models, "--precision", "fp32", "--no-shortlist", "--gate-sentences", 20)
    assert answer.returncode == 0, answer.stderr
    return models / "1"


@pytest.mark.parametrize("verb", ["", "translate", "train", "serve"])
def test_the_base_install_prints_every_help(base, verb):
    answer = base.run("lingon", *verb.split(), "--help")
    assert (answer.returncode, answer.stderr) == (0, "")
    assert "Usage: lingon" in answer.stdout


def test_the_base_install_is_the_client_alone(base):
    answer = base.run("python", "-W", "error", "-c", "from lingon import AsyncClient, Client")
    assert (answer.returncode, answer.stderr) == (0, "")
    heavy = {"torch", "numpy", "onnx", "onnxruntime", "sentencepiece", "sacrebleu", "prometheus_client"}
    assert base.imports("grpc", "google.rpc", *heavy) == {"grpc", "google.rpc"}


@pytest.mark.parametrize(
    ("command", "extra"),
    [
        ("train {config}", "train"),
        ("tokenizer {config} --output t", "train"),
        ("evaluate {folder} --source {folder}/test.source --target {folder}/test.target", "train"),
        ("export {folder} models/digits", "export"),
        ("serve {folder}", "serve"),
    ],
)
def test_a_verb_names_the_extra_that_the_base_install_lacks(base, command, extra, config):
    answer = base.run("lingon", *command.format(config=config, folder=config.parent).split())
    assert (answer.returncode, answer.stdout) == (1, "")
    assert answer.stderr.startswith("lingon: error: ")
    assert answer.stderr.endswith(f": pip install 'lingon[{extra}]'\n")
    assert answer.stderr.count("\n") == 1


def test_the_base_install_knows_what_it_lacks(base):
    answer = base.run("lingon", "doctor")
    assert (answer.returncode, answer.stderr) == (1, "")
    assert re.search("^extra serve: lacks .*onnxruntime", answer.stdout, re.MULTILINE)


def test_the_train_extra_trains(run):
    assert (run / "config.json").is_file()
    assert list(run.rglob("*.safetensors"))


def test_the_export_extra_exports(bundle):
    assert (bundle / "manifest.json").is_file()


def test_the_serve_extra_has_no_torch(serve):
    assert serve.imports("onnxruntime", "torch", "onnx", "sacrebleu") == {"onnxruntime"}


def test_the_serve_extra_knows_that_it_can_serve(serve, bundle):
    answer = serve.run("lingon", "doctor", bundle)
    assert (answer.returncode, answer.stderr) == (0, "")
    assert "extra serve: installed" in answer.stdout
    assert re.search("^extra train: lacks .*torch", answer.stdout, re.MULTILINE)


def test_the_serve_extra_serves_what_the_base_install_translates_with(serve, base, bundle):
    options = ["--port", "0", "--metrics-port", "0", "--device", "cpu"]
    command = [serve.folder / "bin" / "lingon", "serve", bundle, *options]
    with subprocess.Popen(command, cwd=serve.folder, env=BARE, stdout=subprocess.PIPE, text=True) as server:
        try:
            ready = re.search(r"^ready: .* on (\S+), metrics on ", server.stdout.readline())
            assert ready
            health = base.run("lingon", "healthcheck", "--server", ready[1])
            answer = base.run("lingon", "translate", "--server", ready[1], "3 1 4", "2 7")
        finally:
            server.send_signal(signal.SIGTERM)
    assert (health.returncode, answer.returncode, server.returncode) == (0, 0, 0), health.stderr + answer.stderr
    assert answer.stdout.count("\n") == 2
