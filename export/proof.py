"""The gates of an export, run on the bundle as it will be served: exact precisions, lossy ones, the shortlist."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from export.parity import check_tensors, check_tokens, engine_search
from export.precisions import KINDS
from export.quality import check_quality
from lingon.bundle import Bundle, Precision
from serving.onnx_runner import CPU, OnnxRunner, load_runner
from training.checkpoint import Checkpoint
from training.corpus import Pair

NOT_ON_CUDA = "not run on cuda"
BEAM_SIZE = 4  # of every comparison but greedy's own


@dataclass(slots=True)
class Proof:
    """What is proven of a bundle against the checkpoint that it was made of.

    trial: the bundle, each precision of it on a provider that is here
    pairs: held-out text; tokens are compared on the first `parity_sentences` of it, scores on all
    """

    checkpoint: Checkpoint
    trial: Bundle
    pairs: Sequence[Pair]
    parity_sentences: int
    length_penalty: float
    say: Callable[[str], None]
    _runners: dict[str, OnnxRunner] = field(default_factory=dict)
    _translations: dict[tuple[str, bool], list[str]] = field(default_factory=dict)

    def precision(self, name: str) -> Precision:
        """The record of a precision that passed its gate; raises ParityError where it does not."""
        kind, entry = KINDS[name], self.trial.manifest.precisions[name]
        report: dict[str, Any] = {}
        if not kind.quantised:
            report["tensors"] = self._tensors(name)
        if name == "fp32":
            report |= self._tokens()
        elif entry.provider != kind.provider:
            return Precision(kind.provider, NOT_ON_CUDA, entry.weights, {**report, "checked_on": entry.provider})
        else:
            report["quality"] = self._quality(name, shortlist=False)
        return replace(entry, gate="passed", report=report)

    def shortlist(self) -> dict[str, Any]:
        """Scores of every precision for the CPU with the shortlist; raises ParityError where they are too low."""
        served = [name for name, entry in self.trial.manifest.precisions.items() if KINDS[name].provider == CPU]
        return {name: self._quality(name, shortlist=True) for name in served}

    def _tensors(self, name: str) -> dict[str, Any]:
        report = check_tensors(self.checkpoint.model, self._runner(name), np.dtype(KINDS[name].dtype).name)
        self.say(f"{name}: {report.shapes} shapes compared on {self.trial.manifest.precisions[name].provider}")
        return asdict(report)

    def _tokens(self) -> dict[str, Any]:
        texts = [pair.source for pair in self.pairs[: self.parity_sentences]]
        report: dict[str, Any] = {"sentences": len(texts)}
        for beam_size, penalty in ((1, 0.0), (BEAM_SIZE, self.length_penalty)):
            model, runner = self.checkpoint.model, self._runner("fp32")
            tokens = check_tokens(model, runner, self.checkpoint.tokenizer, texts, beam_size, penalty)
            report["greedy" if beam_size == 1 else f"beam {beam_size}"] = asdict(tokens)
            self.say(f"fp32: beam size {beam_size}: {tokens.identical} of {tokens.sentences} sentences identical")
        return report

    def _quality(self, name: str, *, shortlist: bool) -> dict[str, Any]:
        what = f"{name} with shortlist" if shortlist else name
        exact = self._translated("fp32", shortlist=False)
        report = check_quality(
            what, self._translated(name, shortlist=shortlist), exact, [pair.target for pair in self.pairs]
        )
        self.say(f"{what}: BLEU {report['bleu']:.2f}, fp32 {report['fp32_bleu']:.2f}, {report['sentences']} sentences")
        return report

    def _translated(self, name: str, *, shortlist: bool) -> list[str]:
        if (name, shortlist) not in self._translations:
            tokenizer = self.checkpoint.tokenizer
            sources = [tuple(tokenizer.encode_source(pair.source)) for pair in self.pairs]
            found = engine_search(self._runner(name), sources, BEAM_SIZE, self.length_penalty, shortlist=shortlist)
            self._translations[name, shortlist] = [tokenizer.decode(best.tokens) for best, *_ in found]
        return self._translations[name, shortlist]

    def _runner(self, name: str) -> OnnxRunner:
        if name not in self._runners:
            self._runners[name] = load_runner(self.trial, name, threads=0)
        return self._runners[name]
