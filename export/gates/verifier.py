"""All gates of an export, on the graphs as a server loads them: tensors and tokens, or the quality of lossy parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from lingon.bundle import PASSED, Bundle, Precision
from lingon.export.gates.decode import engine_search
from lingon.export.gates.quality import check_quality
from lingon.export.gates.tensors import check_tensors
from lingon.export.gates.tokens import check_tokens
from lingon.export.graphs.precisions import PRECISION_KINDS
from lingon.export.settings import ExportSettings
from lingon.serving.runtime.device import CPU
from lingon.serving.runtime.onnx_runner import OnnxRunner
from lingon.training.checkpoint import Checkpoint
from lingon.training.data.corpus import Pair

NOT_ON_CUDA = "not run on cuda"
BEAM_SIZE = 4  # of the token gate, if the default of the bundle is greedy search


@dataclass(slots=True)
class BundleVerifier:
    """Checks a bundle against its checkpoint.

    trial: the unpublished bundle, with each precision on a provider that this machine has
    runners: its graphs, by precision
    pairs: held-out text
    settings: the number of sentences for each gate, and the default search
    """

    checkpoint: Checkpoint
    trial: Bundle
    runners: Mapping[str, OnnxRunner]
    pairs: Sequence[Pair]
    settings: ExportSettings
    log: Callable[[str], None]
    _translations: dict[tuple[str, bool], list[str]] = field(default_factory=dict)

    def verify_precision(self, name: str) -> Precision:
        """Run the gate of a precision and return its entry of the manifest; raises ParityError if it fails."""
        kind, entry = PRECISION_KINDS[name], self.trial.manifest.precisions[name]
        report: dict[str, Any] = {}
        if not kind.quantised:
            report["tensors"] = self._tensors(name)
        if name == "fp32":
            report |= self._tokens()
        elif entry.provider != kind.provider:
            return Precision(kind.provider, NOT_ON_CUDA, entry.weights, {**report, "checked_on": entry.provider})
        else:
            report["quality"] = self._quality(name, shortlist=False)
        return replace(entry, gate=PASSED, report=report)

    def verify_shortlist(self) -> dict[str, Any]:
        """Return the scores of every CPU precision with the shortlist; raises ParityError if they are too low."""
        served = [name for name in self.trial.manifest.precisions if PRECISION_KINDS[name].provider == CPU]
        return {name: self._quality(name, shortlist=True) for name in served}

    def _tensors(self, name: str) -> dict[str, Any]:
        report = check_tensors(self.checkpoint.model, self.runners[name], np.dtype(PRECISION_KINDS[name].dtype).name)
        self.log(f"{name}: {report.shapes} shapes compared on {self.trial.manifest.precisions[name].provider}")
        return asdict(report)

    def _tokens(self) -> dict[str, Any]:
        texts = [pair.source for pair in self.pairs[: self.settings.parity_sentences]]
        report: dict[str, Any] = {"sentences": len(texts)}
        beam_size = self.settings.beam_size
        wide = beam_size if beam_size > 1 else min(BEAM_SIZE, self.settings.max_beam_size)
        for beam_size, penalty in ((1, 0.0), (wide, self.settings.length_penalty)):
            model, runner = self.checkpoint.model, self.runners["fp32"]
            tokens = check_tokens(model, runner, self.checkpoint.tokenizer, texts, beam_size, penalty)
            report["greedy" if beam_size == 1 else f"beam {beam_size}"] = asdict(tokens)
            self.log(f"fp32: beam size {beam_size}: {tokens}")
        return report

    def _quality(self, name: str, *, shortlist: bool) -> dict[str, Any]:
        label = f"{name} with shortlist" if shortlist else name
        exact = self._translated("fp32", shortlist=False)
        found = self._translated(name, shortlist=shortlist)
        report = check_quality(label, found, exact, [pair.target for pair in self.pairs[: len(exact)]])
        self.log(f"{label}: BLEU {report['bleu']:.2f}, fp32 {report['fp32_bleu']:.2f}, {report['sentences']} sentences")
        return report

    def _translated(self, name: str, *, shortlist: bool) -> list[str]:
        """Return translations of the held-out sources, by the default search of the bundle; computed once."""
        if (name, shortlist) not in self._translations:
            tokenizer, settings = self.checkpoint.tokenizer, self.settings
            sources = [tuple(tokenizer.encode_source(pair.source)) for pair in self.pairs[: settings.gate_sentences]]
            found = engine_search(
                self.runners[name], sources, settings.beam_size, settings.length_penalty, shortlist=shortlist
            )
            self._translations[name, shortlist] = [tokenizer.decode(best.tokens) for best, *_ in found]
        return self._translations[name, shortlist]
