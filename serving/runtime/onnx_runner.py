"""The graphs of a bundle on ONNX Runtime: their sessions, and what goes in and out.

Results do not depend on batch mates or padding, to the last bit, because every product with a weight is a packed
Gemm whose rows are independent, self-attention reads each row's own length, and memories are a multiple of 16 wide.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
import onnxruntime as ort

from lingon import bundle as names
from lingon.bundle import Bundle, Limits, Manifest
from lingon.serving.runtime.device import CPU
from lingon.serving.runtime.onnx_shortlist import ShortlistBuffers, ShortlistGraphs
from lingon.serving.runtime.onnx_state import OnnxBuffers
from lingon.serving.runtime.runner import Encoded, Scored
from lingon.serving.runtime.sessions import ActiveThreads, SessionPair, _session
from lingon.serving.runtime.shortlist import Shortlist
from lingon.serving.system.threads import run_at_low_priority
from lingon.text import BOS, EOS, PAD


def load_runner(
    bundle: Bundle, precision: str, threads: int, apart: int | None = None, *, beside: bool = False
) -> OnnxRunner:
    """The graphs of one precision, on the provider that they are built for, every byte checked.

    threads: cores that one run may use; apart: where several threads compute at a time, cores that each may use
    beside: whether others are served meanwhile, who come first
    """
    provider = bundle.manifest.precisions[precision].provider
    wanted = [names.ENCODER, names.DECODER, names.SCORER]
    if f"{precision}/{names.OUTPUT_ROWS}" in bundle.manifest.checksums:
        wanted += [names.OUTPUT_ROWS, names.DECODER_SHORTLIST]
    graphs, weights = run_at_low_priority(functools.partial(bundle.graphs, precision, *wanted), beside)
    company = ActiveThreads()

    def session(name: str, count: int) -> ort.InferenceSession:
        make = functools.partial(_session, graphs[name], weights, provider, count, bundle.folder / precision / name)
        return run_at_low_priority(make, beside and count == 1)  # a pool would keep a low priority

    def shared(name: str) -> SessionPair[ort.InferenceSession]:
        alone = session(name, threads)
        return SessionPair(alone, alone if apart in (None, threads) else session(name, apart), company)

    encoder, decoder, scorer = shared(names.ENCODER), shared(names.DECODER), session(names.SCORER, threads)
    listed = None
    if names.OUTPUT_ROWS in graphs:
        rows = session(names.OUTPUT_ROWS, 1)
        listed = ShortlistGraphs(_shortlist(bundle), rows, shared(names.DECODER_SHORTLIST))
    size = sum(map(len, (*graphs.values(), *weights.values())))
    return OnnxRunner(bundle.manifest, encoder, decoder, scorer, listed, size)


@dataclass(slots=True)
class OnnxRunner:
    """See lingon.serving.runtime.runner.Runner."""

    manifest: Manifest
    encoder: SessionPair[ort.InferenceSession]
    decoder: SessionPair[ort.InferenceSession]
    scorer: ort.InferenceSession
    listed: ShortlistGraphs | None = None
    graph_bytes: int = 0  # of the files that it was loaded from

    @property
    def limits(self) -> Limits:
        """The model's bounds."""
        return self.manifest.limits

    @property
    def shortlist(self) -> Shortlist | None:
        """Which pieces a source calls for."""
        return self.listed.shortlist if self.listed else None

    def encode(self, source_ids: np.ndarray, source_lengths: np.ndarray) -> Encoded:
        """Run the encoder."""
        outputs = [state.name for state in self.manifest.states if state.kind != "cache"]
        feed = {names.SOURCE_IDS: source_ids, names.SOURCE_LENGTHS: source_lengths}
        with self.encoder.acquire() as encoder:
            found = dict(zip(outputs, encoder.run(outputs, feed), strict=True))
        return {**found, names.MEMORY_LENGTHS: source_lengths}

    def open(
        self, sentences: int, beam_size: int, width: int, capacity: int, *, shortlist: bool = False
    ) -> OnnxBuffers:
        """Room for a running batch."""
        sizes = (sentences, beam_size, width, capacity)
        in_place = self.decoder.alone.get_providers()[0] == CPU
        if shortlist:
            assert self.listed is not None
            return ShortlistBuffers(self.manifest, self.listed, *sizes, in_place=in_place)
        return OnnxBuffers(self.manifest, self.decoder, *sizes, in_place=in_place)

    def score(
        self, source_ids: np.ndarray, source_lengths: np.ndarray, target_ids: np.ndarray, target_lengths: np.ndarray
    ) -> list[Scored]:
        """Run the scorer."""
        begin = np.full((len(target_ids), 1), BOS)
        feed = {
            names.SOURCE_IDS: source_ids,
            names.SOURCE_LENGTHS: source_lengths,
            names.TARGET_IDS: np.concatenate([begin, target_ids], axis=1),
            names.LABELS: _labels(target_ids, target_lengths),
        }
        log_probs, attention = self.scorer.run([names.TOKEN_LOG_PROBS, names.CROSS_ATTENTION], feed)
        alignment = self.manifest.alignment
        mean = attention[:, alignment.layer, list(alignment.heads)].mean(axis=1)
        sizes = zip(source_lengths.tolist(), (target_lengths + 1).tolist(), strict=True)
        return [
            Scored(log_probs[row, :target].copy(), mean[row, :target, :source].copy())
            for row, (source, target) in enumerate(sizes)
        ]


def _shortlist(bundle: Bundle) -> Shortlist:
    manifest = bundle.manifest
    content = bundle.read(names.SHORTLIST)
    return Shortlist.from_bytes(content, bundle.folder / names.SHORTLIST, manifest.source_vocab, manifest.target_vocab)


def _labels(target_ids: np.ndarray, target_lengths: np.ndarray) -> np.ndarray:
    """The tokens after each of BOS + target_ids: the targets, then EOS."""
    labels = np.concatenate([target_ids, np.full((len(target_ids), 1), PAD)], axis=1)
    labels[np.arange(len(labels)), target_lengths] = EOS
    return labels
