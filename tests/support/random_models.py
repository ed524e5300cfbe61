"""Tiny models of every kind with random weights: in PyTorch, as graphs, checkpoints and bundles."""

from __future__ import annotations

import functools
import random
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import lingon.export.gates_text
from lingon.bundle.golden import Golden
from lingon.bundle.manifest import (
    MANY,
    Alignment,
    Defaults,
    Languages,
    Limits,
    Manifest,
    Precision,
    SourceLanguage,
    TargetLanguage,
)
from lingon.bundle.names import GOLDEN, SHORTLIST
from lingon.bundle.store import Bundle, write_bundle
from lingon.export.gates_checkpoint import CaseReference, draw_grid
from lingon.export.graphs.onnx_writer import WeightFiles
from lingon.export.graphs.precisions import build, states_of, weight_files
from lingon.export.graphs.transformer import TransformerGraphs
from lingon.serving.runtime.device import CPU
from lingon.serving.runtime.device_buffers import DeviceBuffers
from lingon.serving.runtime.host_buffers import OnnxBuffers
from lingon.serving.runtime.onnx_runner import OnnxRunner, load_runner
from lingon.serving.runtime.runner import BatchShape, Encoded, Step
from lingon.serving.runtime.shortlist import Shortlist
from lingon.text import BOS, EOS, PAD, UNK, LanguageTokens, Tokenizer
from lingon.training.batches import EncodedPairs
from lingon.training.checkpoint import Checkpoint, TrainingProgress
from lingon.training.config import load_config
from lingon.training.corpus import Pair
from lingon.training.model_settings import MODEL_KINDS, ModelSettings, TransformerSettings
from lingon.training.models.build import build_model
from lingon.training.models.interface import AnyModel
from lingon.training.models.loss import smoothed_loss
from lingon.training.models.transformer import Transformer
from lingon.training.search import SearchSettings, translate
from lingon.training.tokenizer import train_tokenizer
from tests.support.tokenizers import train_sentencepiece
from tests.support.training_runs import tiny_config_text, write_digit_corpus

Model = TypeVar("Model", bound=nn.Module)

SMALL_VOCAB = 20
SCORES = ("dot", "scaled-dot", "content", "additive", "general", "concat", "mlp")
ALIGNMENTS = ("global", "local-monotonic", "local-predictive")
SIZES: dict[str, dict[str, Any]] = {
    "transformer": {"preset": "tiny"},
    "rnnenc": {"dim": 12, "embedding_dim": 12, "layers": 2},
    "rnnsearch": {"dim": 12, "embedding_dim": 10, "encoder_dim": 6, "attention_dim": 8},
    "luong": {"dim": 12, "embedding_dim": 12, "layers": 2, "attention_dim": 8, "window": 3},
}
SYSTEMS: dict[str, dict[str, Any]] = {
    "transformer": {"kind": "transformer"},
    "transformer rotary": {"kind": "transformer", "positions": "rotary"},
    "transformer none": {"kind": "transformer", "positions": "none"},
    "transformer window": {"kind": "transformer", "encoder_window": 4},
    "transformer additive": {"kind": "transformer", "score": "additive"},
    "transformer linear": {"kind": "transformer", "encoder_attention": "linear"},
    "transformer rotary window": {"kind": "transformer", "norm": "pre", "positions": "rotary", "encoder_window": 3},
    "transformer rotary additive": {"kind": "transformer", "positions": "rotary", "score": "additive"},
    "transformer opus": {"kind": "transformer", "activation": "silu", "output_bias": True, "sinusoids": "halves"},
    "transformer nllb": {"kind": "transformer", "norm": "pre", "sinusoids": "inclusive-halves", "first_position": 2},
    "transformer mbart": {"kind": "transformer", "norm": "pre", "embedding_norm": True, "positions": "learned"},
    "transformer t5": {
        "kind": "transformer",
        "norm": "pre",
        "norm_kind": "rms",
        "gated": True,
        "activation": "gelu-tanh",
        "bias": False,
        "head_dim": 24,
        "scale_embedding": False,
    },
    "transformer relative": {
        "kind": "transformer",
        "norm": "pre",
        "positions": "relative",
        "relative_buckets": 8,
        "relative_distance": 6,
    },
    "transformer relative window": {"kind": "transformer", "positions": "relative", "norm": "pre", "encoder_window": 4},
    "transformer ssru": {"kind": "transformer", "decoder_cell": "ssru", "sinusoids": "inclusive-halves"},
    "transformer ssru pre": {"kind": "transformer", "decoder_cell": "ssru", "norm": "pre", "positions": "learned"},
    # Keys without a norm are as large as the embedding: where that is scaled, random weights turn rounding into more.
    "transformer query norm": {
        "kind": "transformer",
        "norm": "pre",
        "query_norm": True,
        "activation": "silu",
        "scale_embedding": False,
    },
    "transformer both norms": {
        "kind": "transformer",
        "norm": "both",
        "query_norm": True,
        "final_norm": True,
        "scale_embedding": False,
    },
    "transformer gemma": {
        "kind": "transformer",
        "norm": "sandwich",
        "norm_kind": "rms",
        "positions": "rotary",
        "encoder_window": 3,
        "decoder_window": 2,
        "full_attention_every": 2,
        "attention_softcap": 2.0,
        "output_softcap": 3.0,
        "gated": True,
        "activation": "gelu-tanh",
        "bias": False,
    },
    **{f"rnnenc {cell}": {"kind": "rnnenc", "cell": cell} for cell in ("gru", "lstm")},
    "rnnenc reversed": {"kind": "rnnenc", "reverse_source": True},
    "rnnsearch gru": {"kind": "rnnsearch", "cell": "gru"},
    "rnnsearch lstm": {"kind": "rnnsearch", "cell": "lstm"},
    **{f"rnnsearch {score}": {"kind": "rnnsearch", "score": score} for score in SCORES},
    **{f"luong {score}": {"kind": "luong", "score": score} for score in SCORES},
    **{f"luong {alignment}": {"kind": "luong", "alignment": alignment} for alignment in ALIGNMENTS},
    **{f"luong {each} fast": {"kind": "luong", "alignment": each, "input_feeding": False} for each in ALIGNMENTS},
    "luong gru": {"kind": "luong", "cell": "gru"},
}
"""Every system with every option that changes its formula, with settings besides SIZES."""


