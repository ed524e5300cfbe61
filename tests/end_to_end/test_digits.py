"""Train, export and serve with the real commands, on a task that is learned in half a minute: reverse the digits."""

from __future__ import annotations

import gzip
import json
import urllib.request
from pathlib import Path

import pytest

from tests.support.processes import lingon, serving
from tests.support.training_runs import tiny_config_text, write_digit_corpus


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with corpus, config, run and bundle, each made by its command."""
    folder = tmp_path_factory.mktemp("digits")
    write_digit_corpus(folder)
    (folder / "config.toml").write_text(tiny_config_text())
    lingon("train", folder / "config.toml", "--output", folder / "run")
    lingon("average", folder / "run", "--last", 2, "--half", "--output", folder / "averaged")
    # 50 sentences are too few for the quality gate of int8, which may move their BLEU by a point up or down.
    exact = ("--precision", "fp32,fp16", "--no-shortlist")
    lingon("export", folder / "averaged", folder / "models" / "digits", *exact)
    return folder


def test_the_trained_model_has_learned_the_task(folder: Path) -> None:
    log = [json.loads(line) for line in (folder / "run" / "log.jsonl").read_text().splitlines()]
    assert max(line["bleu"] for line in log if line["kind"] == "valid") > 90


def test_the_bundle_is_intact_and_reports_its_gates(folder: Path) -> None:
    shown = json.loads(lingon("inspect", folder / "models" / "digits", "--json"))
    report = json.dumps(shown)
    assert '"gate": "passed"' in report
    assert "not run on cuda" in report


def test_checkpoint_and_bundle_have_the_same_bleu(folder: Path) -> None:
    test = ("--source", folder / "test.source", "--target", folder / "test.target", "--json")
    exact = json.loads(lingon("evaluate", folder / "averaged", *test))["bleu"]
    assert exact == json.loads(lingon("evaluate", folder / "models" / "digits", *test))["bleu"] > 90


def test_a_served_bundle_translates_and_scores_and_the_server_exits_with_0(folder: Path) -> None:
    sources = (folder / "test.source").read_text()
    targets = (folder / "test.target").read_text().splitlines()
    with serving(folder / "models" / "digits") as server:
        assert "digits/1 (fp32, CPU)" in server.ready
        lingon("healthcheck", "--server", server.address)
        whole = ("--no-split-sentences", "--no-protect")  # for texts without letters
        translated = lingon("translate", "--server", server.address, *whole, text=sources).splitlines()
        assert sum(mine == theirs for mine, theirs in zip(translated, targets, strict=True)) > 45
        in_process = lingon("translate", "--model", folder / "models" / "digits", *whole, text=sources).splitlines()
        assert translated == in_process
        pair = f"{sources.splitlines()[0]}\t{targets[0]}\n"
        assert json.loads(lingon("score", "--server", server.address, "--json", text=pair))["log_prob"] > -5
        with urllib.request.urlopen(f"http://{server.metrics}/metrics", timeout=10) as answer:
            metrics = answer.read().decode()
        assert 'lingon_requests_total{code="OK",method="Translate"} ' in metrics
        assert sources.splitlines()[0] not in metrics
        assert server.stop() == 0


def test_a_student_trains_on_what_the_bundle_translates(folder: Path, tmp_path: Path) -> None:
    choice = ("--choose", "closest", "--num-hypotheses", 2, "--target", folder / "train.target")
    distilled = folder / "distilled"
    source = ("--source", folder / "train.source")
    lingon("distill", "--model", folder / "models" / "digits", *source, *choice, "--whole", "--output", distilled)
    sources, targets = (
        gzip.decompress((distilled / f"distilled.{side}.gz").read_bytes()).decode().splitlines()
        for side in ("source", "target")
    )
    right = [target == source[::-1] for source, target in zip(sources, targets, strict=True)]
    assert len(right) > 1950
    assert sum(right) > 0.95 * len(right)
    student = tiny_config_text(
        model={"decoder_layers": 1, "decoder_cell": "ssru"}, training={"max_steps": 20, "cooldown_steps": 0}
    )
    for side in ("source", "target"):
        student = student.replace(f'"train.{side}"', f'"distilled/distilled.{side}.gz"')
    (folder / "student.toml").write_text(student)
    lingon("train", folder / "student.toml", "--output", tmp_path / "student", "--set", "training.warmup_steps=10")
    assert (tmp_path / "student" / "checkpoints" / "step-00000020").is_dir()


def test_a_bundle_with_one_flipped_byte_is_refused_by_name(folder: Path, tmp_path: Path) -> None:
    original = folder / "models" / "digits" / "1"
    copy = tmp_path / "digits" / "1"
    for path in original.rglob("*"):
        if path.is_file():
            (copy / path.relative_to(original)).parent.mkdir(parents=True, exist_ok=True)
            (copy / path.relative_to(original)).write_bytes(path.read_bytes())
    weights = copy / "weights" / "fp16.bin"
    content = bytearray(weights.read_bytes())
    content[len(content) // 2] ^= 1
    weights.write_bytes(content)
    for verb in ("serve", "inspect"):
        assert "weights/fp16.bin" in lingon(verb, copy, code=1)


def test_cuda_is_refused_without_a_gpu(folder: Path) -> None:
    message = lingon("serve", folder / "models" / "digits", "--device", "cuda", code=1)
    assert "device cuda: this onnxruntime is the CPU build" in message
