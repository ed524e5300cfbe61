"""The tokens of a language at the begin of a translation take none of the tokens that it may have."""

from __future__ import annotations

import queue
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from lingon.bundle.manifest import MANY, Limits
from lingon.serving.decoding.job import DecodeJob, Options
from lingon.serving.engine.engine import Engine
from lingon.serving.engine.limits import EngineLimits
from lingon.serving.runtime.onnx_runner import OnnxRunner
from lingon.serving.runtime.runner import BatchShape
from lingon.text import EOS
from tests.support.engine_harness import running_engine
from tests.support.random_models import LANGUAGES, PAIRS, device_runner, random_runner, tokens_of

LIMITS = Limits(max_source_tokens=64, max_target_tokens=100, output_factor=1.5, output_extra=8, max_beam_size=8)
MOST_FORCED = 2  # tokens, of French


def endless_runner(*, on_device: bool = False) -> OnnxRunner:
    """Return a runner of the three languages whose translations never end by themselves."""
    never = {"never_generated": (EOS, 4, 5, 6)}
    runner = device_runner(**never) if on_device else random_runner(**never)
    languages = {"languages": LANGUAGES, "source_language": MANY, "target_language": MANY}
    return replace(runner, manifest=replace(runner.manifest, limits=LIMITS, **languages))


@pytest.mark.parametrize("source_tokens", [32, 40, 64])
@pytest.mark.parametrize("beam_size", [1, 2])
@pytest.mark.parametrize("on_device", [False, True])
def test_a_translation_has_as_many_tokens_as_its_bound_beside_those_of_its_language(
    on_device: bool, beam_size: int, source_tokens: int
) -> None:
    """Sources of 32 and of 64 tokens fill the width of a batch; those of 64 reach the positions of the model."""
    done, wanted = queue.SimpleQueue[Any](), {}
    source = (*range(7, 39), *range(7, 38))[: source_tokens - 1]
    with running_engine(endless_runner(on_device=on_device)) as harness:
        for pair in PAIRS:
            forced = tokens_of(*pair).forced
            wanted[pair] = min(LIMITS.max_output(source_tokens), LIMITS.max_target_tokens - len(forced))
            options = Options(beam_size=beam_size, max_output_tokens=wanted[pair])
            job = partial(DecodeJob, source_ids=(*source, EOS), options=options, prefix=forced, hidden=len(forced))
            harness.engine.submit([job(on_done=lambda found, pair=pair: done.put((pair, found)))])
        found = dict(done.get(timeout=60) for _ in PAIRS)
    assert {pair: len(best.tokens) for pair, (best, *_) in found.items()} == wanted


def test_the_memory_that_may_be_needed_counts_the_tokens_of_the_languages() -> None:
    several = endless_runner()
    several.manifest = replace(several.manifest, limits=replace(LIMITS, max_source_tokens=32))
    one_pair = replace(several, manifest=replace(several.manifest, languages=None))
    more, less = (Engine(runner, EngineLimits(max_rows=4)).state_bytes for runner in (several, one_pair))
    longest = LIMITS.max_output(32)
    rows = [several.open(BatchShape(1, 1, 32, longest + added)).nbytes for added in (MOST_FORCED, 0)]
    assert more * rows[1] == less * rows[0]
