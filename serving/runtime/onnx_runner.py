"""The graphs of a bundle on ONNX Runtime.

Results do not depend on the other sentences of a batch or on padding, to the last bit. Every product with a weight is
a packed Gemm with independent rows, self-attention reads only up to the length of each row, and the width of memories
is a multiple of 16.
"""

from __future__ import annotations

import functools
import math
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnxruntime as ort

from lingon.alignment import AttentionKind
from lingon.bundle import names
from lingon.bundle.manifest import Limits, Manifest
from lingon.bundle.store import Bundle, FileContent
from lingon.machine import usable_cores
from lingon.serving.runtime.card import register_card_operators
from lingon.serving.runtime.card_buffers import CardGraphs
from lingon.serving.runtime.device import CPU, CUDA, FP16_NATIVE, NATIVE, NATIVES
from lingon.serving.runtime.device_buffers import Device, DeviceBuffers, GraphRecorder, StateBindings, StateGraphs
from lingon.serving.runtime.host_buffers import (
    OnnxBuffers,
    ShortlistBuffers,
    ShortlistGraphs,
    StateLayout,
    has_output,
)
from lingon.serving.runtime.runner import (
    AttentionChoice,
    AttentionMatrix,
    AttentionSize,
    BatchShape,
    Buffers,
    Encoded,
    Scored,
    matrix_shape,
)
from lingon.serving.runtime.sessions import (
    ActiveThreads,
    HelpedSession,
    LateSession,
    SessionPair,
    SharedWeights,
    create_session,
    raises_memory_error,
)
from lingon.serving.runtime.shortlist import Shortlist
from lingon.serving.threads import run_at_low_priority
from lingon.text import BOS, EOS, PAD

Register = Callable[[ort.SessionOptions], None]
"""Adds operators to the options of a session."""

ATTENTION: dict[AttentionKind, str] = {
    "encoder": names.ENCODER_ATTENTION,
    "decoder": names.DECODER_ATTENTION,
    "cross": names.CROSS_ATTENTION,
}
"""The outputs of the scorer, (batch, layers, heads, rows, columns) each."""


def attention_sizes(scorer: ort.InferenceSession) -> dict[AttentionKind, AttentionSize]:
    """Return layers and heads of each kind that a scorer outputs. lingon.serving.runtime.validation checks them."""
    dims = {each.name: each.shape for each in scorer.get_outputs()}
    return {kind: AttentionSize(*dims[name][1:3]) for kind, name in ATTENTION.items() if name in dims}


def choose_matrices(
    choice: AttentionChoice, weights: Mapping[AttentionKind, np.ndarray], source: int, target: int
) -> tuple[AttentionMatrix, ...]:
    """Return copies of the matrices of one pair; source, target: its tokens, see `matrix_shape`.

    weights: (layers, heads, rows, columns) of each chosen kind, padded
    """
    found: list[AttentionMatrix] = []
    for each in choice:
        rows, columns = matrix_shape(each.kind, source, target)
        for layer in each.layers:
            of_layer = weights[each.kind][layer, list(each.heads), :rows, :columns]
            if each.mean:
                found.append(AttentionMatrix(each.kind, layer, None, of_layer.mean(axis=0)))
            else:
                one_by_one = zip(each.heads, of_layer, strict=True)
                found += [AttentionMatrix(each.kind, layer, head, one.copy()) for head, one in one_by_one]
    return tuple(found)


REQUIRED_GRAPHS = names.ENCODER, names.DECODER, names.SCORER
SHORTLIST_GRAPHS = names.OUTPUT_ROWS, names.DECODER_SHORTLIST
STATE_GRAPHS = names.PLACE, names.COPY_MEMORY, names.COPY_ROWS, names.GREEDY  # in the order of StateGraphs
CARD_GRAPHS = names.GREEDY_STEPS, names.BEAM_STEPS
RECORDED_GRAPHS = names.DECODER, names.GREEDY, names.COPY_ROWS, *CARD_GRAPHS

