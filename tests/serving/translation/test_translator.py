"""Planning shares the event loop with other tasks."""

from __future__ import annotations

import asyncio
import unicodedata
from pathlib import Path

from lingon.errors import TextTooLong
from lingon.serving.engine.engine import Engine
from lingon.serving.engine.limits import EngineLimits
from lingon.serving.translation.translator import Translator
from lingon.translation.v1 import translation_pb2 as pb
from tests.support.echo_engine import EchoRunner, bundle


async def test_the_event_loop_runs_other_tasks_while_long_texts_are_planned(tmp_path: Path):
    limits = EngineLimits()
    translator = Translator(bundle(tmp_path), Engine(EchoRunner(), limits), limits)
    options = translator.resolve(pb.DecodingOptions(long_text=pb.LONG_TEXT_POLICY_SPLIT))
    marks = " ".join(["a" + "\u0301\u0323" * 350] * 60)  # the time of NFC is quadratic in the length of a run
    plans = asyncio.create_task(translator.plan(pb.TranslateRequest(texts=[marks, "Tom lives. " * 3000]), options))
    passes = 0
    while not plans.done():
        await asyncio.sleep(0)
        passes += 1
    assert passes > 5
    assert isinstance(plans.result()[0], TextTooLong)
    assert len(plans.result()[1].parts) == 3000
    assert unicodedata.is_normalized("NFC", plans.result()[1].parts[0].text)
