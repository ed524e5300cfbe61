"""Tiny models of other toolkits with random weights, saved as published ones are. They need Transformers."""

from __future__ import annotations

import io
import json
import shutil
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import onnx
import sentencepiece
import torch
from onnx import GraphProto, ModelProto, helper
from safetensors.torch import load_file, save_file
from sentencepiece import sentencepiece_model_pb2 as spm
from torch import Tensor

from lingon.importers.files.tensors import DECODERS, ENCODER, SAFETENSORS
from lingon.importers.pipeline import Imported
from lingon.importers.toolkits.comparison import new_ids
from lingon.text import BOS
from lingon.training.search import SearchSettings, translate
from tests.support.repository import ROOT
from tests.support.tokenizers import END, learn_merges, pieces_of

DATA = ROOT / "tests" / "data"


def silent(line: str) -> None:
    """A log that nobody reads."""


def edit_json(path: Path, **values: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), **values}), encoding="utf-8")


def config(**values: Any) -> Callable[[Path], None]:
    """A change of the configuration in a folder."""
    return lambda folder: edit_json(folder / "config.json", **values)


def tensors(change: Callable[[dict[str, Tensor]], object]) -> Callable[[Path], None]:
    """A change of the tensors in a folder."""

    def apply(folder: Path) -> None:
        found = load_file(folder / SAFETENSORS)
        change(found)
        save_file(found, folder / SAFETENSORS)

    return apply


def check_varied(imported: Imported, texts: Sequence[str]) -> None:
    """Otherwise equal tokens would say nothing: a random model may say one word for ever."""
    model, tokenizer = imported.checkpoint.model, imported.checkpoint.tokenizer
    found = translate(model, [tokenizer.encode_source(text) for text in texts], SearchSettings())
    assert len({best.tokens for best, *_ in found}) >= 10
    assert sum(best.finished for best, *_ in found) >= 10


def check_logits(imported: Imported, folder: Path, texts: Sequence[str], tolerance: float) -> None:
    """The model has the logits that Transformers has for the files in a folder, within a tolerance."""
    from transformers import AutoModelForSeq2SeqLM

    theirs = AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    source, target = imported.source.source.rows, imported.source.target.rows
    generated = sorted(new_ids(imported.source.target).values())
    for text in texts:
        ids = imported.checkpoint.tokenizer.encode_source(text)
        given = [BOS, *generated[:40]]
        mine = imported.checkpoint.model(torch.tensor([ids]), torch.tensor([len(ids)]), torch.tensor([given]))
        foreign = theirs(
            input_ids=torch.tensor([[source[each] for each in ids]]),
            decoder_input_ids=torch.tensor([[target[each] for each in given]]),
        ).logits
        expected = foreign[..., [target[each] for each in generated]]
        torch.testing.assert_close(mine[..., generated], expected, rtol=1e-4, atol=tolerance)


def lines(language: str) -> list[str]:
    return (DATA / f"tatoeba.{language}").read_text(encoding="utf-8").splitlines()


def train_pieces(texts: Sequence[str], size: int, kind: str = "unigram") -> bytes:
    """Return a sentencepiece model as OPUS-MT trains its own: unknown 0, begin 1, end 2, no padding."""
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts),
        model_writer=written,
        vocab_size=size,
        model_type=kind,
        minloglevel=2,
        hard_vocab_limit=False,
    )
    return written.getvalue()


def normal_pieces(content: bytes) -> list[str]:
    model = spm.ModelProto()
    model.ParseFromString(content)
    return [piece.piece for piece in model.pieces if piece.type == piece.NORMAL]


def usual_spread(name: str, parameter: Tensor) -> float:
    """Return the spread of a parameter: 0.15 for tables, 0.3 for products, 0.1 for others."""
    return 0.15 if "shared" in name or "embed" in name else 0.3 if parameter.dim() == 2 else 0.1


@torch.no_grad()
def draw_weights(model: Any, seed: int, spread: Callable[[str, Tensor], float] = usual_spread) -> torch.Generator:
    """Draw weights large enough for varied outputs, and return the generator. A spread of 0 keeps a parameter."""
    random = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        if width := spread(name, parameter):
            noise = width * torch.randn(parameter.shape, generator=random)
            parameter.copy_(noise if parameter.dim() == 2 else parameter + noise)
    return random