MAX_LOGITS = 32 << 20  # bytes of one run of the scorer, with its attention, unless one pair has more
KEPT_LOGITS = 4 << 20  # bytes; the memory of a run of the scorer with more is freed when no run follows
RUN_LOGITS = 3  # ratio of the memory of a run of the scorer to the bytes of its logits; no other graph takes more
SMALL = 16 << 20  # bytes; weights of a step of this size stay in the shared cache, so that each core reads all of them
SPREAD_OF_SMALL, SPREAD = 5, 16  # sentences, see Runner.spread
INT8 = "tensor(int8)"  # the type of quantised weights
TABLES = "pieces", "target_pieces"  # names of the embeddings of target pieces in graphs
COMPUTING = ActiveThreads()
"""The threads that run graphs of any model of this process."""


def load_runner(
    bundle: Bundle,
    precision: str,
    threads: int,
    shared_threads: int | None = None,
    *,
    low_priority: bool = False,
    one_thread: bool = False,
    cuda_graphs: bool = False,
    on_demand: bool = False,
    register: Register | None = None,
) -> OnnxRunner:
    """Load the graphs of one precision on their provider and check all checksums.

    Weights are mapped: of a table only the rows that texts use take memory, which the system may take back; of a large
    one only the latest of them. Checksums are verified while the sessions are made. Nothing runs before both are done.

    threads: cores that one run may use
    shared_threads: cores that each run may use while several threads compute; default: threads
    low_priority: whether to load at low priority, because other models are served meanwhile
    one_thread: whether to verify the weights before the sessions are made, and not meanwhile
    cuda_graphs: whether decoder steps on CUDA are recorded, see lingon.serving.runtime.device_buffers
    on_demand: whether the scorer is made on its first use
    register: adds the operators of the graphs to the options of a session; default: those of the precision
    """
    read = functools.partial(bundle.graphs, precision, *_graph_names(bundle, precision), verify=False)
    graphs, weights = run_at_low_priority(read, low_priority)
    provider = bundle.manifest.precisions[precision].provider
    shared_threads = threads if shared_threads is None else shared_threads
    loader = _Loader(
        graphs,
        SharedWeights(weights),
        provider,
        bundle.folder / precision,
        threads,
        shared_threads,
        low_priority,
        cuda_graphs,
        native=precision in NATIVES,
        register=register or (register_card_operators if precision == FP16_NATIVE else None),
    )
    with _verified_meanwhile(bundle, weights, low_priority=low_priority, first=one_thread):
        encoder, decoder = loader.pair(names.ENCODER), loader.pair(names.DECODER)
        shortlist_graphs = loader.shortlist_graphs(bundle, packed=precision == NATIVE)
        beam = loader.on_cpu().session(names.BEAM, 1) if names.BEAM in graphs else None
        state_graphs = loader.state_graphs(bundle.manifest, beam)
        # Beside other models it has one thread, because a pool of threads would compute its checks at full priority.
        helped_scorer = on_demand and low_priority and loader.native
        scorer = LateSession(functools.partial(loader.session, names.SCORER, 1 if helped_scorer else threads))
        if not on_demand:
            scorer.get()
    return OnnxRunner(
        bundle.manifest,
        encoder,
        decoder,
        scorer,
        shortlist_graphs,
        state_graphs,
        Device(provider),
        sum(map(len, (*graphs.values(), *weights.values()))),
        _freeing(provider),
        recorder=GraphRecorder(enabled=cuda_graphs and provider == CUDA),
        beam=beam,
        helped_scorer=helped_scorer,
        any_width=precision in (*NATIVES, FP16_NATIVE),
        step_bytes=loader.step_bytes(),
        release_pages=loader.weights.release_pages,
    )


