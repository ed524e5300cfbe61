"""Real graphs with random weights: translating in this process, and the commands `lingon serve` and `lingon doctor`."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from lingon.bundle.manifest import Languages, SourceLanguage, TargetLanguage
from lingon.bundle.store import open_bundle, write_bundle
from lingon.cli.main import main
from lingon.errors import BundleError, DeviceError, Expired, InvalidRequest, UnknownModel
from lingon.extras import install_command
from lingon.machine import usable_cores
from lingon.serving.doctor import examine, lacking, report
from lingon.serving.in_process import LocalTranslator, translate_lines
from lingon.serving.models.catalog import Catalog, Entry
from lingon.serving.models.loading import default_engines
from lingon.serving.server import _ready_line
from lingon.serving.settings import Settings
from lingon.translation.v1 import translation_pb2 as pb
from lingon.translation.v1 import translation_pb2_grpc as pb_grpc
from tests.support.random_models import VOCAB, random_model, written_bundle
from tests.support.repository import ROOT
from tests.support.tokenizers import train_sentencepiece

LETTERS = "abcdefghijklmnopqrstuvwxyz"
LINES = ["the quick brown fox", "", "jumps over", "   ", "the lazy dog", "pack my box with five dozen jugs", "sphinx"]
INVISIBLE = "\u200b"  # which is no white space
VERB = "import sys; from lingon.cli.main import main; from importlib.metadata import EntryPoint as E; "
VERB += "sys.exit(main(entries=[E(v, f'lingon.serving.cli:{v} [serve]', 'lingon.verbs') for v in ('serve', 'doctor')]))"


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one bundle with real graphs, random/1."""
    lines = [f"{word}{LETTERS[place:]} {LETTERS[:place]}" for place, word in enumerate(" ".join(LINES).split() * 3)]
    folder = tmp_path_factory.mktemp("models")
    written_bundle(random_model(), folder / "random", files={"tokenizer.model": train_sentencepiece(lines, VOCAB)})
    return folder


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-W", "error", "-c", VERB, *map(str, arguments)]