def system_settings(kind: str, **settings: Any) -> ModelSettings:
    return MODEL_KINDS[kind].model_validate({"max_positions": 24, **SIZES[kind], "kind": kind, **settings})


def random_system(name: str, seed: int = 0, **settings: Any) -> AnyModel:
    """Return a model of SYSTEMS in evaluation mode, whose weights and biases are all large enough to matter."""
    torch.manual_seed(seed)
    return with_noise(build_model(system_settings(**SYSTEMS[name], **settings), SMALL_VOCAB, SMALL_VOCAB))


@torch.no_grad()
def with_noise(model: Model) -> Model:
    for parameter in model.parameters():
        parameter += 0.3 * torch.randn_like(parameter)
    return model.eval()


def ids(*shape: int, seed: int = 7) -> Tensor:
    """Return random token ids of this shape, none of them special."""
    return torch.randint(4, SMALL_VOCAB, shape, generator=torch.Generator().manual_seed(seed))


DIGITS = 14  # vocabulary of the digits: the special pieces and ten others


def learn_to_reverse(settings: ModelSettings, updates: int, batch: int = 64, rate: float = 1e-2) -> float:
    """Train a model to reverse 2 to 6 digits, and return the share of new lines without a mistake."""
    torch.manual_seed(1)
    draw = random.Random(1)
    lines = [[4 + draw.randrange(10) for _ in range(draw.randint(2, 6))] for _ in range(updates * batch)]
    tests = [[4 + draw.randrange(10) for _ in range(6)] for _ in range(50)]  # one in a hundred is also a training line
    pairs = EncodedPairs(lines, [line[::-1] for line in lines])
    model = build_model(settings, DIGITS, DIGITS)
    optimizer = torch.optim.Adam(model.parameters(), lr=rate, fused=True)
    for step in range(updates):
        optimizer.param_groups[0]["lr"] = rate * min(1, (step + 1) / 20, 3 * (updates - step) / updates)
        rows = pairs.batch(range(step * batch, step * batch + batch))
        (smoothed_loss(model(*rows[:3]), rows.labels, 0.0) / rows.tokens).backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    found = translate(model.eval(), [[*line, EOS] for line in tests], SearchSettings())
    right = [hypotheses[0].tokens == tuple(line[::-1]) for hypotheses, line in zip(found, tests, strict=True)]
    return sum(right) / len(right)


