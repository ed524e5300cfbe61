"""Checkpoints of OpenNMT-py and of Eole with random weights, and what these toolkits themselves answer for them.

`python -m tests.support.opennmt_checkpoints` writes the answers of the toolkits that it can import, and keeps those of
the others. OpenNMT-py is installed by `pip install --no-deps OpenNMT-py==3.5.1`, because it declares an old PyTorch.
OpenNMT-py 2.3.0 needs torchtext 0.5.0 besides, also without its dependencies.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import re
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor

from lingon.training.models.layers import sinusoids
from tests.support.ctranslate2_models import DATA, SIDES, pieces_of, texts
from tests.support.foreign_models import normal_pieces

DIM, FFN, LAYERS, POSITIONS = 32, 48, 2, 5000
HEAD = ["<unk>", "<blank>", "<s>", "</s>"]
TEXTS = 20  # that are asked for
ENDS = 3.0  # added to the output bias of the end token, so that translations end
ANSWERS = DATA / "answers_of_checkpoints.json"
CHECKPOINT = "model_step_10.pt"


@dataclass(frozen=True, slots=True)
class PyForm:
    """A form of checkpoint.

    options: those that differ from the usual ones
    version: of OpenNMT-py
    shared: whether source and target have one vocabulary and one table
    tied: whether the output is the table of the target
    qkv_bias, ffn_bias: whether the products add one
    container: of the tensors: that of the options, or safetensors beside it
    """

    name: str
    options: dict[str, Any] = field(default_factory=dict)
    version: int = 3
    shared: bool = False
    tied: bool = False
    qkv_bias: bool = True
    ffn_bias: bool = True
    container: str = "pickle"

    @property
    def heads(self) -> int:
        """Heads of queries."""
        return int(self.options.get("heads", 4))

    @property
    def key_heads(self) -> int:
        """Heads of keys and values."""
        return int(self.options.get("num_kv", 0)) or self.heads


ROTARY = {"position_encoding": False, "max_relative_positions": -1, "heads": 4}
FORMS = (
    PyForm("version 3"),
    PyForm("version 2", version=2),
    PyForm("shared tables", {"position_encoding_type": "SinusoidalConcat"}, shared=True, tied=True),
    PyForm("tied output, gelu", {"pos_ffn_activation_fn": "gelu"}, tied=True, qkv_bias=False),
    PyForm("rotary, gated", {**ROTARY, "pos_ffn_activation_fn": "silu", "layer_norm": "rms"}, qkv_bias=False),
    PyForm("rotary halves, grouped heads", {**ROTARY, "rotary_interleave": False, "num_kv": 2}),
    PyForm(
        "relative buckets",
        {
            "position_encoding": False,
            "max_relative_positions": 20,
            "relative_positions_buckets": 16,
            "pos_ffn_activation_fn": "gated-gelu",
            "norm_eps": 1e-3,
        },
        ffn_bias=False,
    ),
    PyForm("safetensors", container="safetensors"),
)


def form(name: str) -> PyForm:
    """Return the form of this name."""
    return next(each for each in FORMS if each.name == name)


def vocabularies(form: PyForm) -> tuple[list[str], list[str]]:
    """Return the pieces of both sides. Those that round a vocabulary up are there too."""
    found = [normal_pieces((DATA / name).read_bytes()) for name in SIDES.values()]
    if form.shared:
        both = [*HEAD, *dict.fromkeys([*found[0], *found[1]]), "averyunlikelytoken0"]
        return both, both
    source = [*HEAD[:2], *found[0]] if form.version == 2 else [*HEAD, *found[0], "averyunlikelytoken0"]
    return source, [*HEAD, *found[1]]


def tensors(form: PyForm) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return the tensors of the model and of its output, by the names of OpenNMT-py."""
    random = np.random.default_rng(7)

    def draw(*shape: int, spread: float = 0.4, middle: float = 0.0) -> Tensor:
        return torch.from_numpy(random.normal(middle, spread, shape).astype(np.float32))

    found: dict[str, Tensor] = {}

    def product(name: str, outputs: int, inputs: int, *, bias: bool) -> None:
        found[f"{name}.weight"] = draw(outputs, inputs)
        if bias:
            found[f"{name}.bias"] = draw(outputs, spread=0.1)

    def norm(name: str) -> None:
        found[f"{name}.weight"] = draw(DIM, spread=0.1, middle=1.0)
        if form.options.get("layer_norm", "standard") == "standard":
            found[f"{name}.bias"] = draw(DIM, spread=0.1)

    def attention(name: str, *, biases: Tensor | None = None) -> None:
        narrow = form.key_heads * DIM // form.heads
        for part, width in (("keys", narrow), ("values", narrow), ("query", DIM)):
            product(f"{name}.linear_{part}", width, DIM, bias=form.qkv_bias)
        product(f"{name}.final_linear", DIM, DIM, bias=form.qkv_bias)
        if biases is not None:
            found[f"{name}.relative_attention_bias.weight"] = biases

    for side, layers in (("encoder", "encoder.transformer"), ("decoder", "decoder.transformer_layers")):
        vocabulary = vocabularies(form)[side == "decoder"]
        table = f"{side}.embeddings.make_embedding.emb_luts.0.weight"
        found[table] = draw(len(vocabulary), DIM)
        if side == "decoder" and form.shared:
            found[table] = found[table.replace("decoder", "encoder")]
        if form.options.get("position_encoding", True):
            kind = form.options.get("position_encoding_type", "SinusoidalInterleaved")
            order: Any = {"SinusoidalInterleaved": "interleaved", "SinusoidalConcat": "inclusive-halves"}[kind]
            found[f"{side}.embeddings.make_embedding.pe.pe"] = sinusoids(POSITIONS, DIM, order)[:, None]
        buckets = form.options.get("relative_positions_buckets")
        biases = draw(buckets, form.heads) if buckets else None
        for number in range(LAYERS):
            layer = f"{layers}.{number}"
            attention(f"{layer}.self_attn", biases=biases)
            norm(f"{layer}.layer_norm" if side == "encoder" else f"{layer}.layer_norm_1")
            if side == "decoder":
                attention(f"{layer}.context_attn")
                norm(f"{layer}.layer_norm_2")
            product(f"{layer}.feed_forward.w_1", FFN, DIM, bias=form.ffn_bias)
            product(f"{layer}.feed_forward.w_2", DIM, FFN, bias=form.ffn_bias)
            if form.options.get("pos_ffn_activation_fn") in ("silu", "gated-gelu"):
                product(f"{layer}.feed_forward.w_3", FFN, DIM, bias=form.ffn_bias)
            norm(f"{layer}.feed_forward.layer_norm")
        norm(f"{side}.layer_norm")
    target = vocabularies(form)[1]
    bias = draw(len(target), spread=0.2)
    bias[target.index("</s>")] += ENDS
    for piece in ("<unk>", "<blank>", "<s>", "averyunlikelytoken0"):  # which Lingon gives no probability
        bias[target.index(piece) if piece in target else 0] = -1e4
    table = found["decoder.embeddings.make_embedding.emb_luts.0.weight"]
    weight = table if form.tied else draw(len(target), DIM)
    prefix = "0." if form.version == 2 else ""
    return found, {f"{prefix}weight": weight, f"{prefix}bias": bias}


