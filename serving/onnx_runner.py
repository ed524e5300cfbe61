"""The graphs of a bundle on ONNX Runtime: sessions, buffers that are bound once, and what moves between rows.

Results do not depend on batch mates or padding, to the last bit, because every product with a weight is a packed
Gemm whose rows are independent, self-attention reads each row's own length, and memories are a multiple of 16 wide.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnxruntime as ort

from lingon import bundle as names
from lingon.bundle import Bundle, Limits, Manifest, State
from lingon.errors import BundleError, DeviceError
from lingon.text import BOS, EOS, PAD
from serving import cuda
from serving.job import Scored
from serving.runner import Encoded, Step

CPU, CUDA = "CPUExecutionProvider", cuda.PROVIDER
_TYPES = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(int64)": np.int64}


def load_runner(bundle: Bundle, precision: str, threads: int) -> OnnxRunner:
    """The graphs of one precision, on the provider that they are built for, every byte checked.

    threads: cores that one run may use
    """
    provider = bundle.manifest.precisions[precision].provider
    files = bundle.graphs(precision, names.ENCODER, names.DECODER, names.SCORER)
    weights = files.pop(names.WEIGHTS)
    sessions = {
        name: _session(graph, weights, provider, threads, bundle.folder / precision / name)
        for name, graph in files.items()
    }
    return OnnxRunner(bundle.manifest, sessions[names.ENCODER], sessions[names.DECODER], sessions[names.SCORER])


@dataclass(slots=True)
class OnnxRunner:
    """See serving.runner.Runner."""

    manifest: Manifest
    encoder: ort.InferenceSession
    decoder: ort.InferenceSession
    scorer: ort.InferenceSession

    @property
    def limits(self) -> Limits:
        """The model's bounds."""
        return self.manifest.limits

    def encode(self, source_ids: np.ndarray, source_lengths: np.ndarray) -> Encoded:
        """Run the encoder."""
        outputs = [state.name for state in self.manifest.states if state.kind != "cache"]
        feed = {names.SOURCE_IDS: source_ids, names.SOURCE_LENGTHS: source_lengths}
        found = dict(zip(outputs, self.encoder.run(outputs, feed), strict=True))
        return {**found, names.MEMORY_LENGTHS: source_lengths}

    def open(self, sentences: int, beam_size: int, width: int, capacity: int) -> OnnxBuffers:
        """Room for a running batch."""
        return OnnxBuffers(self.manifest, self.decoder, sentences, beam_size, width, capacity)

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


