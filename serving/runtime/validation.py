"""Whether manifest, tokenizer and graphs of a bundle fit each other, found out before anything is served.

Checksums tell that files are as they were published, not that what was published makes sense. Here a contradiction is
one line that names file and field; found by the first request that meets it, it would end the engine.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime as ort

from lingon import bundle as names
from lingon.bundle import MANIFEST, Bundle, Manifest
from lingon.errors import BundleError
from lingon.serving.runtime.onnx_runner import OnnxRunner
from lingon.serving.runtime.onnx_shortlist import ShortlistGraphs
from lingon.serving.runtime.runner import BatchShape, Encoded, width_for
from lingon.serving.runtime.sessions import GraphLoadError
from lingon.text import Tokenizer

Shape = list[int | str] | None
"""The sizes of a value after its first; None where nothing is declared of them."""


@dataclass(frozen=True, slots=True)
class Graph:
    """A graph as it has to be: its inputs are these and no others, its outputs these at least."""

    name: str
    session: ort.InferenceSession
    inputs: dict[str, Shape]
    outputs: dict[str, Shape]


def check_bundle(bundle: Bundle, precision: str, runner: OnnxRunner) -> None:
    """Raise BundleError where something does not fit, naming file and field."""
    _check_tokenizer(bundle)
    for graph in _graphs(bundle.manifest, runner):
        path = bundle.folder / precision / graph.name
        _check_values(path, "input", graph.inputs, {each.name: each.shape for each in graph.session.get_inputs()})
        found = {each.name: each.shape for each in graph.session.get_outputs()}
        _check_values(path, "output", graph.outputs, {name: found[name] for name in graph.outputs if name in found})
    _check_sizes(bundle, precision, runner)
    if runner.shortlist_graphs:
        _check_rows(bundle.folder / precision / names.OUTPUT_ROWS, runner.shortlist_graphs)
    _run_once(bundle, precision, runner)


def _check_tokenizer(bundle: Bundle) -> None:
    manifest, contents = bundle.manifest, bundle.tokenizer_files()
    try:
        tokenizer = Tokenizer(*contents)
    except BundleError as error:
        raise BundleError(f"{bundle.folder}/{error}") from None
    own = Tokenizer.JOINT if tokenizer.joint else Tokenizer.SEPARATE
    sides = ((own[0], tokenizer.source, "source_vocab"), (own[-1], tokenizer.target, "target_vocab"))
    for name, side, field in sides:
        size, wanted = side.get_piece_size(), getattr(manifest, field)
        if size != wanted:
            raise BundleError(f"{bundle.folder / name}: has {size} pieces, {MANIFEST} says {field} {wanted}")


def _graphs(manifest: Manifest, runner: OnnxRunner) -> Iterator[Graph]:
    """The graphs of a runner."""
    tails: dict[str, Shape] = {state.name: list(state.shape) for state in manifest.states}
    first = {state.name: tails[state.name] for state in manifest.states if state.kind != "cache"}
    kept = {state.name: tails[state.name] for state in manifest.states_of("memory")}
    changed = [(state.name, tails[state.name]) for state in manifest.states if state.kind != "memory"]
    scalars: dict[str, Shape] = dict.fromkeys(
        (names.TOKEN_IDS, names.POSITIONS, names.MEMORY_LENGTHS, names.CANDIDATE_COUNT)
    )
    step = {**scalars, **kept, **{names.past_name(name): shape for name, shape in changed}}
    found = {names.present_name(name): shape for name, shape in changed}
    found |= dict.fromkeys((names.CANDIDATE_IDS, names.CANDIDATE_LOG_PROBS))
    source: dict[str, Shape] = dict.fromkeys((names.SOURCE_IDS, names.SOURCE_LENGTHS))
    scored: dict[str, Shape] = dict.fromkeys((names.TOKEN_LOG_PROBS, names.CROSS_ATTENTION))
    yield Graph(names.ENCODER, runner.encoder.all_cores, source, first)
    yield Graph(names.DECODER, runner.decoder.all_cores, step, {**found, names.LOGITS: None})
    pair = {**source, **dict.fromkeys((names.TARGET_IDS, names.LABELS))}
    yield Graph(names.SCORER, runner.scorer, pair, scored)
    if runner.shortlist_graphs:
        rows: dict[str, Shape] = {each.name: None for each in runner.shortlist_graphs.output_rows.get_outputs()}
        yield Graph(names.OUTPUT_ROWS, runner.shortlist_graphs.output_rows, {names.PIECE_IDS: None}, {})
        listed = {**step, names.PIECE_IDS: None, names.ALLOWED: None, **rows}
        yield Graph(names.DECODER_SHORTLIST, runner.shortlist_graphs.decoder.all_cores, listed, found)


def _check_values(path: Path, kind: str, wanted: dict[str, Shape], found: dict[str, Shape]) -> None:
    for name in sorted(wanted.keys() ^ found.keys()):
        has = "has an" if name in found else "has no"
        raise BundleError(f"{path}: {has} {kind} {name}, unlike the states of {MANIFEST}")
    for name, shape in wanted.items():
        tail = (found[name] or [])[1:]
        if shape is not None and tail != shape:
            raise BundleError(f"{path}: {kind} {name} is {tail}, {MANIFEST} says {shape}")


def _check_sizes(bundle: Bundle, precision: str, runner: OnnxRunner) -> None:
    """What the sizes of two outputs say of vocabulary and alignment."""
    manifest, folder = bundle.manifest, bundle.folder / precision
    (logits,) = _sizes(folder / names.DECODER, runner.decoder.all_cores, names.LOGITS, 1)
    if logits < manifest.target_vocab:
        raise BundleError(
            f"{folder / names.DECODER}: has {logits} logits, {MANIFEST} says target_vocab {manifest.target_vocab}"
        )
    layers, heads = _sizes(folder / names.SCORER, runner.scorer, names.CROSS_ATTENTION, 2)
    wanted = manifest.alignment
    if wanted.heads and not (wanted.layer < layers and max(wanted.heads) < heads):
        raise BundleError(
            f"{folder / names.SCORER}: has {layers} layers of {heads} heads, {MANIFEST} says alignment by heads "
            f"{list(wanted.heads)[:8]} of layer {wanted.layer}"
        )


def _sizes(path: Path, session: ort.InferenceSession, output: str, count: int) -> list[int]:
    """The first sizes of an output after that of the batch, which have to be numbers."""
    shape: Shape = {each.name: each.shape for each in session.get_outputs()}[output]
    sizes = [size for size in (shape or [])[1 : 1 + count] if isinstance(size, int)]
    if len(sizes) < count:
        raise BundleError(f"{path}: output {output} is {shape}, its first {count + 1} sizes have to be declared")
    return sizes


def _check_rows(path: Path, listed: ShortlistGraphs) -> None:
    """What the output layer hands out of some pieces is what a step with a shortlist reads; path: of the former."""
    read = {each.name: (each.type, each.shape) for each in listed.decoder.all_cores.get_inputs()}
    for each in listed.output_rows.get_outputs():
        kind, shape = read[each.name]
        if each.type != kind or _numbers(each.shape) != _numbers(shape):
            raise BundleError(
                f"{path}: hands out {each.name} as {each.type} {each.shape}, {names.DECODER_SHORTLIST} reads "
                f"{kind} {shape}"
            )


def _numbers(shape: Shape) -> list[int | None]:
    """The sizes that are declared; None for those that have a name."""
    return [size if isinstance(size, int) else None for size in shape or []]


def _run_once(bundle: Bundle, precision: str, runner: OnnxRunner) -> None:
    """Run every graph as far as it may have to go: tables may be shorter than said, and nodes other than declared."""
    path, folder, limits = bundle.folder / MANIFEST, bundle.folder / precision, bundle.manifest.limits
    source, target = limits.max_source_tokens, limits.max_target_tokens
    ids, lengths = np.full((1, source), bundle.manifest.source_vocab - 1), np.array([source])
    with _refused(f"{path}: the encoder cannot read limits.max_source_tokens, {source}"):
        encoded = runner.encode(ids, lengths)
    with _refused(f"{path}: the decoder cannot write limits.max_target_tokens, {target}"):
        _write(runner, encoded, bundle.manifest, None)
    if runner.shortlist:
        with _refused(f"{folder / names.OUTPUT_ROWS}: {names.DECODER_SHORTLIST} cannot choose among what it hands out"):
            _write(runner, encoded, bundle.manifest, runner.shortlist.select(ids[0]))
    with _refused(f"{folder / names.SCORER}: cannot score a translation"):
        translation = np.full((1, target - 1), bundle.manifest.target_vocab - 1)
        runner.score(ids, lengths, translation, np.array([target - 1]))


def _write(runner: OnnxRunner, encoded: Encoded, manifest: Manifest, piece_ids: np.ndarray | None) -> None:
    """The last token of the longest translation; piece_ids: what it may be, where there is a shortlist."""
    source, target = manifest.limits.max_source_tokens, manifest.limits.max_target_tokens
    listed = piece_ids is not None
    buffers = runner.open(BatchShape(1, 1, width_for(source), target), shortlist=listed)
    buffers.place(0, encoded, 0, piece_ids)
    buffers.token_ids[:], buffers.positions[:] = manifest.target_vocab - 1, target - 1
    buffers.step(1, logits=not listed)


@contextmanager
def _refused(why: str) -> Iterator[None]:
    """Errors of running a graph as GraphLoadError: onnxruntime has many of its own, and arrays that do not fit
    theirs.
    """
    try:
        yield
    except Exception as error:
        raise GraphLoadError(why, f"{type(error).__name__}: {error}".splitlines()[0]) from None