def options(form: PyForm) -> argparse.Namespace:
    """Return the options of a checkpoint. Version 2 has fewer."""
    values: dict[str, Any] = {
        "model_type": "text",
        "model_task": "seq2seq",
        "encoder_type": "transformer",
        "decoder_type": "transformer",
        "enc_layers": LAYERS,
        "dec_layers": LAYERS,
        "heads": 4,
        "transformer_ff": FFN,
        "position_encoding": True,
        "max_relative_positions": 0,
        "self_attn_type": "scaled-dot",
        "copy_attn": False,
        "share_decoder_embeddings": form.tied,
        "share_embeddings": form.shared,
        "share_vocab": form.shared,
        "transforms": ["sentencepiece", "filtertoolong"],
        "src_subword_model": "/data/models/source.spm",
        "tgt_subword_model": "/data/models/target.spm",
        "dropout": [0.1],
        "attention_dropout": [0.1],
        "lambda_align": 0.0,
        "freeze_word_vecs_enc": False,
        "freeze_word_vecs_dec": False,
        "optim": "adam",
        "world_size": 1,
        "param_init": 0.1,
    }
    if form.version == 2:
        return argparse.Namespace(**{**values, "rnn_size": DIM, "word_vec_size": DIM, **form.options})
    new: dict[str, Any] = {
        "pos_ffn_activation_fn": "relu",
        "layer_norm": "standard",
        "norm_eps": 1e-6,
        "num_kv": 0,
        "add_qkvbias": form.qkv_bias,
        "add_ffnbias": form.ffn_bias,
        "parallel_residual": False,
        "relative_positions_buckets": 0,
        "rotary_interleave": True,
        "rotary_theta": 10000,
        "rotary_dim": 0,
        "hidden_size": DIM,
        "enc_hid_size": DIM,
        "dec_hid_size": DIM,
        "src_word_vec_size": DIM,
        "tgt_word_vec_size": DIM,
        "data": {"corpus_1": {"path_src": "a", "path_tgt": "b", "transforms": ["sentencepiece", "filtertoolong"]}},
    }
    return argparse.Namespace(**{**values, **new, **form.options})


