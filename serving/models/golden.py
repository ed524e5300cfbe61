"""Checks, before a model is served, that it translates its golden sentences as it did at its export."""

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
MAX_DIFFERENT = 0.25  # share of the golden sentences; a broken model translates all of them differently


def check_golden(bundle: Bundle, runner: Runner, precision: str, workers: int = 1) -> None:
    """Translate the golden sentences of a bundle; raises BundleError if a translation differs from the export's.

    Bundles of old exports have no golden sentences. Precisions for GPUs have no golden translations of their own,
    because results differ between GPUs: at most MAX_DIFFERENT of theirs may differ from those of EXACT. If no GPU was
    available at the export, this is the first check of such a precision.
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


def translate(
    bundle: Bundle, runner: Runner, sentences: Sequence[str], options: pb.DecodingOptions, workers: int = 1
) -> list[pb.TextResult]:
    """Translate sentences in one batch, with the bundle's default options unless `options` sets others.

    A separate engine does it, so that the metrics of the model do not count these sentences.
    """
    limits = EngineLimits()
    engine = Engine(runner, limits, workers=workers)
    engine.start()
    try:
        shortlist = bundle.manifest.defaults.shortlist if runner.shortlist else None
        translator = Translator(bundle, engine, limits, shortlist=shortlist)
        work = translator.translate(pb.TranslateRequest(texts=sentences, options=options))
        with ThreadPoolExecutor(1) as thread:  # the calling thread may already run an event loop
            reply = thread.submit(asyncio.run, work).result()
    finally:
        engine.stop(0)
    return list(reply.results)
