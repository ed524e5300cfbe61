"""Checks, before a model is served, that it translates and aligns its golden sentences as it did at its export."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from lingon.bundle import GOLDEN, Bundle
from lingon.bundle.golden import Golden, Link, alignment_links
from lingon.errors import BundleError
from lingon.serving.engine.engine import Engine
from lingon.serving.engine.limits import EngineLimits
from lingon.serving.observability.logs import event
from lingon.serving.runtime.runner import Runner
from lingon.serving.runtime.sessions.errors import as_graph_load_error
from lingon.serving.translation.planning.text_options import WHOLE
from lingon.serving.translation.translator import Translator
from lingon.translation.v1 import translation_pb2 as pb

EXACT = "fp32"
MAX_DIFFERENT = 0.25  # share of the golden sentences, or links; a broken model translates or aligns all differently
MAX_WEIGHT_DIFFERENCE = 0.05  # of the attention weight of a link; other processors and GPUs sum in another order


def check_golden(bundle: Bundle, runner: Runner, precision: str, workers: int = 1) -> None:
    """Translate the golden sentences of a bundle; raises BundleError if a translation fails or differs.

    At most MAX_DIFFERENT of the links of the alignments may differ. A bundle may have no golden sentences. Precisions
    for GPUs have no golden translations of their own, because results differ between GPUs: at most MAX_DIFFERENT of
    theirs may differ from those of EXACT. If no GPU was available at the export, this is the first check of such a
    precision.
    """
    golden = golden_of(bundle)
    expected = golden.translations.get(precision, golden.translations.get(EXACT)) if golden else None
    if golden is None or expected is None:
        event(logging.getLogger(__name__), logging.INFO, "no golden sentences", model=bundle.label, precision=precision)
        return
    alignments = golden.alignments.get(precision, golden.alignments.get(EXACT, ()))
    aligned = bool(alignments and bundle.manifest.alignment.heads)
    options = pb.DecodingOptions(return_alignment=aligned)
    with as_graph_load_error(f"{bundle.folder / GOLDEN}: the sentences cannot be translated in {precision}"):
        found = translate(bundle, runner, golden.sentences, options, golden.languages, workers)
    pairs = enumerate(zip(found, expected, strict=True), 1)
    different = [place for place, (one, text) in pairs if one.status.code or one.hypotheses[0].text != text]
    if precision in golden.translations and different:
        raise BundleError(
            f"{bundle.folder / GOLDEN}: sentence {different[0]} of {len(found)} is translated otherwise than at the "
            f"export, in {precision}"
        )
    most = int(MAX_DIFFERENT * len(found))
    if len(different) > most:
        raise BundleError(
            f"{bundle.folder / GOLDEN}: {len(different)} of {len(found)} sentences are translated otherwise in "
            f"{precision} than in {EXACT} at the export; at most {most} may be"
        )
    if aligned:
        same = [place for place in range(len(found)) if place + 1 not in different]
        pairs_of_links = [(alignment_links(alignments[place]), links(found[place].hypotheses[0])) for place in same]
        _check_alignments(bundle, precision, pairs_of_links)


def golden_of(bundle: Bundle) -> Golden | None:
    """The golden sentences of a bundle; None if it has none."""
    if GOLDEN not in bundle.manifest.checksums:
        return None
    return Golden.from_bytes(bundle.read(GOLDEN), bundle.folder / GOLDEN)


def links(hypothesis: pb.Hypothesis) -> list[Link]:
    """The alignment of a hypothesis as golden sentences have it."""
    return [(link.source.begin, link.target.begin, link.weight) for link in hypothesis.alignment]


def _check_alignments(bundle: Bundle, precision: str, pairs: Sequence[tuple[list[Link], list[Link]]]) -> None:
    """Raise BundleError if too many links differ; pairs: of the export, and of this load, for each translation."""
    total = sum(max(len(expected), len(found)) for expected, found in pairs)
    different = total - sum(_same_links(expected, found) for expected, found in pairs)
    most = int(MAX_DIFFERENT * total)
    if different > most:
        raise BundleError(
            f"{bundle.folder / GOLDEN}: {different} of {total} links of the alignments differ from those of the "
            f"export, in {precision}; at most {most} may"
        )


def _same_links(expected: list[Link], found: list[Link]) -> int:
    """The number of expected links that were found, between the same pieces and with nearly the same weight."""
    left = list(found)
    for source, target, weight in expected:
        near = [
            each for each in left if each[:2] == (source, target) and abs(each[2] - weight) <= MAX_WEIGHT_DIFFERENCE
        ]
        if near:
            left.remove(near[0])
    return len(found) - len(left)


def translate(
    bundle: Bundle,
    runner: Runner,
    sentences: Sequence[str],
    options: pb.DecodingOptions,
    pairs: Sequence[tuple[str, str]] = (),
    workers: int = 1,
) -> list[pb.TextResult]:
    """Translate sentences in one batch, each as it is, with the bundle's default options unless `options` sets others.

    pairs: of a bundle of several languages, the pair of each sentence. Raises BundleError for one that it has not.

    A separate engine does it, so that the metrics of the model do not count these sentences.
    """
    limits = EngineLimits()
    engine = Engine(runner, limits, workers=workers)
    engine.start()
    try:
        shortlist = bundle.manifest.defaults.shortlist if runner.shortlist else None
        translator = Translator(bundle, engine, limits, shortlist=shortlist)
        work = _translate(translator, sentences, options, pairs)
        with ThreadPoolExecutor(1) as thread:  # the calling thread may already run an event loop
            return thread.submit(asyncio.run, work).result()
    finally:
        engine.stop(0)


async def _translate(
    translator: Translator, sentences: Sequence[str], options: pb.DecodingOptions, pairs: Sequence[tuple[str, str]]
) -> list[pb.TextResult]:
    """Return the results in the order of the sentences; those of one pair are one request."""
    given = pairs or [("", "")] * len(sentences)
    results: dict[int, pb.TextResult] = {}
    for pair in dict.fromkeys(given):
        own = [place for place, each in enumerate(given) if each == pair]
        try:
            served = translator.for_pair(*pair)
        except KeyError:
            raise BundleError(f"{translator.label}: {GOLDEN} has {' '.join(pair)}, no pair of the manifest") from None
        request = pb.TranslateRequest(texts=[sentences[place] for place in own], options=options, text=WHOLE)
        results.update(zip(own, (await served.translate(request)).results, strict=True))
    return [results[place] for place in range(len(sentences))]