def save_opennmt_py(folder: Path, form: PyForm, **changed: Any) -> Path:
    """Save a checkpoint with the sentencepiece models beside it. changed: options that differ."""
    folder.mkdir(parents=True)
    for name in SIDES.values():
        shutil.copy(DATA / name, folder / name)
    model, output = tensors(form)
    said = argparse.Namespace(**{**vars(options(form)), **changed})
    source, target = vocabularies(form)
    optimiser = {"training_step": 10, "optimizer": {"state": {0: {"exp_avg": torch.zeros(3)}}, "param_groups": []}}
    held: dict[str, Any] = {"opt": said, "optim": optimiser}
    if form.container == "safetensors":
        held["vocab"] = _lists(source, target)
        named = {**model, **{f"generator.{name}": tensor for name, tensor in output.items()}}
        for number, names in enumerate((sorted(named)[::2], sorted(named)[1::2])):
            save_file({each: named[each] for each in names}, folder / f"model_step_10.{number:02}.safetensors")
        torch.save(held, folder / CHECKPOINT)
        return folder
    held |= {"model": model, "generator": output}
    if form.version == 3:
        torch.save({**held, "vocab": _lists(source, target)}, folder / CHECKPOINT)
        return folder
    with _torchtext() as (field_of, tuple_of):
        fields = {"src": tuple_of("src", field_of(source)), "tgt": tuple_of("tgt", field_of(target, "<s>", "</s>"))}
        torch.save({**held, "vocab": fields}, folder / CHECKPOINT)
    return folder


def _lists(source: list[str], target: list[str]) -> dict[str, Any]:
    return {"src": source, "tgt": target, "data_task": "seq2seq", "decoder_start_token": "<s>"}