class OnnxBuffers:
    """See serving.runner.Buffers. All states lie in NumPy arrays.

    On the CPU the graph reads and grows them in place: a binding is made once for every number of sentences, as the
    first n slots are the beginning of each array. On CUDA every step carries them to the card and back, which is
    right but slow: states that stay on the card are still to come.
    """

    def __init__(
        self,
        manifest: Manifest,
        session: ort.InferenceSession,
        sentences: int,
        beam_size: int,
        width: int,
        capacity: int,
    ) -> None:
        self._session, self._beam_size = session, beam_size
        self.in_place = session.get_providers()[0] == CPU
        self._memory = manifest.states_of("memory")
        self._recurrent = manifest.states_of("recurrent")
        self._caches = manifest.states_of("cache")
        rows, sizes = sentences * beam_size, {"source_length": width, "capacity": capacity}
        types = {value.name: _TYPES[value.type] for value in (*session.get_inputs(), *session.get_outputs())}
        self._arrays = {
            **{each.name: np.zeros((sentences, *each.sized(**sizes)), types[each.name]) for each in self._memory},
            **{
                each.name: np.zeros((rows, *each.sized(**sizes)), types[names.past_name(each.name)])
                for each in (*self._caches, *self._recurrent)
            },
            names.MEMORY_LENGTHS: np.ones(sentences, np.int64),
            names.TOKEN_IDS: np.zeros(rows, np.int64),
            names.POSITIONS: np.zeros(rows, np.int64),
            names.CANDIDATE_IDS: np.zeros((rows, manifest.candidates), np.int64),
            names.CANDIDATE_LOG_PROBS: np.zeros((rows, manifest.candidates), np.float32),
            names.LOGITS: np.zeros((0, manifest.target_vocab), types[names.LOGITS]),
        }
        self._bindings: dict[tuple[int, bool], ort.IOBinding] = {}

    def place(self, slot: int, encoded: Encoded, index: int) -> None:
        """Put a sentence into a slot; the whole width is written, so that nothing of the last one stays."""
        for state in self._memory:
            _fill(self._arrays[state.name][slot], encoded[state.name][index])
        first = slot * self._beam_size
        for state in self._recurrent:
            self._arrays[state.name][first : first + self._beam_size] = encoded[state.name][index]
        self._arrays[names.MEMORY_LENGTHS][slot] = encoded[names.MEMORY_LENGTHS][index]

    def step(self, sentences: int, token_ids: np.ndarray, positions: np.ndarray, *, logits: bool) -> Step:
        """Run the decoder over the first sentences."""
        rows = len(token_ids)
        self._arrays[names.TOKEN_IDS][:rows] = token_ids
        self._arrays[names.POSITIONS][:rows] = positions
        if logits and len(self._arrays[names.LOGITS]) == 0:
            shape = (len(self._arrays[names.TOKEN_IDS]), *self._arrays[names.LOGITS].shape[1:])
            self._arrays[names.LOGITS] = np.zeros(shape, self._arrays[names.LOGITS].dtype)
        if self.in_place:
            if (sentences, logits) not in self._bindings:
                self._bindings[sentences, logits] = self._bind(sentences, logits)
            self._session.run_with_iobinding(self._bindings[sentences, logits])
        else:
            self._run_copying(sentences, logits)
        return Step(
            self._arrays[names.CANDIDATE_IDS][:rows],
            self._arrays[names.CANDIDATE_LOG_PROBS][:rows],
            self._arrays[names.LOGITS][:rows] if logits else None,
        )

    def copy_rows(self, sources: np.ndarray, targets: np.ndarray, length: int) -> int:
        """Copy rows of every cache, up to length, and of every recurrent state."""
        copied = 0
        for state in self._caches:
            past = self._arrays[state.name][:, *_past(state, length)]
            past[targets] = past[sources]
            copied += past[0].nbytes * len(sources)
        for state in self._recurrent:
            self._arrays[state.name][targets] = self._arrays[state.name][sources]
        return copied

    def move(self, source: int, target: int, length: int) -> int:
        """Move a sentence's memory and its rows."""
        for name in (*(state.name for state in self._memory), names.MEMORY_LENGTHS):
            self._arrays[name][target] = self._arrays[name][source]
        beams = np.arange(self._beam_size)
        return self.copy_rows(source * self._beam_size + beams, target * self._beam_size + beams, length)

    def _inputs(self, sentences: int) -> Iterator[tuple[str, str, int]]:
        """Of every input of the graph: its name, the name of its array, and how much of it is read."""
        for name in (*(state.name for state in self._memory), names.MEMORY_LENGTHS):
            yield name, name, sentences
        for name in (names.TOKEN_IDS, names.POSITIONS):
            yield name, name, sentences * self._beam_size
        for state in (*self._caches, *self._recurrent):
            yield names.past_name(state.name), state.name, sentences * self._beam_size

    def _outputs(self, sentences: int, logits: bool) -> Iterator[tuple[str, str, int]]:
        """The same of every output. Past and present of a state are one array: the step appends in place."""
        for state in (*self._caches, *self._recurrent):
            yield names.present_name(state.name), state.name, sentences * self._beam_size
        for name in (names.CANDIDATE_IDS, names.CANDIDATE_LOG_PROBS, *([names.LOGITS] if logits else [])):
            yield name, name, sentences * self._beam_size

    def _bind(self, sentences: int, logits: bool) -> ort.IOBinding:
        binding = self._session.io_binding()
        for each in self._inputs(sentences):
            self._bind_one(binding.bind_input, *each)
        for each in self._outputs(sentences, logits):
            self._bind_one(binding.bind_output, *each)
        return binding

    def _run_copying(self, sentences: int, logits: bool) -> None:
        feed = {name: self._arrays[array][:count] for name, array, count in self._inputs(sentences)}
        wanted = list(self._outputs(sentences, logits))
        found = self._session.run([name for name, _, _ in wanted], feed)
        for (_, array, count), values in zip(wanted, found, strict=True):
            self._arrays[array][:count] = values

    def _bind_one(self, bind: Any, name: str, array_name: str, count: int) -> None:
        array = self._arrays[array_name]
        bind(name, "cpu", 0, array.dtype, (count, *array.shape[1:]), array.ctypes.data)


def _session(
    graph: bytes, weights: bytes, provider: str, threads: int, origin: os.PathLike[str]
) -> ort.InferenceSession:
    if provider == CUDA:
        ort.preload_dlls()  # CUDA and cuDNN as pip installs them
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    options.enable_mem_pattern = False  # shapes change with every batch
    # The encoder's threads must not spin on the cores that the decoder's need.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    options.add_external_initializers_from_files_in_memory([names.WEIGHTS], [weights], [len(weights)])
    try:
        session = ort.InferenceSession(
            graph, options, providers=[provider], disabled_optimizers=["SkipLayerNormFusion"]
        )
    except Exception as error:
        raise BundleError(f"{origin}: onnxruntime does not load it ({str(error).splitlines()[0]})") from None
    session.disable_fallback()
    if provider not in session.get_providers():
        raise DeviceError(f"{origin}: {provider} was asked for and is not there; see `lingon doctor`")
    return session


def _fill(slot: np.ndarray, values: np.ndarray) -> None:
    """Write values into the beginning of a slot, zeros, which weigh nothing, into the rest; padding may be cut off."""
    common = tuple(slice(min(sizes)) for sizes in zip(slot.shape, values.shape, strict=True))
    if slot.shape != values.shape:
        slot[...] = 0
    slot[common] = values[common]


def _past(state: State, length: int) -> tuple[slice, ...]:
    """The first positions of a cache, in the dimensions after the rows."""
    return tuple(slice(length) if size == "capacity" else slice(None) for size in state.shape)


def _labels(target_ids: np.ndarray, target_lengths: np.ndarray) -> np.ndarray:
    """The tokens after each of BOS + target_ids: the targets, then EOS."""
    labels = np.concatenate([target_ids, np.full((len(target_ids), 1), PAD)], axis=1)
    labels[np.arange(len(labels)), target_lengths] = EOS
    return labels