@contextmanager
def served(*arguments: object) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`lingon serve` in its own process, and the line that it prints when it is ready."""
    line = command("serve", "--port", 0, "--metrics-port", 0, "--threads", 1, *arguments)
    with subprocess.Popen(line, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline()
        finally:
            process.kill()


def test_lines_are_translated_in_order_and_empty_ones_stay_empty(models: Path):
    lines = [*LINES, INVISIBLE] * 60
    found = translate_lines(models / "random", lines, beam_size=1, length_penalty=1.0).lines
    assert len(found) == len(lines)
    assert found == found[: len(LINES) + 1] * 60
    assert [line == "" for line in found[: len(LINES)]] == [not line.strip() for line in LINES]
    assert found[len(LINES)] == ""


def test_the_progress_of_a_bundle_ends_with_all_of_its_lines(models: Path):
    seen: list[tuple[int, int]] = []
    translate_lines(
        models / "random", LINES, beam_size=1, length_penalty=1.0, on_progress=lambda *now: seen.append(now)
    )
    assert seen == [(done, len(LINES)) for done in range(1, len(LINES) + 1)]


def test_the_replies_in_process_equal_those_of_a_server(models: Path):
    request = pb.TranslateRequest(
        texts=LINES,
        options=pb.DecodingOptions(beam_size=4, num_hypotheses=2, return_tokens=True, return_alignment=True),
    )
    pairs = [pb.ScorePair(source=LINES[0], target=LINES[2]), pb.ScorePair(source=LINES[0], target="")]
    scoring = pb.ScoreRequest(pairs=pairs, return_alignment=True)
    with LocalTranslator(models / "random", threads=1) as local:
        here, scored_here = local.translate(request), local.score(scoring)
        with pytest.raises(InvalidRequest, match=r"options\.beam_size"):
            local.translate(pb.TranslateRequest(texts=["a"], options=pb.DecodingOptions(beam_size=99)))
    with served(models) as (_, line):
        address = re.search(r"127\.0\.0\.1:\d+", line)
        assert address is not None
        with grpc.insecure_channel(address.group()) as channel:
            stub = pb_grpc.TranslationServiceStub(channel)
            there, scored_there = stub.Translate(request), stub.Score(scoring)
    assert here == there
    assert scored_here == scored_there
    assert [warning.code for warning in here.results[1].warnings] == [pb.WARNING_CODE_EMPTY_SOURCE]
    for result in here.results[::2]:
        assert len(result.hypotheses) == 2


def test_a_local_translator_accepts_the_requests_of_a_server(models: Path):
    with LocalTranslator(models / "random", threads=1) as local:
        known = local.translate(pb.TranslateRequest(texts=[LINES[0]]))
        languages = {
            "source_language_code": known.source_language_code,
            "target_language_code": known.target_language_code,
        }
        assert local.translate(pb.TranslateRequest(texts=[LINES[0]], model="random/1", **languages), 60.0) == known
        pairs = [pb.ScorePair(source=LINES[0], target=LINES[2])]
        for other in ({"target_language_code": "fi"}, {"source_language_code": "fi"}, {"model": "none"}):
            with pytest.raises(UnknownModel, match="random/1"):
                local.translate(pb.TranslateRequest(texts=[LINES[0]], **other))
            with pytest.raises(UnknownModel, match="random/1"):
                local.score(pb.ScoreRequest(pairs=pairs, **other))
        with pytest.raises(Expired):
            local.translate(pb.TranslateRequest(texts=[LINES[0]] * 256), 0.001)


def test_the_command_prints_when_it_is_ready_and_logs_the_origin_of_each_setting(models: Path):
    with served(models / "random", "--max-rows", 8, "--log-format", "json") as (process, line):
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=20)
    assert re.fullmatch(
        r"ready: random/1 \(fp32, CPU\) on 127\.0\.0\.1:\d+, metrics on 127\.0\.0\.1:\d+ - "
        r'try: echo "Tom lives in Boston\." \| lingon translate --server 127\.0\.0\.1:\d+\n',
        line,
    )
    assert process.returncode == 0
    entries = [json.loads(text) for text in errors.splitlines()]
    origins = {entry["name"]: entry["origin"] for entry in entries if entry["message"] == "setting"}
    assert (origins["max_rows"], origins["models"]) == ("--max-rows", "arguments")
    assert "default" not in origins.values()
    (loaded,) = [entry for entry in entries if entry["message"] == "loaded"]
    assert loaded["precision"] == "fp32"
    assert loaded["graph_bytes"] >= sum(
        path.stat().st_size for path in models.rglob("*") if path.suffix in (".onnx", ".bin")
    )
    assert loaded["state_bytes"] > 0


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["nowhere"], 1, "nowhere: no such folder; give models/NAME or models/NAME/VERSION"),
        (["--max-rows", "0"], 2, "max_rows (from --max-rows)"),
        (["--device", "cuda"], 1, "device cuda: "),
        (["--precision", "int3"], 1, "has no int3"),
        (["--shortlist"], 2, "shortlist: random/1 has none for fp32"),
    ],
)
def test_a_failed_start_prints_the_reason_in_one_line(models: Path, arguments: list[str], code: int, message: str):
    where = [] if arguments == ["nowhere"] else [models]
    line = command("serve", *where, "--port", 0, "--metrics-port", 0, "--log-level", "error", *arguments)
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == code
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_serve_without_models_names_the_missing_argument(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    code = main(["serve"], [EntryPoint("serve", "lingon.serving.cli:serve [serve]", "lingon.verbs")])
    told = (
        "no models to serve are named, and there is no folder models here; name them: lingon serve models/NAME, or get "
        "one: lingon models get en-de"
    )
    assert (code, capsys.readouterr().err) == (2, f"lingon: error: {told}\n")


@pytest.mark.parametrize(("bleu", "warned"), [(0.2, True), (5.0, False), (None, False)])
def test_a_model_that_hardly_translates_is_a_warning_when_it_is_loaded(
    models: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, bleu: float | None, warned: bool
):
    good = open_bundle(models / "random")
    report = {} if bleu is None else {"quality": {"bleu": bleu, "fp32_bleu": bleu}}
    precisions = {"fp32": replace(good.manifest.precisions["fp32"], report=report)}
    files = {name: good.read(name) for name in good.manifest.checksums}
    manifest = replace(good.manifest, precisions=precisions, checksums={})
    write_bundle(tmp_path / "poor" / "1", manifest, files)
    with LocalTranslator(tmp_path / "poor"):
        pass
    assert [f"BLEU is {bleu}0, below 5" in record.message for record in caplog.records if "BLEU" in record.message] == [
        True
    ] * warned


@pytest.mark.parametrize("engines", [None, 1, 3])
def test_a_local_translator_decodes_on_all_usable_cores_unless_told_otherwise(models: Path, engines: int | None):
    before = set(threading.enumerate())
    with LocalTranslator(models / "random", engines=engines):
        started = [each for each in threading.enumerate() if each.name.startswith("engine ") and each not in before]
        assert len(started) == (engines or default_engines())


def test_missing_cuda_is_an_error_of_the_local_translator_too(models: Path):
    with pytest.raises(DeviceError, match="cuda"):
        LocalTranslator(models / "random", device="cuda")
    with pytest.raises(BundleError):
        LocalTranslator(models / "nowhere")


@pytest.mark.parametrize(("engines", "more", "warned"), [(1, 0, False), (1, 1, True), (2, 0, True)])
def test_more_threads_than_usable_cores_are_a_warning(
    models: Path, caplog: pytest.LogCaptureFixture, engines: int, more: int, warned: bool
):
    with LocalTranslator(models / "random", engines=engines, threads=usable_cores() + more):
        pass
    lines = [record for record in caplog.records if record.message.startswith("more threads than usable cores")]
    assert [line.fields["usable_cores"] for line in lines] == [usable_cores()] * warned


def test_a_program_without_logging_is_told_which_model_a_warning_is_about(models: Path):
    more = usable_cores() + 1
    load = "from lingon.serving.in_process import LocalTranslator as L; "
    load += f"L({str(models / 'random')!r}, engines=1, threads={more}).close()"
    done = subprocess.run([sys.executable, "-c", load], cwd=ROOT, capture_output=True, text=True, check=True)
    line = next(line for line in done.stderr.splitlines() if "more threads" in line)
    assert re.search(
        rf" warning more threads than usable cores .* model=random/1 engines=1 threads_of_each={more} ", line
    )


def test_doctor_reports_usable_and_altered_bundles(models: Path, tmp_path: Path):
    good = subprocess.run(command("doctor", models, "--json"), cwd=ROOT, capture_output=True, text=True, check=False)
    findings = json.loads(good.stdout)
    assert good.returncode == 0
    assert findings["models"][0]["label"] == "random/1"
    assert findings["models"][0]["precisions"] == "fp32 (CPUExecutionProvider, gate random)"
    assert findings["cores"]["usable"] >= 1
    assert "CPUExecutionProvider" in findings["providers"]
    broken = tmp_path / "random" / "1"
    broken.mkdir(parents=True)
    for path in (models / "random" / "1").rglob("*"):
        if path.is_file():
            (broken / path.relative_to(models / "random" / "1")).parent.mkdir(exist_ok=True)
            os.link(path, broken / path.relative_to(models / "random" / "1"))
    (broken / "tokenizer.model").unlink()
    bad = subprocess.run(command("doctor", tmp_path), cwd=ROOT, capture_output=True, text=True, check=False)
    assert bad.returncode == 1
    assert "tokenizer.model: No such file" in bad.stdout


def test_doctor_names_few_packages_of_an_extra_and_none_of_those_for_developers(models: Path):
    findings = examine([models])
    findings["extras"] = {"dev": ["a", "b"], "docs": ["c"], "bench": [*"abcdefghijkl"], "serve": "installed"}
    lines = [line for line in report(findings).splitlines() if line.startswith("extra ")]
    assert lines == [
        f"extra bench: missing a, b, c, d, e, f, g, h, i, j and 2 more: {install_command('bench')}",
        "extra serve: installed",
    ]


def test_an_extra_lacks_the_packages_of_the_extras_that_it_includes():
    requirements = [
        "grpcio>=1",
        "torch==2.13.0; extra == 'train'",
        "numpy>=2; extra == 'train'",
        'onnx>=1.20; extra == "export"',
        'lingon[train]; extra == "export"',
        'lingon[export, dev]; extra == "dev"',
    ]
    here = {"onnx": "1.21", "numpy": "2.1", "lingon": "0.1"}
    assert lacking(requirements, here.get) == {"train": ["torch"], "export": ["torch"], "dev": ["torch"]}


@pytest.mark.parametrize(
    ("host", "called"),
    [("0.0.0.0", "127.0.0.1:7"), ("::", "[::1]:7"), ("::1", "[::1]:7"), ("10.0.0.1", "10.0.0.1:7")],
)
def test_the_ready_line_shows_an_address_that_clients_can_reach(host: str, called: str):
    line = _ready_line(Catalog[Any]([]), Settings(host=host), 7, 8)
    assert line.endswith(f"translate --server {called}")


def entry(name: str, languages: Languages | None = None) -> Entry[Any]:
    translator = SimpleNamespace(precision="int8", provider="CPUExecutionProvider")
    source, target = languages.pair if languages else ("en", "de")
    return Entry(name, 1, source, target, SimpleNamespace(translator=translator, is_loaded=True), languages)


def test_the_ready_line_names_a_model_if_there_are_several():
    lines = [_ready_line(Catalog([entry(name) for name in names]), Settings(), 7, 8) for names in ("a", "ab")]
    assert "--model" not in lines[0]
    assert lines[1].startswith("ready: a/1 (int8, CPU), b/1 (int8, CPU) on 127.0.0.1:7,")
    assert lines[1].endswith("translate --server 127.0.0.1:7 --model a/1")


def test_the_ready_line_names_two_languages_of_a_model_of_several():
    sources = tuple(SourceLanguage(tag, (), ()) for tag in ("en", "de"))
    targets = tuple(TargetLanguage(tag, (), ()) for tag in ("en", "fr", "de"))
    many = entry("many", Languages(sources, targets))
    lines = [_ready_line(Catalog(entries), Settings(), 7, 8) for entries in ([many], [many, entry("en-de")])]
    assert lines[0].endswith("translate --server 127.0.0.1:7 --source-language en --target-language fr")
    assert lines[1].endswith("--model many/1 --source-language en --target-language fr")


def test_the_ready_line_shows_the_options_that_a_client_needs(tmp_path: Path):
    tls = {"tls_certificate": tmp_path / "tls.crt", "tls_key": tmp_path / "tls.key"}
    line = _ready_line(Catalog[Any]([]), Settings(**tls, api_keys=tmp_path / "keys.toml"), 7, 8)
    assert line.endswith("translate --server 127.0.0.1:7 --tls-ca CA_FILE --api-key-file KEY_FILE")


def test_closing_ends_the_requests_that_are_still_queued(models: Path) -> None:
    translator = LocalTranslator(models / "random", threads=1)
    ended: list[BaseException | None] = []

    def wait() -> None:
        try:
            translator.translate(pb.TranslateRequest(texts=[LINES[0]] * 256))
            ended.append(None)
        except BaseException as error:
            ended.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    time.sleep(0.02)
    translator.close()
    waiting.join(timeout=10)
    assert not waiting.is_alive()
    assert len(ended) == 1