@contextmanager
def _verified_meanwhile(
    bundle: Bundle, weights: Mapping[str, FileContent], *, low_priority: bool, first: bool
) -> Iterator[None]:
    """Verify the checksums of mapped weights on another thread during the block, or before it if `first`."""
    with ThreadPoolExecutor(1) as thread:
        verify = functools.partial(bundle.verify_weights, weights)
        verifying = thread.submit(run_at_low_priority, verify, low_priority)
        if first:
            verifying.result()
        try:
            yield
        finally:
            verifying.result()  # an altered file may also be the reason why a session cannot be made


@dataclass(frozen=True, slots=True)
class _Loader:
    """A maker of the sessions of one precision's graphs, which are in `folder`; see `load_runner`."""

    graphs: dict[str, bytes]
    weights: SharedWeights
    provider: str
    folder: Path
    threads: int
    shared_threads: int
    low_priority: bool
    cuda_graphs: bool
    native: bool  # whether the graphs have native operators for the CPU
    register: Register | None

    def session(self, name: str, count: int) -> ort.InferenceSession:
        """Return a session of a graph for runs on `count` cores."""
        recorded = self.cuda_graphs and name in RECORDED_GRAPHS
        create = functools.partial(
            create_session,
            self.graphs[name],
            self.weights,
            self.provider,
            count,
            self.folder / name,
            recorded=recorded,
            few_shapes=name == names.DECODER,  # rows, widths and beams; with a shortlist its pieces too
            register=self.register,
        )
        # A session of several threads starts a thread pool, which would keep the low priority.
        session = run_at_low_priority(create, self.low_priority and count == 1)
        self.weights.release_pages()  # the session has most weights in another order
        return session

    def pair(self, name: str) -> SessionPair[ort.InferenceSession]:
        """Return the sessions of a graph that several threads run."""
        if self.native:
            alone = self.shared_threads == self.threads  # helpers then replace threads of the session
            session = self.session(name, 1 if alone else self.shared_threads)
            return HelpedSession(session, COMPUTING, min(self.threads, usable_cores()) - 1)
        all_cores = self.session(name, self.threads)
        shared = self.shared_threads == self.threads
        shared_cores = all_cores if shared else self.session(name, self.shared_threads)
        return SessionPair(all_cores, shared_cores, COMPUTING)

    def step_bytes(self) -> int:
        """Return about the bytes of weights that a step of the decoder reads, with a shortlist if there is one.

        Of the table of embeddings it reads few rows, unless that is the output layer too, in floats.
        """
        listed = names.DECODER_SHORTLIST in self.graphs
        graph = self.graphs[names.DECODER_SHORTLIST if listed else names.DECODER]
        tensors = self.weights.tensors(graph)
        few_rows = listed or any(each.data_type() == INT8 for each in tensors.values())
        read = [each for name, each in tensors.items() if not (few_rows and name in TABLES)]
        return sum(each.tensor_size_in_bytes() for each in read)

    def on_cpu(self) -> _Loader:
        """Return a maker of sessions on the CPU."""
        return self if self.native else replace(self, provider=CPU, register=None)

    def state_graphs(self, manifest: Manifest, beam: ort.InferenceSession | None) -> StateGraphs | None:
        """Return the additional graphs for states on a device, or None; beam: the graph of beam search."""
        if names.PLACE not in self.graphs:
            return None
        place, copy_memory, copy_rows, greedy = (self.session(name, self.threads) for name in STATE_GRAPHS)
        if names.GREEDY_STEPS not in self.graphs:
            return StateGraphs(manifest, place, copy_memory, copy_rows, greedy)
        assert beam is not None
        several_greedy, several_beams = (self.session(name, self.threads) for name in CARD_GRAPHS)
        return CardGraphs(manifest, place, copy_memory, copy_rows, greedy, several_greedy, several_beams, beam)

    def shortlist_graphs(self, bundle: Bundle, *, packed: bool) -> ShortlistGraphs | None:
        """Return the additional graphs of a bundle with a shortlist, or else None; packed: see ShortlistGraphs."""
        if names.OUTPUT_ROWS not in self.graphs:
            return None
        rows = self.session(names.OUTPUT_ROWS, 1)
        shortlist = run_at_low_priority(functools.partial(_shortlist, bundle), self.low_priority)
        decoder = self.pair(names.DECODER_SHORTLIST)
        return ShortlistGraphs(shortlist, rows, decoder, bundle.manifest.target_vocab, packed=packed)