@contextmanager
def _torchtext() -> Iterator[tuple[Any, Any]]:
    """Yield what makes the fields of version 2, by classes of the names that torchtext 0.5 and OpenNMT-py have."""
    named = ("torchtext.vocab.Vocab", "torchtext.data.field.Field", "onmt.inputters.text_dataset.TextMultiField")
    tokenize = "onmt.inputters.text_dataset._feature_tokenize"
    modules = {}
    for name in (*named, tokenize):
        package, _, last = name.rpartition(".")
        module = modules.setdefault(package, ModuleType(package))
        if name == tokenize:
            exec(f"def {last}(string, **options): return string.split()", module.__dict__)
        else:
            setattr(module, last, type(last, (), {"__module__": package}))
    parents = {name.rsplit(".", cut)[0] for name in modules for cut in range(1, name.count(".") + 1)}
    modules |= {name: ModuleType(name) for name in parents - modules.keys()}
    before = {name: sys.modules.get(name) for name in modules}
    sys.modules.update(modules)
    vocab, plain, multiple = (getattr(modules[name.rpartition(".")[0]], name.rpartition(".")[2]) for name in named)

    def field_of(pieces: list[str], start: str | None = None, end: str | None = None) -> Any:
        words, found = vocab(), plain()
        words.__dict__ |= {"freqs": Counter(pieces), "itos": pieces, "vectors": None, "unk_index": 0}
        words.stoi = {piece: number for number, piece in enumerate(pieces)}
        tokenize = modules["onmt.inputters.text_dataset"]._feature_tokenize
        cut = partial(tokenize, layer=None, truncate=None, feat_delim=None)
        tokens = {"init_token": start, "eos_token": end, "unk_token": "<unk>", "pad_token": "<blank>"}
        flags = {"sequential": True, "use_vocab": True, "include_lengths": start is None}
        off = ("batch_first", "lower", "pad_first", "truncate_first", "is_target")
        none = ("fix_length", "preprocessing", "postprocessing", "stop_words")
        found.__dict__ |= {**tokens, **flags, **dict.fromkeys(off, False), **dict.fromkeys(none)}
        found.__dict__ |= {"tokenizer_args": (cut, "en"), "dtype": "int64", "vocab": words, "tokenize": cut}
        return found

    def tuple_of(name: str, each: Any) -> Any:
        found = multiple()
        found.__dict__ |= {"preprocessing": None, "postprocessing": None, "is_target": False, "fields": [(name, each)]}
        return found

    try:
        yield field_of, tuple_of
    finally:
        for name, module in before.items():
            sys.modules.pop(name)
            if module is not None:
                sys.modules[name] = module


EOLE_NAMES = {
    r"^encoder\.embeddings\.make_embedding\.emb_luts\.0": "src_emb.embeddings",
    r"^decoder\.embeddings\.make_embedding\.emb_luts\.0": "tgt_emb.embeddings",
    r"^encoder\.embeddings\.make_embedding": "src_emb",
    r"^decoder\.embeddings\.make_embedding": "tgt_emb",
    r"^encoder\.transformer\.": "encoder.transformer_layers.",
    r"\.feed_forward\.layer_norm\.": ".post_attention_layernorm.",
    r"(\d)\.layer_norm(_1)?\.": r"\1.input_layernorm.",
    r"\.layer_norm_2\.": ".precontext_layernorm.",
    r"\.feed_forward\.w_1\.": ".mlp.gate_up_proj.",
    r"\.feed_forward\.w_2\.": ".mlp.down_proj.",
    r"\.feed_forward\.w_3\.": ".mlp.up_proj.",
}
"""Patterns of the names of OpenNMT-py, and what Eole has in their place."""


def save_eole(folder: Path, form: PyForm, **changed: Any) -> Path:
    """Save a folder of Eole. changed: options of the model that differ."""
    folder.mkdir(parents=True)
    for name in SIDES.values():
        shutil.copy(DATA / name, folder / name)
    model, output = tensors(form)
    named = {**model, **{f"generator.{name}": tensor for name, tensor in output.items()}}
    for pattern, name in EOLE_NAMES.items():
        named = {re.sub(pattern, name, each): tensor for each, tensor in named.items()}
    scalars = {f"decoder.transformer_layers.{number}.layer_scalar": torch.ones(1) for number in range(LAYERS)}
    tied = (["tgt_emb.embeddings.weight"] if form.shared else []) + (["generator.weight"] if form.tied else [])
    named = {name: tensor for name, tensor in {**named, **scalars}.items() if name not in tied}
    save_file(named, folder / "model.00.safetensors")
    source, target = vocabularies(form)
    specials = {"bos_token": "<s>", "pad_token": "<blank>", "eos_token": "</s>", "unk_token": "<unk>"}
    vocab = {"src": source, "tgt": target, "decoder_start_token": "<s>", "specials": specials}
    (folder / "vocab.json").write_text(json.dumps(vocab), encoding="utf-8")
    (folder / "config.json").write_text(json.dumps(_eole_config(form, changed)), encoding="utf-8")
    return folder


