"""A model that the commands of the tutorial trained: exported in two precisions, served, distilled, and refused."""

from __future__ import annotations

import gzip
import json
import urllib.request
from pathlib import Path

import pytest

from tests.support.fixtures import FollowPage
from tests.support.pages import DOCS
from tests.support.processes import lingon, serving

WHOLE = "--no-split-sentences", "--no-protect"


@pytest.fixture(scope="module")
def page(follow_page: FollowPage) -> Path:
    """The folder of the page, with corpus, config, run and average."""
    return follow_page(DOCS / "tutorials" / "train-your-own-pair.md")


@pytest.fixture(scope="module")
def models(page: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of one version of the averaged model."""
    folder = tmp_path_factory.mktemp("models") / "numbers"
    lingon("export", page / "runs" / "numbers-average", folder, "--precision", "fp32,fp16", "--no-shortlist")
    return folder


def lines(page: Path, name: str) -> list[str]:
    return (page / f"numbers.{name}").read_text(encoding="utf-8").splitlines()


def test_the_trained_model_has_learned_the_task(page: Path) -> None:
    log = [json.loads(line) for line in (page / "runs" / "numbers" / "log.jsonl").read_text().splitlines()]
    assert max(line["bleu"] for line in log if line["kind"] == "valid") > 90


def test_the_bundle_is_intact_and_reports_its_gates(models: Path) -> None:
    shown = json.loads(lingon("inspect", models, "--json"))
    report = json.dumps(shown)
    assert '"gate": "passed"' in report
    assert "not run on cuda" in report


def test_checkpoint_and_bundle_have_the_same_bleu(page: Path, models: Path) -> None:
    test = ("--source", page / "numbers.test.en", "--target", page / "numbers.test.de", "--json")
    exact = json.loads(lingon("evaluate", page / "runs" / "numbers-average", *test))["bleu"]
    assert exact == json.loads(lingon("evaluate", models, *test))["bleu"] > 90


def test_a_served_bundle_translates_and_scores_and_the_server_exits_with_0(page: Path, models: Path) -> None:
    sources, targets = lines(page, "test.en"), lines(page, "test.de")
    text = (page / "numbers.test.en").read_text(encoding="utf-8")
    with serving(models) as server:
        assert "numbers/1 (fp32, CPU)" in server.ready
        lingon("healthcheck", "--server", server.address)
        translated = lingon("translate", "--server", server.address, *WHOLE, text=text).splitlines()
        assert sum(mine == theirs for mine, theirs in zip(translated, targets, strict=True)) > 0.9 * len(targets)
        assert translated == lingon("translate", "--model", models, *WHOLE, text=text).splitlines()
        pair = f"{sources[0]}\t{targets[0]}\n"
        assert json.loads(lingon("score", "--server", server.address, "--json", text=pair))["log_prob"] > -5
        with urllib.request.urlopen(f"http://{server.metrics}/metrics", timeout=10) as answer:
            metrics = answer.read().decode()
        assert 'lingon_requests_total{code="OK",method="Translate"} ' in metrics
        assert sources[0] not in metrics
        assert server.stop() == 0


def test_a_student_trains_on_what_the_bundle_translates(page: Path, models: Path, tmp_path: Path) -> None:
    train = lines(page, "train.en")[:2000], lines(page, "train.de")[:2000]
    for side, text in zip(("en", "de"), train, strict=True):
        (tmp_path / side).write_text("".join(f"{line}\n" for line in text), encoding="utf-8")
    choice = ("--choose", "closest", "--num-hypotheses", 2, "--target", tmp_path / "de")
    distilled = tmp_path / "distilled"
    lingon("distill", "--model", models, "--source", tmp_path / "en", *choice, "--whole", "--output", distilled)
    sources, targets = (
        gzip.decompress((distilled / f"distilled.{side}.gz").read_bytes()).decode().splitlines()
        for side in ("source", "target")
    )
    wanted = dict(zip(*train, strict=True))
    right = [target == wanted[source] for source, target in zip(sources, targets, strict=True)]
    assert len(right) > 1950
    assert sum(right) > 0.95 * len(right)
    settings = [
        f"data.train.0.source={distilled / 'distilled.source.gz'}",
        f"data.train.0.target={distilled / 'distilled.target.gz'}",
        "model.decoder_layers=1",
        "model.decoder_cell=ssru",
        "training.max_steps=20",
        "training.cooldown_steps=0",
        "training.warmup_steps=10",
    ]
    options = [word for setting in settings for word in ("--set", setting)]
    lingon("train", page / "numbers.toml", "--output", tmp_path / "student", *options)
    assert (tmp_path / "student" / "checkpoints" / "step-00000020").is_dir()


def test_a_bundle_with_one_flipped_byte_is_refused_by_name(models: Path, tmp_path: Path) -> None:
    original = models / "1"
    copy = tmp_path / "numbers" / "1"
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


def test_cuda_is_refused_without_a_gpu(models: Path) -> None:
    message = lingon("serve", models, "--device", "cuda", code=1)
    assert "device cuda: this onnxruntime is the CPU build" in message
