"""In an environment with one extra alone its verbs work, and every other verb names the extra that it lacks."""

from __future__ import annotations

import re
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.fixtures import VARIABLES, install
from tests.support.training_runs import tiny_config_text, write_digit_corpus

pytestmark = pytest.mark.timeout(900)  # seconds: torch may have to be downloaded


@pytest.fixture(scope="module")
def config(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("digits")
    write_digit_corpus(folder, pairs=300)
    steps = {"max_steps": 2, "warmup_steps": 1, "cooldown_steps": 1, "valid_every": 2, "valid_sentences": 10}
    (folder / "digits.toml").write_text(tiny_config_text(training=steps), encoding="utf-8")
    return folder / "digits.toml"


@pytest.fixture(scope="module")
def run(train, config) -> Path:
    """The folder of a run of two steps, trained with the extra `train`."""
    assert train.imports("torch", "onnx", "onnxruntime", "grpc_health", "prometheus_client") == {"torch"}
    output = config.parent / "run"
    answer = train.run("lingon", "train", config, "--output", output)
    assert answer.returncode == 0, answer.stderr
    return output


@pytest.fixture(scope="module")
def bundle(train, run, wheel) -> Path:
    """The bundle of that run, exported with the extras `export` and `serve`.

    They are installed into the environment of `train`, because `export` requires `train`: installing a second torch
    would take a minute and change nothing.
    """
    install(train, wheel, "export", "serve")
    models = run.parent / "models" / "digits"
    answer = train.run("lingon", "export", run, models, "--precision", "fp32", "--no-shortlist", "--gate-sentences", 20)
    assert answer.returncode == 0, answer.stderr
    return models / "1"


@pytest.mark.parametrize("verb", ["", "translate", "train", "serve"])
def test_the_base_install_prints_the_help_of_verbs(base, verb):
    answer = base.run("lingon", *verb.split(), "--help")
    assert (answer.returncode, answer.stderr) == (0, "")
    assert "Usage: lingon" in answer.stdout


def test_the_base_install_holds_the_client_alone(base):
    answer = base.run("python", "-W", "error", "-c", "from lingon import AsyncClient, Client")
    assert (answer.returncode, answer.stderr) == (0, "")
    heavy = {"torch", "numpy", "onnx", "onnxruntime", "sentencepiece", "sentencex", "sacrebleu", "prometheus_client"}
    heavy |= {"snowballstemmer", "rapidfuzz"}
    assert base.imports("grpc", "google.rpc", *heavy) == {"grpc", "google.rpc"}


def test_the_base_install_reads_the_language_of_markup(base):
    html = "from lingon.source_language import readable; from lingon.client.options import FORMATS as formats; "
    answer = base.run("python", "-W", "error", "-c", f"{html} print(readable('<p>Tom<br>lives</p>', formats['html']))")
    assert (answer.returncode, answer.stderr) == (0, "")
    assert answer.stdout.split() == ["Tom", "lives"]


def test_the_base_install_chooses_the_terms_of_a_request(base):
    words = "TermList({f'w{number}': 'x' for number in range(300)} | {'w7 w8': 'y'})"
    answer = base.run(
        "python", "-W", "error", "-c", f"from lingon import TermList; print(len({words}.for_texts(['w7 w8'])))"
    )
    assert (answer.returncode, answer.stderr, answer.stdout) == (0, "", "3\n")


def test_the_http_extra_alone_runs_a_gateway(make_environment):
    environment = make_environment("http")
    command = [environment.folder / "bin" / "lingon", "gateway", "--server", "127.0.0.1:1", "--port", "0"]
    with subprocess.Popen(command, cwd=environment.folder, env=VARIABLES, stdout=subprocess.PIPE, text=True) as gateway:
        try:
            assert gateway.stdout.readline().startswith("ready: ")
        finally:
            gateway.send_signal(signal.SIGTERM)
    assert gateway.returncode == 0


@pytest.mark.parametrize(
    ("command", "extra"),
    [
        ("train {config}", "train"),
        ("prepare {config} --output t", "train"),
        ("evaluate {folder} --source {folder}/test.source --target {folder}/test.target", "train"),
        ("export {folder} models/digits", "export"),
        ("serve {folder}", "serve"),
    ],
)
def test_a_verb_names_the_extra_that_the_base_install_lacks(base, wheel, command, extra, config):
    answer = base.run("lingon", *command.format(config=config, folder=config.parent).split())
    assert (answer.returncode, answer.stdout) == (1, "")
    assert answer.stderr.startswith("lingon: error: ")
    assert answer.stderr.endswith(f": pip install '{wheel}[{extra}]'\n")
    assert answer.stderr.count("\n") == 1


def test_doctor_reports_the_missing_extras_of_the_base_install(base):
    answer = base.run("lingon", "doctor")
    assert (answer.returncode, answer.stderr) == (1, "")
    assert re.search("^extra serve: missing .*onnxruntime", answer.stdout, re.MULTILINE)


def test_the_train_extra_trains(run):
    assert (run / "config.json").is_file()
    assert list(run.rglob("*.safetensors"))


def test_the_export_extra_exports(bundle):
    assert (bundle / "manifest.json").is_file()


def test_the_serve_extra_has_no_torch(serve):
    assert serve.imports("onnxruntime", "torch", "onnx", "sacrebleu") == {"onnxruntime"}


def test_doctor_reports_that_the_serve_extra_can_serve(serve, bundle):
    answer = serve.run("lingon", "doctor", bundle)
    assert (answer.returncode, answer.stderr) == (0, "")
    assert "extra serve: installed" in answer.stdout
    assert re.search("^extra train: missing .*torch", answer.stdout, re.MULTILINE)


def test_the_base_install_translates_with_a_server_of_the_serve_extra(serve, base, bundle):
    options = ["--port", "0", "--metrics-port", "0", "--device", "cpu"]
    command = [serve.folder / "bin" / "lingon", "serve", bundle, *options]
    with subprocess.Popen(command, cwd=serve.folder, env=VARIABLES, stdout=subprocess.PIPE, text=True) as server:
        try:
            ready = re.search(r"^ready: .* on (\S+), metrics on ", server.stdout.readline())
            assert ready
            health = base.run("lingon", "healthcheck", "--server", ready[1])
            answer = base.run("lingon", "translate", "--server", ready[1], "3 1 4", "2 7")
        finally:
            server.send_signal(signal.SIGTERM)
    assert (health.returncode, answer.returncode, server.returncode) == (0, 0, 0), health.stderr + answer.stderr
    assert answer.stdout.count("\n") == 2