VOCAB = 40


@functools.cache
def random_model(seed: int = 0, **settings: Any) -> Transformer:
    """Return a tiny model whose weights are large enough for varied outputs that end."""
    torch.manual_seed(seed)
    model = Transformer(TransformerSettings.model_validate({"preset": "tiny", **settings}), VOCAB, VOCAB).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
        model.output.weight[EOS] *= 1.5
    return model


def limits_of(model: AnyModel) -> Limits:
    """Return small limits, which a test reaches quickly."""
    return Limits(model.settings.max_positions // 2, model.settings.max_positions, 1.5, 8, 8)


def manifest_of(model: AnyModel, precision: str = "fp32", reads: tuple[str, ...] = ()) -> Manifest:
    return Manifest(
        name="random",
        version=1,
        created="2026-01-01T00:00:00+00:00",
        source_language="en",
        target_language="de",
        architecture=model.settings.kind,
        source_vocab=VOCAB,
        target_vocab=VOCAB,
        special_ids={"pad": 0, "bos": 1, "eos": 2, "unk": 3},
        limits=limits_of(model),
        defaults=Defaults(),
        candidates=16,
        states=states_of(model),
        precisions={precision: Precision(CPU, "random", reads)},
        alignment=Alignment(0, tuple(range(min(model.settings.attention_sizes[1], 2)))),
    )


@functools.cache
def random_grid(seed: int = 0, **settings: Any) -> list[CaseReference]:
    """Return the results of random_model on the grid of the gates."""
    model = random_model(seed, **settings)
    return draw_grid(model, limits_of(model))


@functools.cache
def random_runner(seed: int = 0, precision: str = "fp32", threads: int = 1, **settings: Any) -> OnnxRunner:
    """Return the graphs of random_model."""
    return runner_of(random_model(seed, **settings), precision, threads)


def runner_of(
    model: AnyModel,
    precision: str = "fp32",
    threads: int = 1,
    shortlist: Shortlist | None = None,
    *,
    max_beam_size: int = 8,
) -> OnnxRunner:
    """Return the graphs of a model."""
    most = {
        "limits": replace(limits_of(model), max_beam_size=max_beam_size),
        "candidates": min(2 * max_beam_size, VOCAB),
    }
    with tempfile.TemporaryDirectory() as folder:
        bundle = written_bundle(model, Path(folder), [precision], shortlist=shortlist, **most)
        return load_runner(bundle, precision, threads)


def written_bundle(
    model: AnyModel,
    folder: Path,
    precisions: Sequence[str] = ("fp32",),
    *,
    shortlist: Shortlist | None = None,
    files: Mapping[str, bytes] | None = None,
    **declared: Any,
) -> Bundle:
    """Write the graphs of a model below folder, as a bundle whose name is its version.

    files: further ones, such as a tokenizer; declared: values of the manifest
    """
    weights, contents = WeightFiles(), dict(files or {})
    manifest = replace(manifest_of(model), **declared)
    if shortlist is not None:
        contents[SHORTLIST] = shortlist.to_bytes()
        manifest = replace(manifest, shortlist={})
    reads = {}
    for precision in precisions:
        built = build(
            model,
            precision,
            weights,
            random_pairs(8),
            shortlist=shortlist is not None,
            alignment=manifest.alignment,
        )
        contents |= built.graphs
        reads[precision] = Precision(CPU, "random", built.reads)
    manifest = replace(manifest, precisions=reads)
    return write_bundle(folder / str(manifest.version), manifest, contents | weight_files(weights))


@functools.cache
def device_runner(seed: int = 0, **settings: Any) -> OnnxRunner:
    """Return graphs of random_model whose states are on a device, which is main memory here, in fp32."""
    model, weights = random_model(seed, **settings), WeightFiles()
    graphs = TransformerGraphs(model, np.float32, weights, device_states=True)
    files = {f"fp32/{name}": content for name, content in graphs.files().items()} | weight_files(weights)
    with tempfile.TemporaryDirectory() as folder:
        manifest = manifest_of(model, reads=tuple(sorted(graphs.reads)))
        return load_runner(write_bundle(Path(folder) / "1", manifest, files), "fp32", threads=1)


def random_pairs(count: int) -> list[tuple[list[int], list[int]]]:
    """Return random sources, which end with EOS, and targets without special tokens."""
    pairs = zip(random_sources(count), random_sources(count, seed=1), strict=True)
    return [(list(source), list(target[:-1])) for source, target in pairs]


def random_sources(count: int, longest: int = 24, seed: int = 0) -> list[tuple[int, ...]]:
    """Return random sources of 2 to `longest` tokens, the last one EOS."""
    random = np.random.default_rng(seed)
    lengths = random.integers(1, longest, count)
    return [(*random.integers(UNK + 1, VOCAB, length).tolist(), EOS) for length in lengths]


TESTED_AS_KINDS = "rnnsearch additive", "luong global"
RECURRENT = [name for name in SYSTEMS if not name.startswith("transformer") and name not in TESTED_AS_KINDS]
"""Every recurrent system once: the last two are `rnnsearch gru` and `luong general`."""

VARIANTS = [name for name in SYSTEMS if name.startswith("transformer ")]
"""The variants of the Transformer, and combinations of them."""

KINDS = ["rnnenc lstm", "rnnsearch gru", "luong local-predictive"]
"""One system of each kind. Together they have both cells and every kind of state."""


SEEDS = {"transformer query norm": 1}  # with 0, the rounding of int8 changes its attention


@functools.cache
def recurrent_model(name: str, seed: int | None = None, **settings: Any) -> AnyModel:
    """Return a model of SYSTEMS whose weights are large enough for varied outputs that end."""
    torch.manual_seed(SEEDS.get(name, 0) if seed is None else seed)
    sizes = system_settings(**SYSTEMS[name], **{"max_positions": 24, **settings})
    model = with_noise(build_model(sizes, VOCAB, VOCAB))
    with torch.no_grad():
        model.output.weight[EOS] *= 1.5
    return model


@functools.cache
def recurrent_grid(name: str, **settings: Any) -> list[CaseReference]:
    """Return the results of recurrent_model on the grid of the gates."""
    model = recurrent_model(name, **settings)
    return draw_grid(model, limits_of(model))


@functools.cache
def recurrent_runner(name: str, precision: str = "fp32", threads: int = 1, **settings: Any) -> OnnxRunner:
    """Return the graphs of recurrent_model."""
    return runner_of(recurrent_model(name, **settings), precision, threads)


@functools.cache
def emulated_grid(name: str, precision: str) -> list[CaseReference]:
    """Return the results of the model that emulates the 8-bit graphs of recurrent_model, in a precision."""
    model = recurrent_model(name)
    emulation = build(model, precision, WeightFiles(), random_pairs(8), shortlist=False).emulation
    assert emulation is not None
    return draw_grid(emulation(), limits_of(model))


def random_checkpoint(folder: Path, pairs: list[Pair], seed: int = 0, *, byte_pieces: bool = True) -> Checkpoint:
    """Return a checkpoint with random weights and a tokenizer of these pairs, whose text is in folder/text.

    byte_pieces: whether it generates them. In random order they are no characters, and a server decodes again
    """
    write_digit_corpus(folder / "text", pairs=200)
    (folder / "text" / "config.toml").write_text(tiny_config_text())
    config = load_config(folder / "text" / "config.toml")
    tokenizer = train_tokenizer(pairs, config.tokenizer)
    if not byte_pieces:
        never = tuple(token for token in range(tokenizer.target_vocab) if tokenizer.target.is_byte(token))
        config = config.model_copy(update={"model": config.model.model_copy(update={"never_generated": never})})
    torch.manual_seed(seed)
    model = Transformer(config.model, tokenizer.source_vocab, tokenizer.target_vocab).eval()
    return Checkpoint(config, tokenizer, model, TrainingProgress(step=7), folder)


def accept_any_quality(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let lossy precisions and the shortlist of a model that is not trained pass their gate."""
    for bound, value in {
        "MAX_BLEU_LOSS": 100,
        "MAX_CHRF_LOSS": 100,
        "LEAST_LIKE_BLEU": 0,
        "LEAST_LIKE_CHRF": 0,
    }.items():
        monkeypatch.setattr(lingon.export.gates_text, bound, value)


def decided(model: Transformer, gain: float = 20) -> Transformer:
    """Return the model with random weights that give various translations. A large gain gives large margins."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
        for parameter in model.decoder_norm.parameters():
            parameter.mul_(gain)
    return model


STEPS = 6


def encode(runner: OnnxRunner, sources: list[tuple[int, ...]], padding: int = 0) -> Encoded:
    longest = max(map(len, sources)) + padding
    ids = np.array([[*source, *[PAD] * (longest - len(source))] for source in sources])
    return runner.encode(ids, np.array([len(source) for source in sources]))


def step(
    buffers: OnnxBuffers | DeviceBuffers, tokens: list[int], positions: list[int], *, logits: bool = False
) -> Step:
    """Run one step, with one token for every row."""
    buffers.token_ids[: len(tokens)], buffers.positions[: len(tokens)] = tokens, positions
    return buffers.step(len(tokens) // buffers.beam_size, logits=logits)


def decode(runner: OnnxRunner, encoded: Encoded, rows: list[int], width: int, capacity: int = 16) -> list[np.ndarray]:
    """Return the log-probabilities of the candidates in STEPS steps of fixed tokens, for some rows of an encoder
    batch.
    """
    buffers = runner.open(BatchShape(len(rows), 1, width, capacity))
    for slot, row in enumerate(rows):
        buffers.place(slot, encoded, row)
    found = []
    for number in range(STEPS):
        tokens = [BOS if number == 0 else 5 + number] * len(rows)
        found.append(step(buffers, tokens, [number] * len(rows)).candidate_log_probs.copy())
    return found


PHRASES = ["the fox", "jumps", "over", "a dog", "my box"]


@functools.cache
def letters_tokenizer() -> bytes:
    """Return a tokenizer of VOCAB pieces that reads every lower-case text."""
    words = " ".join(PHRASES).split()
    return train_sentencepiece(
        [f"{word}{LETTERS[position:]} {LETTERS}" for position, word in enumerate(words * 4)], VOCAB
    )


def system_model(name: str, seed: int = 1) -> AnyModel:
    """Return the model that `publish` exports: `transformer`, or one of the recurrent systems."""
    return random_model(seed) if name == "transformer" else recurrent_model(name, seed=seed)


def publish(folder: Path, name: str, version: int = 1) -> Bundle:
    """Write a bundle of a random system, in fp32, below folder."""
    model, files = system_model(name, version), {"tokenizer.model": letters_tokenizer()}
    return written_bundle(model, folder / "random", files=files, version=version)


CODES = ["<2en>", "<2de>", "<2fr>"]  # control pieces with the ids 4, 5 and 6
LANGUAGES = Languages(
    (SourceLanguage("en", (4,), ()), SourceLanguage("de", (), (5,)), SourceLanguage("fr", (6, 4), ())),
    (TargetLanguage("en", (), (4,)), TargetLanguage("de", (), (5,)), TargetLanguage("fr", (6,), (6, 4))),
)
PAIRS = list(LANGUAGES.pairs())
TEXTS = [
    "the quick brown fox",
    "jumps over",
    "the lazy dog",
    "pack my box with five dozen jugs",
    "sphinx of black quartz",
    "judge my vow",
]
LETTERS = "abcdefghijklmnopqrstuvwxyz"


@functools.cache
def tokenizer_model() -> bytes:
    lines = [
        f"{word}{LETTERS[position:]} {LETTERS[:position]}" for position, word in enumerate(" ".join(TEXTS).split() * 3)
    ]
    return train_sentencepiece(lines, VOCAB, control_symbols=CODES)


def model() -> Transformer:
    """Return a model that generates no code of a language by itself."""
    return random_model(never_generated=(4, 5, 6))


def tokens_of(source: str, target: str) -> LanguageTokens:
    return LANGUAGES.tokens(source, target)


def tokenizer_of(source: str, target: str) -> Tokenizer:
    return Tokenizer(tokenizer_model()).for_languages(tokens_of(source, target))


def write_multilingual_bundle(folder: Path, golden: Golden | None = None) -> Bundle:
    """Write version 1 of the model `many` at folder, which ends in 1."""
    files = {"tokenizer.model": tokenizer_model()}
    return written_bundle(
        model(),
        folder.parent,
        files=files if golden is None else {**files, GOLDEN: golden.to_bytes()},
        name="many",
        source_language=MANY,
        target_language=MANY,
        languages=LANGUAGES,
        defaults=Defaults(length_penalty=0),  # with one, beams find other translations than greedy search
    )


def random_prefix(length: int, seed: int = 0) -> tuple[int, ...]:
    """Return tokens of the target without special ones."""
    return tuple(random.Random(seed).choices(range(UNK + 1, VOCAB), k=length))