class _Pairs(NamedTuple):
    """Padded pairs to score; see Runner.score."""

    source_ids: np.ndarray
    source_lengths: np.ndarray
    target_ids: np.ndarray
    target_lengths: np.ndarray


@dataclass(slots=True)
class OnnxRunner:
    """See lingon.serving.runtime.runner.Runner.

    state_graphs: only for a provider with its own memory; states are then on `device`
    """

    manifest: Manifest
    encoder: SessionPair[ort.InferenceSession]
    decoder: SessionPair[ort.InferenceSession]
    late_scorer: LateSession
    shortlist_graphs: ShortlistGraphs | None = None
    state_graphs: StateGraphs | None = None
    device: Device = field(default_factory=lambda: Device(CPU))
    graph_bytes: int = 0  # bytes of the files of graphs and weights
    freeing: ort.RunOptions | None = None
    keeps_memory: bool = False  # whether a large run of the scorer keeps memory
    recorder: GraphRecorder = field(default_factory=GraphRecorder)
    beam: ort.InferenceSession | None = None  # the graph of beam search, in main memory
    helped_scorer: bool = False  # whether the scorer has one thread, and helpers as the encoder
    step_bytes: int = 0  # see _Loader
    any_width: bool = False  # True with our operators, most of which read each sentence up to its length
    release_pages: Callable[[], None] = lambda: None  # see SharedWeights
    layouts: dict[ort.InferenceSession, StateLayout] = field(default_factory=dict)  # by decoder
    unused: list[StateBindings] = field(default_factory=list)  # without buffers, if graphs are recorded
    encoder_outputs: list[str] = field(init=False)  # the states that a sentence begins with

    def __post_init__(self) -> None:
        self.encoder_outputs = [state.name for state in self.manifest.states if state.kind != "cache"]

    @property
    def scorer(self) -> ort.InferenceSession:
        """The session of the scorer, which a load on demand makes last."""
        return self.late_scorer.get()

    @property
    def limits(self) -> Limits:
        return self.manifest.limits

    def capacity(self, width: int) -> int:
        return self.manifest.capacity(width)

    @property
    def shortlist(self) -> Shortlist | None:
        return self.shortlist_graphs.shortlist if self.shortlist_graphs else None

    @property
    def steps_attend(self) -> bool:
        """See Runner. It is of all graphs of a decoder, and of beam search, that the bundle has."""
        if self.state_graphs is not None:
            return False
        decoders = [self.decoder, *([self.shortlist_graphs.decoder] if self.shortlist_graphs is not None else [])]
        says_rows = self.beam is None or has_output(self.beam, names.ENDED_TABLE)
        return says_rows and all(has_output(each.all_cores, names.STEP_ATTENTION) for each in decoders)

    @property
    def spread(self) -> int:
        """See Runner. Measured on two cores with greedy search. With a beam of 4 it is about 4 for a small model."""
        return SPREAD_OF_SMALL if self.step_bytes < SMALL else SPREAD

    @property
    def run_bytes(self) -> int:
        """About the most bytes of memory that one run takes, which is a run of the scorer."""
        source, target = self.limits.max_source_tokens, self.limits.max_target_tokens
        return RUN_LOGITS * max(MAX_LOGITS, self._pair_bytes(source, target, self.attention))

    @property
    def attention(self) -> Mapping[AttentionKind, AttentionSize]:
        return attention_sizes(self.scorer)

    @raises_memory_error
    def encode(self, source_ids: np.ndarray, source_lengths: np.ndarray) -> Encoded:
        outputs = self.encoder_outputs
        inputs = {names.SOURCE_IDS: source_ids, names.SOURCE_LENGTHS: source_lengths}
        with self.encoder as encoder:
            if self.state_graphs is not None:
                return self.state_graphs.encode(encoder, source_ids, source_lengths, self.device)
            results = encoder.run(outputs, inputs)
        return {**dict(zip(outputs, results, strict=True)), names.MEMORY_LENGTHS: source_lengths}

    @raises_memory_error
    def open(self, shape: BatchShape, *, shortlist: bool = False) -> Buffers:
        if self.state_graphs is not None:
            assert not shortlist
            return self._open_on_device(self.state_graphs, shape)
        if shortlist:
            assert self.shortlist_graphs is not None
            return ShortlistBuffers(
                self._layout(self.shortlist_graphs.decoder), self.shortlist_graphs, shape, self.beam
            )
        return OnnxBuffers(self._layout(self.decoder), self.decoder, shape, self.beam)

    def _layout(self, decoder: SessionPair[ort.InferenceSession]) -> StateLayout:
        """Return the layout of a decoder, which is read from its graph on first use."""
        graph = decoder.all_cores
        if graph not in self.layouts:
            self.layouts[graph] = StateLayout.of(self.manifest, graph)
        return self.layouts[graph]

    def _open_on_device(self, graphs: StateGraphs, shape: BatchShape) -> DeviceBuffers:
        """Allocate states on the device, or reuse those of buffers without a batch, which have recorded graphs."""
        own = [each for each in self.unused if each.thread is threading.current_thread()]
        bindings = next((each for each in own if each.shape == shape), None)
        # Recordings of an ended thread cannot be replayed.
        self.unused[:] = [each for each in self.unused if each is not bindings and each.thread.is_alive()]
        buffers = graphs.open(bindings or self._allocate(graphs, shape))
        if self.recorder.enabled:
            weakref.finalize(buffers, self.unused.append, buffers.bindings)
        return buffers

    def _allocate(self, graphs: StateGraphs, shape: BatchShape) -> StateBindings:
        make = functools.partial(graphs.allocate, self.decoder.all_cores, shape, self.device)
        try:
            return raises_memory_error(make)(self.recorder)
        except MemoryError:
            if not self.unused:
                raise
            self.unused.clear()
            return make(self.recorder)

    @raises_memory_error
    def score(
        self,
        source_ids: np.ndarray,
        source_lengths: np.ndarray,
        target_ids: np.ndarray,
        target_lengths: np.ndarray,
        choices: Sequence[AttentionChoice] = (),
    ) -> list[Scored]:
        """Run the scorer, several times if the outputs of all pairs would be larger than MAX_LOGITS."""
        pairs = _Pairs(source_ids, source_lengths, target_ids, target_lengths)
        kinds = {each.kind for choice in choices for each in choice}
        pair_bytes = self._pair_bytes(source_ids.shape[1], target_ids.shape[1] + 1, kinds)
        rows = max(MAX_LOGITS // pair_bytes, 1)
        scores: list[Scored] = []
        for first in range(0, len(source_ids), rows):
            part = slice(first, first + rows)
            batch = _Pairs(*(array[part] for array in pairs))
            scores += self._score(batch, choices[part] or [()] * len(batch.source_ids))
            self.keeps_memory = self.keeps_memory or len(batch.source_ids) * pair_bytes > KEPT_LOGITS
        return scores

    @raises_memory_error
    def free_memory(self) -> None:
        """Free the memory of large runs of the scorer by another run, because ONNX Runtime has no other way.

        This is not done after every run, because the system takes as long to fill new pages with zeros as the scorer
        takes to compute.
        """
        if self.keeps_memory:
            self.keeps_memory = False
            ids, lengths = np.array([[EOS, EOS]]), np.array([2])
            self._run_scorer(_Pairs(ids, lengths, ids, lengths), options=self.freeing)

    def _pair_bytes(self, source: int, target: int, kinds: Iterable[AttentionKind]) -> int:
        """Return the bytes of the logits of one pair of so many tokens, and of its attention of these kinds."""
        values = target * self.manifest.target_vocab
        for kind in kinds:
            size = self.attention[kind]
            values += size.layers * size.heads * math.prod(matrix_shape(kind, source, target))
        return 4 * values

    def _score(self, pairs: _Pairs, choices: Sequence[AttentionChoice]) -> list[Scored]:
        kinds = sorted({each.kind for choice in choices for each in choice})
        found = self._run_scorer(pairs, kinds)
        log_probs, alignment = found[names.TOKEN_LOG_PROBS], self.manifest.alignment
        mean = np.zeros((*log_probs.shape, 0), np.float32)
        if alignment.heads:
            mean = found[names.CROSS_ATTENTION][:, alignment.layer, list(alignment.heads)].mean(axis=1)
        weights = {kind: found[ATTENTION[kind]] for kind in kinds}
        sizes = zip(pairs.source_lengths.tolist(), (pairs.target_lengths + 1).tolist(), choices, strict=True)
        return [
            Scored(
                log_probs[row, :target].copy(),
                mean[row, :target, :source].copy(),
                choose_matrices(choice, {kind: each[row] for kind, each in weights.items()}, source, target),
            )
            for row, (source, target, choice) in enumerate(sizes)
        ]

    def _run_scorer(
        self, pairs: _Pairs, kinds: Sequence[AttentionKind] = (), options: ort.RunOptions | None = None
    ) -> dict[str, np.ndarray]:
        """Return outputs by name: log-probabilities of the target, attention for alignments and of these kinds."""
        begin = np.full((len(pairs.target_ids), 1), BOS)
        inputs = {
            names.SOURCE_IDS: pairs.source_ids,
            names.SOURCE_LENGTHS: pairs.source_lengths,
            names.TARGET_IDS: np.concatenate([begin, pairs.target_ids], axis=1),
            names.LABELS: _labels(pairs.target_ids, pairs.target_lengths),
        }
        outputs = sorted({*self.manifest.scorer_outputs, *(ATTENTION[kind] for kind in kinds)})
        with self.encoder if self.helped_scorer else nullcontext():
            return dict(zip(outputs, self.scorer.run(outputs, inputs, options), strict=True))


def _graph_names(bundle: Bundle, precision: str) -> list[str]:
    """Return the graphs of a precision. A bundle has all optional graphs of a group or none."""
    found = list(REQUIRED_GRAPHS)
    for group in (SHORTLIST_GRAPHS, STATE_GRAPHS, CARD_GRAPHS, (names.BEAM,)):
        if f"{precision}/{group[0]}" in bundle.manifest.checksums:
            found += group
    return found


def _freeing(provider: str) -> ort.RunOptions:
    """Return the options of a run after which the arena frees its unused memory."""
    options = ort.RunOptions()
    options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0" if provider == CPU else "gpu:0")
    return options


def _shortlist(bundle: Bundle) -> Shortlist:
    manifest = bundle.manifest
    content = bundle.read(names.SHORTLIST)
    return Shortlist.from_bytes(content, bundle.folder / names.SHORTLIST, manifest.source_vocab, manifest.target_vocab)


def _labels(target_ids: np.ndarray, target_lengths: np.ndarray) -> np.ndarray:
    """Return the next token of each token of BOS + target_ids, (batch, target_length + 1): the targets, then EOS."""
    labels = np.concatenate([target_ids, np.full((len(target_ids), 1), PAD)], axis=1)
    labels[np.arange(len(labels)), target_lengths] = EOS
    return labels
