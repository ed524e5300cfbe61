"""Transformers with random weights that decode like trained ones, and workloads of them.

With plain random weights a model repeats one token without an end, for two reasons. First, the part that all positions
have in common (slowly varying position encodings, means of ReLU outputs) grows from layer to layer until it dominates.
Here the biases of the norms remove it. Second, with tied embeddings the last token's own embedding fits the hidden
state best. Here the gain of the last norm is negative, so that the last token is the least likely next token.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

import lingon.export
from lingon.bench.workloads import Workload
from lingon.bundle import names
from lingon.bundle.manifest import Alignment, Defaults, Limits, Manifest, Precision
from lingon.bundle.store import Bundle, is_bundle, open_bundle, write_bundle
from lingon.export.graphs.onnx_writer import WeightFiles
from lingon.export.graphs.precisions import PRECISION_KINDS, build, precisions_of, weight_files
from lingon.export.graphs.quantisation import SentenceIds
from lingon.export.graphs.transformer import states
from lingon.serving.runtime.device import CPU, FP16_NATIVE
from lingon.serving.runtime.shortlist import Shortlist
from lingon.text import BOS, EOS, FORBIDDEN, PAD, UNK
from lingon.training.batches import pad
from lingon.training.checkpoint import round_to_half
from lingon.training.model_settings import TransformerSettings
from lingon.training.models.attention import CrossAttention, KeyValue, SelfAttention
from lingon.training.models.interface import select_rows
from lingon.training.models.layers import FeedForward
from lingon.training.models.transformer import Transformer, TransformerMemory

NEVER_GENERATED = sorted({*FORBIDDEN, EOS})
INNER_GAIN, OUTPUT_GAIN = 1.4, 0.5
"""Gains of weights: of queries, keys and the inner layer, and of all others, which add to the hidden state."""
SPECIAL_LOGIT, CONSTANT = 24.0, 1.5
"""By how much the logits of special pieces are lowered, and the constant in the hidden state that lowers them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """The size of a post-norm model. The defaults are the Transformer base of Vaswani et al. (2017)."""

    layers: int = 6  # of the encoder, and as many of the decoder
    dim: int = 512
    heads: int = 8
    ffn: int = 2048
    vocab: int = 32_000
    positions: int = 256
    spread: float = 4.0  # standard deviation of the logits
    seed: int = 0

    def settings(self) -> TransformerSettings:
        """Return the shape as settings of lingon.training."""
        return TransformerSettings(
            dim=self.dim,
            heads=self.heads,
            head_dim=self.dim // self.heads,
            ffn=self.ffn,
            encoder_layers=self.layers,
            decoder_layers=self.layers,
            max_positions=self.positions,
            dropout=0.0,
        )


SHAPES = {"base": Shape(), "big": Shape(dim=1024, heads=16, ffn=4096)}
"""The Transformers base and big of Vaswani et al. (2017), by name."""

TINY_SHAPES = {"tiny": Shape(layers=2, dim=128, heads=2, ffn=256, vocab=1000)}
"""The shapes of a quick run. The heads have the size of the heads in SHAPES."""

EMULATED_SHAPES = {"tiny": Shape(layers=1, dim=32, heads=1, ffn=32, vocab=200)}
EMULATED_TOKENS = 4  # target tokens
"""Of a quick run with emulated operators for CUDA: Triton's interpreter takes 0.2 s for a step."""