def _eole_config(form: PyForm, changed: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a folder of Eole, where the encoder, the decoder and the embeddings have their own."""
    said = options(form)
    positions = "Rotary" if said.max_relative_positions == -1 else form.options.get("position_encoding_type")
    positions = positions or "SinusoidalInterleaved"
    activation = {"silu": "gated-silu"}.get(said.pos_ffn_activation_fn, said.pos_ffn_activation_fn)
    common: dict[str, Any] = {
        "hidden_size": DIM,
        "heads": form.heads,
        "heads_kv": form.key_heads,
        "transformer_ff": FFN,
        "mlp_activation_fn": activation,
        "add_qkvbias": form.qkv_bias,
        "add_final_linear_bias": form.qkv_bias,
        "add_ffnbias": form.ffn_bias,
        "layer_norm": said.layer_norm,
        "norm_eps": 1e-5,
        "position_encoding_type": positions,
        **changed,
    }
    if positions == "Rotary":
        common["rope_config"] = {"rotary_interleave": said.rotary_interleave, "rotary_theta": 10000, "rotary_dim": 0}
    width = {"src_word_vec_size": DIM, "tgt_word_vec_size": DIM, "word_vec_size": DIM}
    model = {
        "architecture": "transformer",
        "share_embeddings": form.shared,
        "share_decoder_embeddings": form.tied,
        "generator_bias": True,
        **common,
        "embeddings": {**width, "position_encoding_type": positions},
        "encoder": {"encoder_type": "transformer", "layers": LAYERS, "src_word_vec_size": DIM, **common},
        "decoder": {"decoder_type": "transformer", "layers": LAYERS, "tgt_word_vec_size": DIM, **common},
    }
    cut = {
        f"{side}_subword_model": f"${{MODEL_PATH}}/{name}.spm" for side, name in (("src", "source"), ("tgt", "target"))
    }
    return {
        "src_vocab": "vocab",
        "tgt_vocab": "vocab",
        "share_vocab": form.shared,
        "transforms": ["sentencepiece", "filtertoolong"],
        "transforms_configs": {"sentencepiece": cut, "filtertoolong": {"src_seq_length": 99}},
        "data": {},
        "training": {"dropout": [0.1], "attention_dropout": [0.0]},
        "model": model,
    }


TOOLKITS: dict[str, tuple[PyForm, ...]] = {
    "OpenNMT-py 3": tuple(each for each in FORMS if each.version == 3),
    "OpenNMT-py 2": tuple(each for each in FORMS if each.version == 2),
    "Eole": (
        form("version 3"),
        form("shared tables"),
        form("tied output, gelu"),
        form("rotary, gated"),
        replace(form("rotary halves, grouped heads"), tied=True),
    ),
}
"""The forms of each toolkit."""


def save_checkpoint(folder: Path, toolkit: str, form: PyForm, **changed: Any) -> Path:
    """Save a form as a toolkit does. changed: options that differ."""
    return (save_eole if toolkit == "Eole" else save_opennmt_py)(folder, form, **changed)


# What the toolkits answer.

SEARCHES = {"greedy": 1, "beam 5": 5}
"""Beam sizes. The score of a translation is the sum of those of its tokens."""
MOST = 24  # target tokens, the end counted
Answers = dict[str, list[tuple[str, float]]]
"""For each search and text its translation, as pieces with blanks between them, and the score."""


def kept() -> dict[str, Any]:
    """Return the answers that are kept: for each toolkit its version, and the answers for each form by name."""
    found: dict[str, Any] = json.loads(ANSWERS.read_text(encoding="utf-8"))
    return found


def sources(folder: Path) -> list[str]:
    """Return the first TEXTS of `texts` as pieces with blanks between them."""
    return [" ".join(pieces) for pieces in pieces_of(texts()[:TEXTS], folder)]


def opennmt_py_answers(folder: Path, beam_size: int) -> list[tuple[str, float]]:
    """Return what the installed OpenNMT-py answers."""
    import onmt
    from onmt.opts import translate_opts
    from onmt.utils.parse import ArgumentParser

    parser = ArgumentParser()
    translate_opts(parser)
    given = [
        "-model",
        str(folder / CHECKPOINT),
        "-src",
        "none",
        "-output",
        os.devnull,
        "-gpu",
        "-1",
        "-beam_size",
        str(beam_size),
    ]
    opt = parser.parse_args([*given, "-max_length", str(MOST), "-ban_unk_token", "-length_penalty", "none"])
    ArgumentParser.validate_translate_opts(opt)
    if onmt.__version__.startswith("2"):
        return _answers_of_version_2(opt, sources(folder))
    from onmt.inference_engine import InferenceEnginePY

    opt.max_length_ratio, opt._all_transform, opt.transforms = 0, [], []
    with torch.serialization.safe_globals([argparse.Namespace]):
        scores, predicted = InferenceEnginePY(opt).infer_list(sources(folder))
    return _best(predicted, scores)


def _answers_of_version_2(opt: Any, texts: list[str]) -> list[tuple[str, float]]:
    from onmt.translate.translator import build_translator
    from torchtext.data import Field

    os.environ["TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"] = "1"  # this file is our own
    translator = build_translator(opt, report_score=False)
    translator.fields["indices"] = Field(use_vocab=False, dtype=torch.long, sequential=False)
    scores, predicted = translator.translate(src=texts, batch_size=8, batch_type="sents")
    return _best(predicted, scores)


def eole_answers(folder: Path, beam_size: int) -> list[tuple[str, float]]:
    """Return what the installed Eole answers."""
    from eole.config.run import PredictConfig
    from eole.inference_engine import InferenceEnginePY

    config = PredictConfig(
        model_path=[str(folder)],
        src="none",
        beam_size=beam_size,
        max_length=MOST,
        max_length_ratio=0,
        ban_unk_token=True,
        length_penalty="none",
        compute_dtype="fp32",
        transforms=[],
        batch_size=8,
        batch_type="sents",
        gpu_ranks=[],
        world_size=0,
    )
    config._all_transform = []
    try:
        scores, _, predicted = InferenceEnginePY(config).infer_list(sources(folder))
    finally:
        torch.backends.cuda.enable_math_sdp(True)  # Eole turns it off for the whole process
    return _best(predicted, scores)


def _best(predicted: list[list[str]], scores: list[list[Any]]) -> list[tuple[str, float]]:
    return [(text[0], round(float(score[0]), 5)) for text, score in zip(predicted, scores, strict=True)]


def installed() -> dict[str, tuple[str, Any]]:
    """Return the version of each toolkit that can be imported, and what gives its answers."""
    found: dict[str, tuple[str, Any]] = {}
    for package, ask in (("OpenNMT-py", opennmt_py_answers), ("eole", eole_answers)):
        with suppress(importlib.metadata.PackageNotFoundError):
            version = importlib.metadata.version(package)
            found[f"OpenNMT-py {version[0]}" if package == "OpenNMT-py" else "Eole"] = version, ask
    return found


def answers(toolkit: str, form: PyForm, ask: Any) -> Answers:
    """Return what a toolkit answers for a form."""
    with tempfile.TemporaryDirectory() as room:
        folder = save_checkpoint(Path(room) / "files", toolkit, form)
        return {name: ask(folder, beam_size) for name, beam_size in SEARCHES.items()}


def main() -> None:
    """Write the answers of the toolkits that are installed."""
    found = kept() if ANSWERS.is_file() else {}
    for toolkit, (version, ask) in installed().items():
        said = {form.name: answers(toolkit, form, ask) for form in TOOLKITS[toolkit]}
        found[toolkit] = {"version": version, "answers": said}
    text = json.dumps({name: found[name] for name in sorted(found)}, ensure_ascii=False, indent=1)
    ANSWERS.write_text(re.sub(r"\[\n +(.*),\n +(.*)\n +\]", r"[\1, \2]", text) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
