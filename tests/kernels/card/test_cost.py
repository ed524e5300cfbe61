"""What a step launches."""

from __future__ import annotations

import json
import zipfile

import pytest

from kernels.card.build import ARCHIVE
from kernels.card.cost import LATENCIES, Decoder, Launch, encoder, microseconds, predictions, step
from tests.support.repository import ROOT


@pytest.mark.parametrize(("norm_first", "greedy", "beams"), [(True, 53, 54), (False, 53, 54)])
def test_the_launches_of_a_step_of_base(norm_first: bool, greedy: int, beams: int) -> None:
    decoder = Decoder(norm_first=norm_first)
    for sentences in (1, 64, 256):
        assert len(step(decoder, sentences, 1)) == greedy
        assert len(step(decoder, sentences, 4)) == beams


def test_all_launches_are_of_kernels_of_the_archive() -> None:
    with zipfile.ZipFile(ARCHIVE) as archive:
        kernels = json.loads(archive.read("manifest.json"))["kernels"]
    for norm in ("layer", "rms"):
        for norm_first in (True, False):
            for dim in (256, 512, 1024):
                decoder = Decoder(dim=dim, norm=norm, norm_first=norm_first)
                for sentences, beams in ((1, 1), (16, 1), (300, 1), (1, 4), (64, 8)):
                    assert {each.kernel for each in step(decoder, sentences, beams)} <= set(kernels)


def test_the_prediction_of_the_documentation_is_that_of_the_cost() -> None:
    page = (ROOT / "docs" / "explanation" / "benchmarks.md").read_text(encoding="utf-8")
    assert "\n".join(predictions(Decoder(norm_first=False))) in page


def test_a_kernel_takes_its_latency_and_the_longer_of_reading_and_computing() -> None:
    latencies = LATENCIES["good"]
    assert microseconds([Launch("embed", 1)], latencies) == latencies["other"]
    reads, computes = Launch("linear_none_m16", 1, weights=44_000_000), Launch("linear_none_m16", 1, operations=10**10)
    assert microseconds([reads], latencies) == pytest.approx(latencies["product"] + 10)
    assert microseconds([computes], latencies) == pytest.approx(latencies["product"] + 10**10 / (0.4 * 756e6))
    both = Launch("linear_none_m16", 1, weights=44_000_000, operations=10**10)
    assert microseconds([both], latencies) == microseconds([computes], latencies)


def test_more_sentences_never_take_less_time() -> None:
    for latencies in LATENCIES.values():
        for launches in (
            lambda n: step(Decoder(), n, 1),
            lambda n: step(Decoder(), n, 4),
            lambda n: encoder(Decoder(), n),
        ):
            times = [microseconds(launches(sentences), latencies) for sentences in (1, 8, 64, 256)]
            assert times == sorted(times)