@torch.no_grad()
def random_transformer(shape: Shape) -> Transformer:
    """Return the model of a shape. Special pieces, among them the end token, are never likely."""
    random = np.random.default_rng(shape.seed)
    model = Transformer(shape.settings(), shape.vocab, shape.vocab).eval()
    for module in model.modules():
        if isinstance(module, SelfAttention | CrossAttention | FeedForward):
            _set_weights(module, random, shape.dim)
    pieces = model.output.weight
    pieces.copy_(_normal(random, pieces.shape, shape.dim**-0.5))
    _remove_means(model, random, shape)
    last = model.decoder[-1].around_feed_forward.norm
    assert isinstance(last, nn.LayerNorm)
    last.weight.fill_(-shape.spread)
    last.bias.mul_(-shape.spread)
    reserved = max(shape.dim // 16, 1)  # dimensions that only lower the logits of special pieces
    last.weight[:reserved], last.bias[:reserved] = 0, CONSTANT
    pieces[:, :reserved] = 0
    pieces[NEVER_GENERATED, :reserved] = -SPECIAL_LOGIT / (CONSTANT * reserved)
    return model


def _set_weights(module: SelfAttention | CrossAttention | FeedForward, random: np.random.Generator, dim: int) -> None:
    """Set the weights of a sublayer to random values with the gains above."""
    for linear in module.children():
        if isinstance(linear, nn.Linear):
            linear.weight.copy_(_normal(random, linear.weight.shape, OUTPUT_GAIN * linear.in_features**-0.5))
    ratio = INNER_GAIN / OUTPUT_GAIN
    if isinstance(module, SelfAttention):
        assert isinstance(module.qkv, nn.Linear)
        module.qkv.weight[: 2 * dim] *= ratio
    elif isinstance(module, CrossAttention):
        module.query.weight *= ratio
        module.key_value.weight[:dim] *= ratio
    elif isinstance(module, FeedForward):
        module.inner.weight *= ratio


def _remove_means(model: Transformer, random: np.random.Generator, shape: Shape) -> None:
    """Set the bias of every norm, first to last, so that the mean of its output over random sentences is zero."""

    def subtract_mean(norm: nn.Module, inputs: object, output: Tensor) -> Tensor:
        mean = output.mean((0, 1))
        assert isinstance(norm, nn.LayerNorm)
        norm.bias.sub_(mean)
        return output - mean

    hooks = [norm.register_forward_hook(subtract_mean) for norm in model.modules() if isinstance(norm, nn.LayerNorm)]
    length = min(28, shape.positions)
    source, target = random.integers(UNK + 1, shape.vocab, (2, 16, length))
    model(torch.from_numpy(source), torch.full((16,), length), torch.from_numpy(target))
    for hook in hooks:
        hook.remove()


def _normal(random: np.random.Generator, shape: tuple[int, ...], deviation: float) -> Tensor:
    return torch.from_numpy(random.standard_normal(shape, dtype=np.float32) * np.float32(deviation))


@dataclass(frozen=True, slots=True)
class Outputs:
    """The result of a search with a fixed number of steps.

    tokens: (sentences, steps), the best hypothesis of each sentence
    copying: the share of steps of a sentence in which some beam has several continuations, so that its past is copied
    margins: (steps, sentences), difference in log-probability between the best and the second best continuation
    """

    tokens: Tensor
    copying: float
    margins: Tensor

    @property
    def distinct(self) -> int:
        """The smallest number of distinct tokens in a sentence."""
        return min(len(set(row)) for row in self.tokens.tolist())


@torch.inference_mode()
def outputs(model: Transformer, sources: Sequence[Sequence[int]], beam_size: int, steps: int) -> Outputs:
    """Search for exactly `steps` tokens. The model must never prefer the end token. sources: token ids."""
    count, vocab = len(sources), model.output.weight.size(0)
    memory = _repeated(model.encode(pad(sources), torch.tensor([len(source) for source in sources])), beam_size)
    past, next_ids = model.start(memory), torch.full((count * beam_size,), BOS)
    totals = torch.full((count, beam_size), -torch.inf)
    totals[:, 0] = 0  # All beams have the same past at first, so only one may be extended.
    tokens = torch.empty((count, beam_size, 0), dtype=torch.long)
    margins, copied = [], 0
    for step in range(steps):
        logits, past = model.decode_step(next_ids, past, memory)
        sums = model.log_probs(logits).view(count, beam_size, vocab) + totals[:, :, None]
        best = sums.flatten(1).topk(max(beam_size, 2))
        margins.append(best.values[:, 0] - best.values[:, 1])
        totals, chosen = best.values[:, :beam_size], best.indices[:, :beam_size]
        parents, last = chosen // vocab, chosen % vocab
        copied += sum(len(set(row)) < beam_size for row in parents.tolist()) if step else 0
        rows = (parents + beam_size * torch.arange(count)[:, None]).flatten()
        past = select_rows(past, rows)
        tokens = torch.cat([tokens.flatten(0, 1)[rows].view(count, beam_size, step), last[:, :, None]], dim=2)
        next_ids = last.flatten()
    return Outputs(tokens[:, 0], copied / max((steps - 1) * count, 1), torch.stack(margins))


def _repeated(memory: TransformerMemory, beam_size: int) -> TransformerMemory:
    """Return the memory, repeated for every beam of every sentence."""
    layers = [KeyValue(*(each.repeat_interleave(beam_size, 0) for each in layer)) for layer in memory.layers]
    return TransformerMemory(layers, memory.visible.repeat_interleave(beam_size, 0))


SOURCE_TOKENS, TARGET_TOKENS = 25, 30
TARGET_RATIO = 1.2
"""Target tokens for each source token in the workloads with mixed lengths, the same as 30 for 25."""
MEDIAN, SPREAD, LENGTHS = 22, 0.55, (4, 100)
"""Of the lengths of mixed sources, in tokens with the end token: see `mixed_lengths`."""
CANDIDATES = 1024
"""Target pieces on the shortlist. They are random, because there is no text to learn a shortlist from."""
PRECISIONS = ("fp32", "int8", "int8-native", "fp32-native")
MEASURED = 32
"""Sentences on which the facts are measured. The 8-bit ranges are calibrated on as many other sentences."""


def base_workload(cache: Path, shape: Shape | None = None, sentences: int = 128) -> Workload:
    """Return the workload. Write its bundle below cache, once for each shape and state of the code that writes it."""
    shape = shape or Shape()
    opened = cached(cache, f"base-{shape_digest(shape)}", lambda folder: _write(folder, shape))
    return Workload(
        name="base",
        bundle=opened.folder,
        sources=random_sources(shape, sentences),
        exact_length=TARGET_TOKENS,
        facts=opened.manifest.precisions["fp32"].report,
    )


def forced_workloads(
    cache: Path, name: str, shape: Shape, provider: str, sentences: int, tokens: int = TARGET_TOKENS
) -> list[Workload]:
    """Return two workloads of a model: NAME with `tokens` for every output, "NAME mix" with mixed lengths.

    provider: that runs the graphs for CUDA
    sentences: of the first workload; the second has twice as many
    """
    key = shape_digest(shape, provider)
    bundle = cached(cache, f"{name}-{key}", lambda folder: write_half_precision(folder, shape, provider, "fp32"))
    mixed = mixed_sources(shape, 2 * sentences)
    mean = sum(map(len, mixed)) / len(mixed)
    return [
        Workload(
            name=name,
            bundle=bundle.folder,
            sources=random_sources(shape, sentences),
            exact_length=tokens,
            facts={"source tokens": SOURCE_TOKENS, "target tokens": tokens},
        ),
        Workload(
            name=f"{name} mix",
            bundle=bundle.folder,
            sources=mixed,
            target_ratio=TARGET_RATIO,
            facts={"source tokens, mean": round(mean, 1), "source tokens, most": max(map(len, mixed))},
        ),
    ]


def write_half_precision(folder: Path, shape: Shape, provider: str, *more: str) -> Bundle:
    """Write and return a bundle with graphs for CUDA, of weights that fp16 holds exactly.

    provider: that runs them, which may be the CPU in a rehearsal
    more: further precisions of the bundle
    """
    model, weights = random_transformer(shape), WeightFiles()
    graphs: dict[str, bytes] = {}
    precisions: dict[str, Precision] = {}
    round_to_half(model)  # so that every engine computes with the same weights
    for precision in ("fp16", *([FP16_NATIVE] if FP16_NATIVE in precisions_of(model) else []), *more):
        built = build(model, precision, weights, [], shortlist=False)
        graphs |= built.graphs
        runs_on = provider if PRECISION_KINDS[precision].on_device else CPU
        precisions[precision] = Precision(runs_on, "not run: the weights are random", built.reads)
    manifest = replace(_manifest(model, precisions), shortlist=None)
    return write_bundle(folder, manifest, graphs | weight_files(weights))


def mixed_sources(shape: Shape, count: int) -> tuple[tuple[int, ...], ...]:
    """Return sources of mixed lengths: random pieces and EOS."""
    random = np.random.default_rng((shape.seed, 4))
    lengths = mixed_lengths(random, count)
    pieces = (random.integers(UNK + 1, shape.vocab, length - 1).tolist() for length in lengths)
    return tuple((*row, EOS) for row in pieces)


def mixed_lengths(random: np.random.Generator, count: int) -> NDArray[np.int64]:
    """Return lengths of sources in tokens, drawn from a log-normal distribution.

    The median is MEDIAN tokens and the standard deviation of the logarithm SPREAD, as in sentences of news in subwords.
    Lengths are cut to LENGTHS. A batch of such sentences has few long ones, for which the others wait.
    """
    return np.clip(np.round(random.lognormal(np.log(MEDIAN), SPREAD, count)), *LENGTHS).astype(np.int64)


def random_sources(shape: Shape, count: int, seed: int = 1) -> tuple[tuple[int, ...], ...]:
    """Return sources of SOURCE_TOKENS tokens: random pieces and EOS."""
    random = np.random.default_rng((shape.seed, seed))
    pieces = random.integers(UNK + 1, shape.vocab, (count, SOURCE_TOKENS - 1))
    return tuple((*row, EOS) for row in pieces.tolist())


def cached(cache: Path, family: str, write: Callable[[Path], object], *written_by: Path) -> Bundle:
    """Return the bundle below cache/family, which `write` writes unless the same code has written it before.

    written_by: source files of that code beside this one and the exporter
    """
    sources = (path.read_bytes() for path in (*_source_files(), *written_by))
    folder = cache / family / _digest(sources) / "base" / "1"
    if not is_bundle(folder):
        shutil.rmtree(cache / family, ignore_errors=True)  # Bundles that older code has written are useless.
        write(folder)
    return open_bundle(folder)


def _write(folder: Path, shape: Shape) -> None:
    """Create the model, measure properties of its outputs, and write its bundle."""
    model = random_transformer(shape)
    facts = _facts(model, random_sources(shape, MEASURED))
    others = random_sources(shape, MEASURED, seed=2)
    targets = outputs(model, others, 1, TARGET_TOKENS).tokens.tolist()
    calibration = [(list(source), target) for source, target in zip(others, targets, strict=True)]
    write_for_cpu(folder, model, calibration, _shortlist(shape), facts)


def write_for_cpu(
    folder: Path,
    model: Transformer,
    calibration: Sequence[SentenceIds],
    shortlist: Shortlist | None,
    facts: dict[str, float],
) -> Bundle:
    """Write and return a bundle with all PRECISIONS of a model whose vocabularies are one.

    calibration: sentences on which the 8-bit ranges are measured
    facts: properties of the outputs by name, which are kept in the manifest
    """
    weights, precisions = WeightFiles(), dict[str, Precision]()
    files = {} if shortlist is None else {names.SHORTLIST: shortlist.to_bytes()}
    for precision in PRECISIONS:
        built = build(model, precision, weights, calibration, shortlist=shortlist is not None)
        files |= built.graphs
        gate = "not run: the weights are random"
        precisions[precision] = Precision(PRECISION_KINDS[precision].provider, gate, built.reads, facts)
    manifest = _manifest(model, precisions)
    if shortlist is None:
        manifest = replace(manifest, shortlist=None)
    return write_bundle(folder, manifest, files | weight_files(weights))


def _facts(model: Transformer, sources: tuple[tuple[int, ...], ...]) -> dict[str, float]:
    greedy, beam = (outputs(model, sources, beam_size, TARGET_TOKENS) for beam_size in (1, 4))
    return {
        "sentences measured": len(sources),
        "distinct tokens, greedy, at least": greedy.distinct,
        "distinct tokens, beam 4, at least": beam.distinct,
        "share of steps with copied parents, beam 4": round(beam.copying, 3),
        "margin of the best token, greedy, 1st percentile": round(float(greedy.margins.quantile(0.01)), 4),
    }


def _shortlist(shape: Shape) -> Shortlist:
    """Return the same candidates for every sentence, among them the end token; a quarter of a small vocabulary."""
    random = np.random.default_rng((shape.seed, 3))
    chosen = random.choice(np.arange(UNK + 1, shape.vocab), min(CANDIDATES, shape.vocab // 4) - 1, replace=False)
    nothing = np.zeros(shape.vocab + 1, np.int32)
    return Shortlist(np.union1d(chosen, [EOS]).astype(np.int32), nothing, nothing[:0])


def _manifest(model: Transformer, precisions: dict[str, Precision]) -> Manifest:
    vocab, settings = model.output.weight.size(0), model.settings
    return Manifest(
        name="base",
        version=1,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        source_language="und",
        target_language="und",
        architecture="transformer",
        source_vocab=vocab,
        target_vocab=vocab,
        special_ids={"pad": PAD, "bos": BOS, "eos": EOS, "unk": UNK},
        limits=Limits(
            settings.max_positions // 2, settings.max_positions, output_factor=2.0, output_extra=16, max_beam_size=8
        ),
        defaults=Defaults(),
        candidates=16,
        states=states(model),
        precisions=precisions,
        alignment=Alignment(max(settings.decoder_layers - 2, 0), tuple(range(settings.heads))),
        shortlist={"candidates": "random"},
    )


def _source_files() -> list[Path]:
    """Return the source files that determine the bytes of the bundle."""
    exporter = sorted(path for folder in lingon.export.__path__ for path in Path(folder).rglob("*.py"))
    return [Path(__file__), Path(names.__file__), *exporter]


def shape_digest(shape: object, *more: str) -> str:
    """Return a short name of a shape and of what else determines a bundle."""
    return _digest(part.encode() for part in (repr(shape), *more))


def _digest(parts: Iterable[bytes]) -> str:
    total = hashlib.sha256()
    for part in parts:
        total.update(part)
    return total.hexdigest()[:12]
