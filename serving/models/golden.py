"""Whether a model translates here as it did at its export, found out before it serves anybody."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from lingon.bundle import GOLDEN, Bundle
from lingon.bundle.golden import Golden
from lingon.errors import BundleError
from lingon.serving.engine.engine import Engine
from lingon.serving.engine.limits import EngineLimits
from lingon.serving.observability.logs import event
from lingon.serving.runtime.runner import Runner
from lingon.serving.translation.translator import Translator
from lingon.translation.v1 import translation_pb2 as pb

logger = logging.getLogger(__name__)

EXACT = "fp32"
MOST_UNLIKE = 0.25  # of sentences whose decisions are clear; what is broken translates none of them alike


def check_golden(bundle: Bundle, runner: Runner, precision: str, workers: int = 1) -> None:
    """Translate the golden sentences of a bundle; raises BundleError where one comes out otherwise than at its export.

    Bundles of earlier exports have none. Precisions for cards have no translations of their own, as results differ from
    card to card: most of theirs have to be those of EXACT, which they stand for. Where no card was at hand at the
    export it is the first that anybody sees of them.
    """
    golden = None
    if GOLDEN in bundle.manifest.checksums:
        golden = Golden.from_bytes(bundle.read(GOLDEN), bundle.folder / GOLDEN)
    expected = golden.translations.get(precision, golden.translations.get(EXACT)) if golden else None
    if golden is None or expected is None:
        event(logger, logging.INFO, "no golden sentences", model=bundle.label, precision=precision)
        return
    found = translate(bundle, runner, golden.sentences, pb.DecodingOptions(), workers)
    pairs = enumerate(zip(found, expected, strict=True), 1)
    unlike = [place for place, (one, text) in pairs if one.status.code or one.hypotheses[0].text != text]
    if precision in golden.translations and unlike:
        raise BundleError(
            f"{bundle.folder / GOLDEN}: sentence {unlike[0]} of {len(found)} is translated otherwise than at the "
            f"export, in {precision}"
        )
    most = int(MOST_UNLIKE * len(found))
    if len(unlike) > most:
        raise BundleError(
            f"{bundle.folder / GOLDEN}: {len(unlike)} of {len(found)} sentences are translated otherwise in "
            f"{precision} than in {EXACT} at the export; at most {most} may be"
        )


def translate(
    bundle: Bundle, runner: Runner, sentences: Sequence[str], options: pb.DecodingOptions, workers: int = 1
) -> list[pb.TextResult]:
    """What the bundle's own defaults, and options where they are set, make of each sentence; all in one batch.

    In an engine of its own, so that these sentences are in nobody's figures.
    """
    limits = EngineLimits()
    engine = Engine(runner, limits, workers=workers)
    engine.start()
    try:
        shortlist = bundle.manifest.defaults.shortlist if runner.shortlist else None
        translator = Translator(bundle, engine, limits, shortlist=shortlist)
        work = translator.translate(pb.TranslateRequest(texts=sentences, options=options))
        with ThreadPoolExecutor(1) as apart:  # whoever calls may have an event loop of his own that runs
            reply = apart.submit(asyncio.run, work).result()
    finally:
        engine.stop(0)
    return list(reply.results)
