"""The bundle that ships, on 500 sentence pairs that it was not trained on."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from export.decode import decode_all
from lingon.bundle import CARD, Bundle, open_bundle
from lingon.scoring import score
from lingon.text import Tokenizer, normalise
from serving.engine import Engine
from serving.job import Hypothesis, Options
from serving.local import translate_lines
from serving.onnx_runner import load_runner
from serving.scheduler import EngineLimits

ROOT = Path(__file__).parent.parent.parent
DATA = ROOT / "tests" / "data"
SOURCES = (DATA / "tatoeba.en").read_text(encoding="utf-8").splitlines()
REFERENCES = (DATA / "tatoeba.de").read_text(encoding="utf-8").splitlines()


@pytest.fixture(scope="module")
def bundle() -> Bundle:
    return open_bundle(ROOT / "models" / "en-de")


@pytest.fixture(scope="module")
def sources(bundle: Bundle) -> list[tuple[int, ...]]:
    tokenizer = Tokenizer(*bundle.tokenizer_files())
    return [tuple(tokenizer.encode_source(normalise(line))) for line in SOURCES]


@pytest.fixture(params=["fp32", "int8"])
def engine(bundle: Bundle, request: pytest.FixtureRequest) -> Iterator[Engine]:
    engine = Engine(load_runner(bundle, request.param, threads=2), EngineLimits(max_rows=64), workers=2)
    engine.start()
    yield engine
    engine.stop(timeout=0)


def options(bundle: Bundle, source: tuple[int, ...], beam_size: int) -> Options:
    bound = bundle.manifest.limits.max_output(len(source))
    return Options(beam_size=beam_size, num_hypotheses=beam_size, length_penalty=1.0, max_output_tokens=bound)


def test_it_is_whole_small_and_says_what_was_proven(bundle: Bundle) -> None:
    bundle.verify()
    assert sum(path.stat().st_size for path in bundle.folder.rglob("*") if path.is_file()) <= 36_000_000
    assert bundle.manifest.precisions["fp32"].gate == bundle.manifest.precisions["int8"].gate == "passed"
    quality = bundle.manifest.precisions["int8"].report["quality"]
    assert abs(quality["bleu"] - quality["fp32_bleu"]) <= 0.2
    assert abs(quality["chrf"] - quality["fp32_chrf"]) <= 0.3
    assert quality["sentences"] >= 2000
    report = bundle.manifest.precisions["fp32"].report
    for search in ("greedy", "beam 4"):
        assert report[search]["sentences"] >= 500
        assert report[search]["identical"] + len(report[search]["excused"]) == report[search]["sentences"]
    card = bundle.read(CARD).decode()
    for owed in ("tatoeba.org", "CC BY 2.0", "MPL 2.0", "BLEU", "chrF", "version:"):
        assert owed in card


def test_no_path_of_the_machine_that_made_it_is_in_it(bundle: Bundle) -> None:
    for name in bundle.manifest.checksums:
        assert b"/work/" not in bundle.read(name), name
        assert b"/home/" not in bundle.read(name), name


def test_it_translates_as_well_as_it_is_said_to(bundle: Bundle) -> None:
    found = translate_lines(bundle.folder, SOURCES, beam_size=4, length_penalty=1.0, device="cpu")
    scores = score(found, REFERENCES)
    assert scores.bleu > 33
    assert scores.chrf > 53


@pytest.mark.parametrize("beam_size", [1, 4])
def test_a_sentence_means_the_same_alone_as_in_company(
    bundle: Bundle, engine: Engine, sources: list[tuple[int, ...]], beam_size: int
) -> None:
    def decode(chosen: list[int]) -> dict[int, tuple[Hypothesis, ...]]:
        wanted = [options(bundle, sources[index], beam_size) for index in chosen]
        outcomes = decode_all(engine, [sources[index] for index in chosen], wanted)
        assert all(isinstance(outcome, tuple) for outcome in outcomes)
        return dict(zip(chosen, outcomes, strict=True))  # type: ignore[arg-type]

    everything = list(range(len(sources)))
    together = decode(everything)
    assert decode(random.Random(beam_size).sample(everything, len(everything))) == together
    for index in everything[:: beam_size * 2]:
        assert decode([index])[index] == together[index]


def test_every_file_of_it_is_in_the_repository(bundle: Bundle) -> None:
    listed = subprocess.run(
        ["git", "ls-files", str(bundle.folder)], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.split()
    if not listed:  # an archive of the source, not a clone
        return
    names = {Path(name).relative_to(bundle.folder.relative_to(ROOT)).as_posix() for name in listed}
    assert names == {*bundle.manifest.checksums, "manifest.json"}
