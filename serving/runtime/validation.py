"""Checks that the manifest, the tokenizer and the graphs of a bundle agree, before the bundle is served.

Checksums show that the files are as published, not that they agree with each other. A contradiction found here is an
error of one line that names the file and the field. Found by a request, it would end the engine.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime as ort

from lingon.bundle import names
from lingon.bundle.manifest import Manifest, State
from lingon.bundle.names import MANIFEST
from lingon.bundle.store import Bundle
from lingon.errors import BundleError
from lingon.serving.runtime.card_buffers import ADVANCED, LOGGED, PACKED_SOURCE, CardGraphs
from lingon.serving.runtime.device_buffers import StateGraphs
from lingon.serving.runtime.host_buffers import CANDIDATES, CHANGED, FOUND, ShortlistGraphs
from lingon.serving.runtime.onnx_runner import ATTENTION, OnnxRunner
from lingon.serving.runtime.runner import (
    BatchShape,
    BeamBuffers,
    BeamStates,
    Encoded,
    GreedyBuffers,
    HeadChoice,
    SeveralBeamSteps,
    matrix_shape,
    width_for,
)
from lingon.serving.runtime.sessions import as_graph_load_error
from lingon.terms.annotation import unread_marker
from lingon.text import BOS, Tokenizer

FEW = 8  # tokens of a short sentence
Dims = list[int | str] | None
"""Dimensions of an input or output in ONNX, numbers or names; None if none are declared or expected."""


@dataclass(frozen=True, slots=True)
class ExpectedGraph:
    """The inputs and outputs that a graph must have. It may have more outputs, but no more inputs.

    inputs, outputs: by name, the dimensions after the first one, or None if they are not checked
    """

    name: str
    session: ort.InferenceSession
    inputs: dict[str, Dims]
    outputs: dict[str, Dims]


def check_bundle(bundle: Bundle, precision: str, runner: OnnxRunner) -> None:
    """Raise BundleError, naming file and field, if manifest, tokenizer and graphs of a precision do not agree."""
    checked_tokenizer(bundle)
    check_search(bundle, precision, runner)
    check_scorer(bundle, precision, runner)


def check_search(bundle: Bundle, precision: str, runner: OnnxRunner) -> None:
    """Raise BundleError as `check_bundle`, for all graphs but the scorer."""
    for graph in _expected_graphs(bundle.manifest, runner):
        _check_graph(bundle.folder / precision / graph.name, graph)
    _check_logits(bundle, precision, runner)
    if runner.shortlist_graphs:
        _check_output_rows(bundle.folder / precision / names.OUTPUT_ROWS, runner.shortlist_graphs)
    _run_once(bundle, precision, runner)


def check_scorer(bundle: Bundle, precision: str, runner: OnnxRunner) -> None:
    """Raise BundleError, naming file and field, if the scorer of a precision does not agree with the manifest.

    The longest source is scored with a short translation, and the longest translation of a short source. The attention
    of both together took 2.4 GB for a model of the size of NLLB-200, besides 1 GB of logits, each about twice.
    """
    limits, path = bundle.manifest.limits, bundle.folder / precision / names.SCORER
    _check_graph(path, _expected_scorer(bundle.manifest, runner))
    _check_attention(bundle, precision, runner)
    source, target = limits.max_source_tokens, limits.max_target_tokens - 1
    with as_graph_load_error(f"{path}: cannot score a translation"):
        for source_length, target_length in ((source, min(FEW, target)), (min(FEW, source), target)):
            ids = np.full((1, source_length), bundle.manifest.source_vocab - 1)
            translation = np.full((1, target_length), bundle.manifest.target_vocab - 1)
            _score_with_attention(runner, ids, translation)
            runner.free_memory()


def _check_graph(path: Path, graph: ExpectedGraph) -> None:
    _check_dims(path, "input", graph.inputs, {each.name: each.shape for each in graph.session.get_inputs()})
    outputs = {each.name: each.shape for each in graph.session.get_outputs()}
    _check_dims(path, "output", graph.outputs, {name: outputs[name] for name in graph.outputs if name in outputs})


def checked_tokenizer(bundle: Bundle) -> Tokenizer:
    """Return the tokenizer of a bundle.

    Raises BundleError if its vocabularies have not the sizes of the manifest, or no piece for a marker of terms.
    """
    manifest = bundle.manifest
    try:
        tokenizer = bundle.tokenizer()
    except BundleError as error:
        raise BundleError(f"{bundle.folder}/{error}") from None
    first, *_, last = [*tokenizer.files(), *tokenizer.files()]
    sides = ((first, tokenizer.source, "source_vocab"), (last, tokenizer.target, "target_vocab"))
    for name, side, field in sides:
        size, expected = side.get_piece_size(), getattr(manifest, field)
        if size != expected:
            raise BundleError(f"{bundle.folder / name}: has {size} pieces, {MANIFEST} says {field} {expected}")
    if manifest.terms is not None and (marker := unread_marker(manifest.terms, tokenizer)) is not None:
        raise BundleError(
            f"{bundle.folder / first}: has no piece {marker!r}, which {MANIFEST} names as a marker of terms"
        )
    return tokenizer


def _expected_graphs(manifest: Manifest, runner: OnnxRunner) -> Iterator[ExpectedGraph]:
    """Yield the graphs of a runner as the states of the manifest require them."""
    dims: dict[str, Dims] = {state.name: list(state.shape) for state in manifest.states}
    encoded = {state.name: dims[state.name] for state in manifest.states if state.kind != "cache"}
    memory = {state.name: dims[state.name] for state in manifest.states_of("memory")}
    changing = [(state.name, dims[state.name]) for state in manifest.states if state.kind != "memory"]
    tokens = _unchecked(names.TOKEN_IDS, names.POSITIONS)
    step = tokens | _unchecked(names.MEMORY_LENGTHS) | memory
    step |= {names.past_name(name): shape for name, shape in changing}
    present = {names.present_name(name): shape for name, shape in changing}
    source, encoder_outputs = _unchecked(names.SOURCE_IDS, names.SOURCE_LENGTHS), encoded
    if runner.beam is not None:
        step |= _unchecked(names.BEAM_TABLE)
        advanced = _changed(_unchecked(*CHANGED)) | _unchecked(*FOUND)
        yield ExpectedGraph(names.BEAM, runner.beam, _unchecked(*CANDIDATES, *CHANGED), advanced)
    if isinstance(runner.state_graphs, CardGraphs):
        present = {}
        source, encoder_outputs = _unchecked(*PACKED_SOURCE), _unchecked(names.MEMORY)
        yield from _expected_card_graphs(manifest, runner.state_graphs, step)
    elif runner.state_graphs is not None:
        step |= _unchecked(names.TOTAL_LENGTH)
        yield from _expected_state_graphs(manifest, runner.state_graphs)
        written = _unchecked(names.HISTORY, names.STEP_INDEX)
        yield ExpectedGraph(
            names.GREEDY, runner.state_graphs.greedy, step | written, present | _changed(tokens | written)
        )
    step = step | _unchecked(names.CANDIDATE_COUNT)
    results = present | _unchecked(names.CANDIDATE_IDS, names.CANDIDATE_LOG_PROBS)
    yield ExpectedGraph(names.ENCODER, runner.encoder.all_cores, source, encoder_outputs)
    yield ExpectedGraph(names.DECODER, runner.decoder.all_cores, step, results | _unchecked(names.LOGITS))
    if (graphs := runner.shortlist_graphs) is not None:
        step = step | _unchecked(names.PIECE_IDS, names.ALLOWED, *graphs.row_names)
        yield ExpectedGraph(names.OUTPUT_ROWS, graphs.output_rows, _unchecked(names.PIECE_IDS), {})
        yield ExpectedGraph(names.DECODER_SHORTLIST, graphs.decoder.all_cores, step, results)


def _expected_scorer(manifest: Manifest, runner: OnnxRunner) -> ExpectedGraph:
    pair = _unchecked(names.SOURCE_IDS, names.SOURCE_LENGTHS, names.TARGET_IDS, names.LABELS)
    return ExpectedGraph(names.SCORER, runner.scorer, pair, _unchecked(*manifest.scorer_outputs))


def _unchecked(*tensors: str) -> dict[str, Dims]:
    """Return inputs or outputs with unchecked dimensions."""
    return dict.fromkeys(tensors)


def _expected_state_graphs(manifest: Manifest, graphs: StateGraphs) -> Iterator[ExpectedGraph]:
    """Yield the graphs that change states on a device as the states of the manifest require them."""
    memory = manifest.states_of("memory")
    recurrent = manifest.states_of("recurrent")
    placed = _on_device(graphs.place_session, [*memory, *recurrent])
    numbers = _unchecked(names.SLOTS, names.INDICES)
    if recurrent:
        numbers |= _unchecked(names.SOURCES, names.TARGETS)
    encoded = _unchecked(*map(names.encoded_name, placed))
    yield ExpectedGraph(names.PLACE, graphs.place_session, {**placed, **encoded, **numbers}, _changed(placed))
    yield from _expected_copies(manifest, graphs)


def _expected_copies(manifest: Manifest, graphs: StateGraphs) -> Iterator[ExpectedGraph]:
    memory, past = manifest.states_of("memory"), [each for each in manifest.states if each.kind != "memory"]
    copied = _unchecked(names.SOURCES, names.TARGETS)
    copies = (names.COPY_MEMORY, graphs.copy_memory_session, memory), (names.COPY_ROWS, graphs.copy_rows_session, past)
    for name, session, states in copies:
        dims = _on_device(session, states)
        yield ExpectedGraph(name, session, {**dims, **copied}, _changed(dims))


def _expected_card_graphs(manifest: Manifest, graphs: CardGraphs, step: dict[str, Dims]) -> Iterator[ExpectedGraph]:
    """Yield the graphs of several steps and of states; step: the inputs of a decoder step without the candidates."""
    index, advanced = _unchecked(names.STEP_INDEX), _changed(_unchecked(*ADVANCED))
    several = step | index | _unchecked(names.HISTORY)
    yield ExpectedGraph(names.GREEDY, graphs.greedy, several, advanced)
    yield ExpectedGraph(names.GREEDY_STEPS, graphs.several_greedy, several, advanced)
    searched = step | index | _unchecked(names.CANDIDATE_COUNT, names.BEAM_ROWS, names.BEAM_TOTALS, *LOGGED)
    yield ExpectedGraph(names.BEAM_STEPS, graphs.several_beams, searched, advanced)
    memory: dict[str, Dims] = {state.name: list(state.shape) for state in manifest.states_of("memory")}
    inputs = memory | _unchecked(names.MEMORY, names.MEMORY_TARGETS)
    yield ExpectedGraph(names.PLACE, graphs.place_session, inputs, {})
    yield from _expected_copies(manifest, graphs)


def _on_device(session: ort.InferenceSession, states: Iterable[State]) -> dict[str, Dims]:
    """Return the declarations of states in a graph that changes them, as blocks of a size that it declares."""
    found = {each.name: each.shape for each in session.get_inputs()}
    sizes = {name: [size for size in (shape or [])[2:3] if isinstance(size, int)] for name, shape in found.items()}
    return {state.name: [names.blocks_name(state.name), *sizes.get(state.name, [])] for state in states}


def _changed(states: dict[str, Dims]) -> dict[str, Dims]:
    return {names.changed_name(name): shape for name, shape in states.items()}


def _check_dims(path: Path, kind: str, expected: dict[str, Dims], found: dict[str, Dims]) -> None:
    """Check names and dimensions; kind: input or output, found: all dimensions by name."""
    for name in sorted(expected.keys() ^ found.keys()):
        has = "has an" if name in found else "has no"
        raise BundleError(f"{path}: {has} {kind} {name}, unlike the states of {MANIFEST}")
    for name, dims in expected.items():
        found_dims = (found[name] or [])[1:]
        if dims is not None and found_dims != dims:
            raise BundleError(f"{path}: {kind} {name} is {found_dims}, {MANIFEST} says {dims}")


def _check_logits(bundle: Bundle, precision: str, runner: OnnxRunner) -> None:
    """Check the target vocabulary by the size of the logits."""
    manifest, folder = bundle.manifest, bundle.folder / precision
    (logits,) = _sizes(folder / names.DECODER, runner.decoder.all_cores, names.LOGITS, 1)
    if logits < manifest.target_vocab:
        raise BundleError(
            f"{folder / names.DECODER}: has {logits} logits, {MANIFEST} says target_vocab {manifest.target_vocab}"
        )


def _check_attention(bundle: Bundle, precision: str, runner: OnnxRunner) -> None:
    """Check an alignment by the size of the cross-attention."""
    manifest, folder = bundle.manifest, bundle.folder / precision
    outputs = {each.name for each in runner.scorer.get_outputs()}
    for output in ATTENTION.values():
        if output in outputs:
            _sizes(folder / names.SCORER, runner.scorer, output, 2)
    alignment = manifest.alignment
    if not alignment.heads:
        return
    layers, heads = _sizes(folder / names.SCORER, runner.scorer, names.CROSS_ATTENTION, 2)
    if not (alignment.layer < layers and max(alignment.heads) < heads):
        raise BundleError(
            f"{folder / names.SCORER}: has {layers} layers of {heads} heads, {MANIFEST} says alignment by heads "
            f"{list(alignment.heads)[:8]} of layer {alignment.layer}"
        )


def _sizes(path: Path, session: ort.InferenceSession, output: str, count: int) -> list[int]:
    """Return the `count` sizes after the first dimension of an output, which must be declared as numbers."""
    dims: Dims = {each.name: each.shape for each in session.get_outputs()}[output]
    sizes = [size for size in (dims or [])[1 : 1 + count] if isinstance(size, int)]
    if len(sizes) < count:
        raise BundleError(f"{path}: output {output} is {dims}, its first {count + 1} sizes must be declared")
    return sizes


def _check_output_rows(path: Path, graphs: ShortlistGraphs) -> None:
    """Check that the decoder step reads the rows of the output layer that the graph at `path` outputs."""
    inputs = {each.name: (each.type, each.shape) for each in graphs.decoder.all_cores.get_inputs()}
    for each in graphs.output_rows.get_outputs():
        kind, dims = inputs[each.name]
        if each.type != kind or _numbers(each.shape) != _numbers(dims):
            raise BundleError(
                f"{path}: outputs {each.name} as {each.type} {each.shape}, {names.DECODER_SHORTLIST} reads "
                f"{kind} {dims}"
            )


def _numbers(dims: Dims) -> list[int | None]:
    """Return the sizes that are declared as numbers, and None for named ones."""
    return [size if isinstance(size, int) else None for size in dims or []]


def _run_once(bundle: Bundle, precision: str, runner: OnnxRunner) -> None:
    """Run every graph at the limits of the manifest, and the decoder for two sentences.

    Tables in a graph may be shorter than the limits, and nodes may have other shapes than the graph declares.
    """
    path, folder, limits = bundle.folder / MANIFEST, bundle.folder / precision, bundle.manifest.limits
    source, target = limits.max_source_tokens, limits.max_target_tokens
    ids, lengths = np.full((1, source), bundle.manifest.source_vocab - 1), np.array([source])
    with as_graph_load_error(f"{path}: the encoder cannot read limits.max_source_tokens, {source}"):
        encoded = runner.encode(ids, lengths)
    with as_graph_load_error(f"{path}: the decoder cannot write limits.max_target_tokens, {target}"):
        _run_last_step(runner, encoded, bundle.manifest, None)
    with as_graph_load_error(f"{folder / names.DECODER}: cannot translate two sentences together"):
        _run_two_sentences(runner, bundle.manifest, 1)
    if runner.beam is not None and limits.max_beam_size > 1:
        with as_graph_load_error(f"{folder / names.BEAM}: cannot search over the candidates of {names.DECODER}"):
            _run_two_sentences(runner, bundle.manifest, 2)
    if runner.shortlist:
        message = f"{folder / names.OUTPUT_ROWS}: {names.DECODER_SHORTLIST} cannot run with its output"
        with as_graph_load_error(message):
            _run_last_step(runner, encoded, bundle.manifest, runner.shortlist.select(ids[0]))


def _score_with_attention(runner: OnnxRunner, source_ids: np.ndarray, target_ids: np.ndarray) -> None:
    """Score a pair without padding with all its attention. Raises ValueError for a matrix of another shape.

    source_ids: (1, source_length), target_ids: (1, target_length - 1)
    """
    choice = tuple(
        HeadChoice(kind, tuple(range(size.layers)), tuple(range(size.heads)), mean=True)
        for kind, size in runner.attention.items()
    )
    source, target = source_ids.shape[1], target_ids.shape[1] + 1
    lengths = np.array([source]), np.array([target - 1])
    (scored,) = runner.score(source_ids, lengths[0], target_ids, lengths[1], [choice])
    for matrix in scored.matrices:
        found, expected = matrix.weights.shape, matrix_shape(matrix.kind, source, target)
        if found != expected:
            raise ValueError(f"{matrix.kind} attention of this pair is {found}, it must be {expected}")


def _run_last_step(runner: OnnxRunner, encoded: Encoded, manifest: Manifest, piece_ids: np.ndarray | None) -> None:
    """Run the last step of the longest translation; piece_ids: the permitted pieces, with a shortlist."""
    source, target = manifest.limits.max_source_tokens, manifest.limits.max_target_tokens
    shortlist, slots = piece_ids is not None, 1 if runner.state_graphs is None else 2
    buffers = runner.open(BatchShape(slots, 1, width_for(source), target), shortlist=shortlist)
    buffers.place(0, encoded, 0, piece_ids)
    buffers.token_ids[:], buffers.positions[:] = manifest.target_vocab - 1, target - 1
    buffers.step(1, logits=not shortlist)
    if slots > 1:  # runs the graphs that copy states
        buffers.move(0, 1, target)
        buffers.step(1, logits=False)


def _run_two_sentences(runner: OnnxRunner, manifest: Manifest, beam_size: int) -> None:
    """Run two steps for two short sentences, with the graph of beam search if there are several beams, and the graphs
    of several steps.

    The second step refuses invalid tokens and ranks of a search.
    """
    length, capacity = min(FEW, manifest.limits.max_source_tokens), min(FEW, manifest.limits.max_target_tokens)
    encoded = runner.encode(np.full((2, length), manifest.source_vocab - 1), np.full(2, length))
    buffers = runner.open(BatchShape(2, beam_size, width_for(length), capacity), shortlist=False)
    rows, history = np.tile(np.arange(beam_size), (2, 1)), np.zeros((2, beam_size, capacity), np.int64)
    states = BeamStates(rows, np.zeros(rows.shape, np.float32), history, history.astype(np.float32))
    search = buffers.beam_search(states) if beam_size > 1 and isinstance(buffers, BeamBuffers) else None
    for slot in range(2):
        buffers.place(slot, encoded, slot)
    buffers.token_ids[:], buffers.positions[:] = BOS, 0
    for _ in range(min(2, capacity)):
        ids = buffers.step(2, logits=False).candidate_ids
        if ids.min() < 0 or ids.max() >= manifest.target_vocab:
            raise ValueError(f"candidates must be 0 to {manifest.target_vocab - 1}, got {ids.min()} to {ids.max()}")
        if search is not None:
            search.advance(2)
    if not isinstance(runner.state_graphs, CardGraphs):
        return
    if isinstance(search, SeveralBeamSteps) and 2 + search.most_steps <= capacity:
        list(search.several(2))
    elif isinstance(buffers, GreedyBuffers) and beam_size == 1 and buffers.most_steps <= capacity:
        buffers.greedy_steps(2, buffers.most_steps)