@torch.no_grad()
def random_weights(model: Any, seed: int, *, ends: float) -> None:
    """Draw the weights of a Marian model whose outputs end. ends: added to the output bias of the end token, id 0."""
    random = draw_weights(model, seed)
    model.final_logits_bias.normal_(0, 0.3, generator=random)
    model.final_logits_bias[0, 0] += ends
    start = model.config.decoder_start_token_id
    for table in (model.model.encoder.embed_tokens, model.model.decoder.embed_tokens):
        table.weight[start if start < len(table.weight) else -1] = 0


@torch.no_grad()
def point_to_end(norm: Any, row: Tensor, ends: float) -> None:
    """Raise the logit of the end token by `ends`: the bias of the last norm points to its row of the output layer."""
    norm.bias += ends * row / row.dot(row)


def save_opus_mt(
    folder: Path,
    *,
    separate: bool = False,
    seed: int = 1,
    codes: Sequence[str] = (),
    unused: int = 0,
    ends: float = 2.4,
    **config: Any,
) -> Path:
    """Save a MarianMTModel with the files of an OPUS-MT model: the dictionary is in another order than the pieces.

    unused: pieces of the dictionary besides that no text is cut into
    """
    from transformers import GenerationConfig, MarianConfig, MarianMTModel

    models = {side: train_pieces(lines(language), 300) for side, language in (("source", "en"), ("target", "de"))}
    folder.mkdir(parents=True)
    for side, content in models.items():
        (folder / f"{side}.spm").write_bytes(content)
    pieces = {side: [piece for piece in normal_pieces(content) if piece != "▁Tom"] for side, content in models.items()}
    if not separate:
        pieces = dict.fromkeys(pieces, sorted({*pieces["source"], *pieces["target"]}))
    vocabularies = {
        side: ["</s>", "<unk>", *codes, *found, *(f"<unused {each}>" for each in range(unused)), "<pad>"]
        for side, found in pieces.items()
    }
    names = {"source": "vocab.json", "target": "target_vocab.json"} if separate else {"source": "vocab.json"}
    for side, name in names.items():
        ids = {piece: number for number, piece in enumerate(vocabularies[side])}
        (folder / name).write_text(json.dumps(ids), encoding="utf-8")
    torch.manual_seed(seed)
    sizes = len(vocabularies["source"]), len(vocabularies["target"])
    model = MarianMTModel(MarianConfig(**(_marian_config(sizes, separate=separate) | config))).eval()
    random_weights(model, seed, ends=ends)
    model.generation_config = GenerationConfig(num_beams=3, length_penalty=1.0, max_length=128)
    model.save_pretrained(folder)
    tokenizer = {
        "source_lang": "en",
        "target_lang": "de",
        "separate_vocabs": separate,
        "tokenizer_class": "MarianTokenizer",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    return folder


def _marian_config(sizes: tuple[int, int], *, separate: bool) -> dict[str, Any]:
    """Return the configuration of a tiny model. sizes: of the source and of the target vocabulary."""
    return {
        "vocab_size": sizes[0],
        "decoder_vocab_size": sizes[1],
        "d_model": 32,
        **{f"{side}_layers": 2 for side in ("encoder", "decoder")},
        **{f"{side}_attention_heads": 4 for side in ("encoder", "decoder")},
        **{f"{side}_ffn_dim": 64 for side in ("encoder", "decoder")},
        "max_position_embeddings": 128,
        "activation_function": "swish",
        "scale_embedding": True,
        "share_encoder_decoder_embeddings": not separate,
        "tie_word_embeddings": True,
        "pad_token_id": sizes[1] - 1,
        "decoder_start_token_id": sizes[1] - 1,
        "eos_token_id": 0,
        "forced_eos_token_id": 0,
    }


MBART_25_TARGET = 2  # index of de_DE in the list of the languages of mBART
MULTILINGUAL = {"m2m_100": "M2M-100", "small100": "SMaLL-100", "nllb": "NLLB-200", "mbart50": "mBART-50"}
HEAD = ("<s>", "<pad>", "</s>", "<unk>")
NLLB_CODES = ("deu_Latn", "eng_Latn", "fra_Latn", "zho_Hans", "zho_Hant")


def save_multilingual(folder: Path, kind: str, *, seed: int = 1, ends: float = 4.0, pieces_of: str = "unigram") -> Path:
    """Save a model of several languages with the files of a published one. kind: a key of MULTILINGUAL, or mbart25.

    pieces_of: the kind of the sentencepiece model
    """
    from transformers import GenerationConfig

    content = train_pieces([*lines("en"), *lines("de")], 400, pieces_of)
    folder.mkdir(parents=True)
    (folder / "sentencepiece.bpe.model").write_bytes(content)
    model = spm.ModelProto()
    model.ParseFromString(content)
    pieces = [piece.piece for piece in model.pieces][3:]
    rows = _write_vocabulary(folder, kind, [piece for piece in pieces if piece != "▁Tom"], len(pieces))
    torch.manual_seed(seed)
    built = _multilingual_model(kind, rows)
    draw_weights(built, seed)
    point_to_end(built.model.decoder.layer_norm, built.model.shared.weight[2], ends)
    built.generation_config = GenerationConfig(num_beams=5, max_length=200)
    built.save_pretrained(folder)
    return folder


def write_published_settings(folder: Path, kind: str) -> None:
    """Write settings that published files of mBART have and new ones have not. The converter of CTranslate2 needs them.

    kind: mbart50 or mbart25
    """
    name = "MBart50Tokenizer" if kind == "mbart50" else "MBartTokenizer"
    norms = {"normalize_before": True, "normalize_embedding": True, "tokenizer_class": name}
    for file, more in (("config.json", norms), ("tokenizer_config.json", {"bos_token": "<s>"})):
        values = json.loads((folder / file).read_text(encoding="utf-8"))
        (folder / file).write_text(json.dumps({**values, **more}), encoding="utf-8")


def _write_vocabulary(folder: Path, kind: str, dictionary: Sequence[str], pieces: int) -> int:
    """Write the files of the tokenizer, and return the number of rows of the model's table."""
    if kind in ("m2m_100", "small100"):
        from transformers.models.m2m_100.tokenization_m2m_100 import FAIRSEQ_LANGUAGE_CODES

        codes = [f"__{code}__" for code in FAIRSEQ_LANGUAGE_CODES["m2m100"]]
        ids = {piece: number for number, piece in enumerate([*HEAD, *dictionary])}
        (folder / "vocab.json").write_text(json.dumps(ids), encoding="utf-8")
        name, rows = "M2M100Tokenizer", len(ids) + len(codes) + 8
    elif kind == "mbart25":
        from transformers.models.mbart.tokenization_mbart import FAIRSEQ_LANGUAGE_CODES as MBART_25_CODES

        codes, name, rows = list(MBART_25_CODES), "MBartTokenizer", 4 + pieces + len(MBART_25_CODES) + 1
    else:
        from transformers.models.mbart50.tokenization_mbart50 import FAIRSEQ_LANGUAGE_CODES as MBART_CODES

        codes = list(NLLB_CODES if kind == "nllb" else MBART_CODES)
        name = "NllbTokenizer" if kind == "nllb" else "MBart50Tokenizer"
        rows = 4 + pieces + len(codes) + 1 + (2 if kind == "nllb" else 0)
    values: dict[str, Any] = {"tokenizer_class": name, "additional_special_tokens": codes, "src_lang": codes[0]}
    if kind == "small100":
        (folder / "tokenization_small100.py").write_text("raise AssertionError('the code of a folder was run')\n")
    if kind in ("m2m_100", "small100"):
        values["src_lang"] = "en"
    else:  # as published files have it; else Transformers would number <mask> before the languages
        values["mask_token"] = "<mask>"
        values["added_tokens_decoder"] = {
            str(number): {"content": token, "special": True}
            for number, token in [*enumerate(HEAD), *enumerate([*codes, "<mask>"], start=4 + pieces)]
        }
    for file in ("tokenizer_config.json", "special_tokens_map.json"):
        (folder / file).write_text(
            json.dumps(values if file.startswith("tok") else {"additional_special_tokens": codes})
        )
    return rows


def _multilingual_model(kind: str, rows: int) -> Any:
    from transformers import M2M100Config, M2M100ForConditionalGeneration, MBartConfig, MBartForConditionalGeneration

    values = {
        "vocab_size": rows,
        "d_model": 32,
        **{f"{side}_layers": 2 for side in ("encoder", "decoder")},
        **{f"{side}_attention_heads": 4 for side in ("encoder", "decoder")},
        **{f"{side}_ffn_dim": 64 for side in ("encoder", "decoder")},
        "max_position_embeddings": 128,
        "scale_embedding": True,
        "pad_token_id": 1,
        "bos_token_id": 0,
        "eos_token_id": 2,
        "decoder_start_token_id": 2,
        "forced_eos_token_id": None,
    }
    if kind == "mbart25":
        values["decoder_start_token_id"] = rows - 26 + MBART_25_TARGET
    if kind.startswith("mbart"):
        return MBartForConditionalGeneration(MBartConfig(**values)).eval()
    return M2M100ForConditionalGeneration(M2M100Config(**values)).eval()


CODES = ("<2de>", "<2en>", "<2fr>")
PREFIX = "translate English to {}: "
SIZES = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_decoder_layers": 2, "num_heads": 4}
TASKS = {
    f"translation_en_to_{tag}": {"prefix": PREFIX.format(name)} for tag, name in (("de", "German"), ("fr", "French"))
}
KINDS: dict[str, dict[str, Any]] = {
    "t5": {"feed_forward_proj": "relu", "task_specific_params": TASKS, "n_positions": 128},
    "t5-v1.1": {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
    "mt5": {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
    "madlad": {
        "feed_forward_proj": "gated-gelu",
        "tie_word_embeddings": False,
        "d_kv": 16,
        "pad_token_id": 1,
        "eos_token_id": 2,
        "decoder_start_token_id": 0,
    },
}


def save_t5(folder: Path, kind: str, *, seed: int = 1, ends: float = 3.0, **config: Any) -> Path:
    """Save a model with the files of a published one. kind: a key of KINDS. ends: raises the logit of the end."""
    from transformers import (
        GenerationConfig,
        MT5Config,
        MT5ForConditionalGeneration,
        T5Config,
        T5ForConditionalGeneration,
    )

    content = _pieces(kind)
    folder.mkdir(parents=True)
    (folder / "spiece.model").write_bytes(content)
    extra = 0 if kind == "madlad" else 100
    rows = len(sentencepiece.SentencePieceProcessor(model_proto=content)) + extra + 12
    given = {"vocab_size": rows, "pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0}
    values = {**SIZES, **given, **KINDS[kind], **config}
    torch.manual_seed(seed)
    model: Any
    if kind == "mt5":
        model = MT5ForConditionalGeneration(MT5Config(**values)).eval()
    else:
        model = T5ForConditionalGeneration(T5Config(**values)).eval()
    _draw_t5(model, seed, ends)
    model.generation_config = GenerationConfig(max_length=128)
    model.save_pretrained(folder)
    tokenizer = {
        "tokenizer_class": "T5Tokenizer",
        "extra_ids": extra,
        "pad_token": "<s>" if kind == "madlad" else "<pad>",
        "additional_special_tokens": [f"<extra_id_{number}>" for number in range(extra)] or list(CODES),
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    return folder


def _pieces(kind: str) -> bytes:
    """Return a sentencepiece model with padding 0, end 1 and unknown 2, of MADLAD-400 1, 2 and 0."""
    texts = [*lines("en"), *lines("de")] + [task["prefix"] for task in TASKS.values()] * 60
    ids = dict(unk_id=0, bos_id=1, eos_id=2, pad_id=-1) if kind == "madlad" else dict(pad_id=0, eos_id=1, unk_id=2)
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts),
        model_writer=written,
        vocab_size=400,
        minloglevel=2,
        hard_vocab_limit=False,
        user_defined_symbols=list(CODES) if kind == "madlad" else [],
        **({"bos_id": -1} | ids),
    )
    return written.getvalue()


def _draw_t5(model: Any, seed: int, ends: float) -> None:
    """Draw weights for varied outputs that end. `ends` scales the row of the end token in the output layer.

    RMSNorm has no bias by which its logit could be raised. A longer row has the largest logit more often.
    """

    def spread(name: str, parameter: Tensor) -> float:
        width = 0.5 if "shared" in name or "lm_head" in name else 0.3 if parameter.dim() == 2 else 0.1
        # Scores are not scaled, so that large queries would amplify the rounding of float32.
        return float(width * model.config.d_kv**-0.5) if name.endswith(".q.weight") else width

    draw_weights(model, seed, spread)
    with torch.no_grad():
        model.lm_head.weight[model.config.eos_token_id] *= ends


LENGTH, OPSET = 5, 17


def save_graphs(model: Path, folder: Path, *, opset: int = OPSET) -> Path:
    """Export the model in a folder as optimum does: its encoder, and itself with the states of an encoder."""
    from transformers import AutoModelForSeq2SeqLM

    shutil.copytree(model, folder, ignore=shutil.ignore_patterns(SAFETENSORS))
    loaded = AutoModelForSeq2SeqLM.from_pretrained(model, attn_implementation="eager").eval()
    loaded.config.use_cache = False
    ids, mask = torch.full((1, LENGTH), 3), torch.ones(1, LENGTH, dtype=torch.long)
    states = torch.zeros(1, LENGTH, loaded.config.d_model)
    _export(loaded.get_encoder(), {"input_ids": ids, "attention_mask": mask}, folder / ENCODER, opset)
    given = {"attention_mask": mask, "decoder_input_ids": ids, "encoder_outputs": (states,)}
    _export(loaded, given, folder / DECODERS[0], opset)
    return folder


def merge(folder: Path) -> None:
    """Turn the decoder into one of two graphs that share their weights, one in each branch of an `If`."""
    model = onnx.load(folder / DECODERS[0])
    names = {tensor.name: f"{tensor.name}_merged_0" for tensor in model.graph.initializer}
    for node in model.graph.node:
        for number, given in enumerate(node.input):
            node.input[number] = names.get(given, given)
    for tensor in model.graph.initializer:
        tensor.name = names[tensor.name]
    onnx.save(_in_branches(model), folder / DECODERS[1])
    (folder / DECODERS[0]).unlink()


def save_beside(path: Path) -> Path:
    """Save a graph with its weights in a file beside it, and return that file."""
    model = onnx.load(path)
    data = path.with_name(f"{path.name}_data")
    onnx.save(model, path, save_as_external_data=True, location=data.name, size_threshold=0)
    return data


def _export(model: Any, given: dict[str, Any], path: Path, opset: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of tracing, and of this form of export, which optimum still uses
        torch.onnx.export(model, (), str(path), kwargs=given, opset_version=opset, dynamo=False)


def _in_branches(model: ModelProto) -> ModelProto:
    graph = model.graph
    branches = []
    for name in ("then_branch", "else_branch"):
        branch = GraphProto(name=name)
        branch.node.extend(graph.node)
        branch.output.extend(graph.output)
        branches.append((name, branch))
    condition = helper.make_tensor_value_info("use_cache_branch", onnx.TensorProto.BOOL, [1])
    outputs = [output.name for output in graph.output]
    choice = helper.make_node("If", [condition.name], outputs, name="optimum::if", **dict(branches))
    whole = helper.make_graph([choice], "merged", [*graph.input, condition], graph.output, graph.initializer)
    return helper.make_model(whole, opset_imports=model.opset_import, ir_version=model.ir_version)


def moses_tokens(language: str, count: int = 300) -> Counter[str]:
    """Return the Moses tokens of the test corpus and how often each of them is there."""
    from sacremoses import MosesTokenizer

    tokenizer = MosesTokenizer(lang=language)
    texts = lines(language)[:count]
    return Counter(token for text in texts for token in tokenizer.tokenize(text, aggressive_dash_splits=True))


def save_fsmt(folder: Path, *, seed: int = 1, ends: float = 4.0, **config: Any) -> Path:
    """Save an FSMTForConditionalGeneration with the files of facebook/wmt19-en-de."""
    from transformers import FSMTConfig, FSMTForConditionalGeneration, GenerationConfig

    tokens = {"src": moses_tokens("en"), "tgt": moses_tokens("de")}
    merges = learn_merges(tokens["src"] + tokens["tgt"], 200)
    folder.mkdir(parents=True)
    sizes = {}
    for side, counted in tokens.items():
        pieces = [piece for piece in pieces_of(counted, merges) if piece != f"Tom{END}"]
        ids = {piece: number for number, piece in enumerate([*HEAD, *pieces])}
        sizes[f"{side}_vocab_size"] = len(ids)
        (folder / f"vocab-{side}.json").write_text(json.dumps(ids), encoding="utf-8")
    listed = "".join(f"{first} {second} {rank}\n" for rank, (first, second) in enumerate(merges))
    (folder / "merges.txt").write_text(listed, encoding="utf-8")
    values = {"langs": ["en", "de"], "tokenizer_class": "FSMTTokenizer", "do_lower_case": False}
    (folder / "tokenizer_config.json").write_text(json.dumps(values), encoding="utf-8")
    torch.manual_seed(seed)
    model = FSMTForConditionalGeneration(FSMTConfig(**_config(), **sizes, **config)).eval()
    draw_weights(model, seed, lambda name, parameter: 0.0 if "positions" in name else usual_spread(name, parameter))
    decoder = model.model.decoder
    point_to_end(decoder.layers[-1].final_layer_norm, decoder.embed_tokens.weight[2], ends)
    model.generation_config = GenerationConfig(num_beams=5, max_length=200)
    model.save_pretrained(folder)
    return folder


def _config() -> dict[str, Any]:
    return {
        "langs": ["en", "de"],
        "d_model": 32,
        **{f"{side}_layers": 2 for side in ("encoder", "decoder")},
        **{f"{side}_attention_heads": 4 for side in ("encoder", "decoder")},
        **{f"{side}_ffn_dim": 64 for side in ("encoder", "decoder")},
        "max_position_embeddings": 128,
        "forced_eos_token_id": None,
    }
