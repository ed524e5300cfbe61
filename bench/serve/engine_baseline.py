"""The engine without a server: `python -m lingon.bench.serve.engine_baseline` times single sentences.

It reads JSON lines: first the model and the texts, then beam sizes. The times are those from tokens to tokens.
"""

from __future__ import annotations

import json
import queue
import sys
import time
from pathlib import Path
from typing import Any

from lingon.bench.worker_process import send_errors
from lingon.bundle.store import open_bundle
from lingon.errors import RequestError
from lingon.machine import usable_cores
from lingon.serving.decoding.job import DecodeJob
from lingon.serving.models.loading import LoadOptions, load_translator
from lingon.text import normalise
from lingon.translation.v1 import translation_pb2 as pb


class EngineBaseline:
    """An engine, loaded as the server loads it."""

    def __init__(self, model: Path, precision: str | None, threads: int | None, texts: list[str]) -> None:
        bundle = open_bundle(model)
        tokenizer = bundle.tokenizer()
        self._limits = bundle.manifest.limits
        self._sources = [tuple(tokenizer.encode_source(normalise(text))) for text in texts]
        options = LoadOptions(device="cpu", precision=precision, threads=threads or usable_cores())
        self._translator = load_translator(bundle, options)

    def times(self, beam_size: int) -> list[float]:
        """Milliseconds of each sentence, decoded one after the other."""
        requested = pb.DecodingOptions(beam_size=beam_size, num_hypotheses=1, length_penalty=0.0)
        chosen = self._translator.resolve(requested)
        answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        found = []
        for source in self._sources:
            options = chosen.job_options(self._limits.max_output(len(source)), 0)
            start = time.perf_counter()
            self._translator.engine.submit([DecodeJob(source_ids=source, options=options, on_done=answers.put)])
            outcome = answers.get()
            found.append(1000 * (time.perf_counter() - start))
            if isinstance(outcome, RequestError):
                raise outcome
        return found


def main() -> None:
    """Answer messages until standard input ends."""
    first = json.loads(sys.stdin.readline())
    with send_errors():
        baseline = EngineBaseline(Path(first["model"]), first["precision"], first["threads"], first["texts"])
        print(json.dumps({"model": "loaded"}), flush=True)
        for line in sys.stdin:
            print(json.dumps({"times": baseline.times(json.loads(line)["beam_size"])}), flush=True)


if __name__ == "__main__":
    main()
