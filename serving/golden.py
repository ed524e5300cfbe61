"""Whether a model translates here as it did at its export, found out before it serves anybody."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from lingon.bundle import GOLDEN, Bundle
from lingon.errors import BundleError
from lingon.golden import Golden
from lingon.translation.v1 import translation_pb2 as pb
from serving.engine import Engine
from serving.logs import event
from serving.runner import Runner
from serving.scheduler import EngineLimits
from serving.translator import Translator

logger = logging.getLogger(__name__)


def prove(bundle: Bundle, runner: Runner, precision: str, workers: int = 1) -> None:
    """Translate the golden sentences of a bundle; raises BundleError where one comes out otherwise than at its export.

    Bundles of earlier exports have none, and neither have precisions for cards, whose results differ from card to card.
    """
    golden = None
    if GOLDEN in bundle.manifest.checksums:
        golden = Golden.from_bytes(bundle.read(GOLDEN), bundle.folder / GOLDEN)
    if golden is None or precision not in golden.translations:
        event(logger, logging.INFO, "no golden sentences", model=bundle.label, precision=precision)
        return
    found = translate(bundle, runner, golden.sentences, pb.DecodingOptions(), workers)
    for number, (result, expected) in enumerate(zip(found, golden.translations[precision], strict=True), 1):
        if result.status.code or result.hypotheses[0].text != expected:
            raise BundleError(
                f"{bundle.folder / GOLDEN}: sentence {number} of {len(found)} is translated otherwise than at the "
                f"export, in {precision}"
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
