"""Small models of Marian, one of each form, in the files that its engine and `lingon import` both read.

Trained positions are no form here: the engine cannot load them, since it misses an option of its own.

Random ones are the same on every machine: their vocabularies are counted, and their weights drawn by NumPy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentencepiece import sentencepiece_model_pb2 as spm
from torch.nn import functional

from lingon.export.graphs.quantisation import calibrate
from lingon.importers import pipeline
from lingon.importers.pipeline import Imported, ImportSettings
from lingon.text import BOS, EOS, PAD, UNK, normalise
from lingon.training.data.batches import pad
from lingon.training.search import SearchSettings, translate
from tests.support.foreign_models import lines
from tests.support.marian_models import (
    BOTH_NORMS,
    PRE_NORM,
    STUDENT,
    TARGET_TIED,
    UNTIED,
    Marian,
    binary,
    lexicon,
    names_of,
    quantised,
    scale_in_8_bits,
)

ALONE = ["Zyqx!", "42 x 7 = 294", "Ünïcödé ☃ snow", "a", "the the the the the the the the", "?!", "New York, N.Y."]
LINES = [*(normalise(line) for line in lines("en")[:104]), *ALONE]
"""111 sources: sentences, and what no vocabulary of theirs has."""

PIECES = {1: 254, 2: 302}
"""By the number of languages of a vocabulary, without two special ones: the rows of 8-bit tables must be a multiple of
8."""

FREQUENT = 50  # first target pieces, which every text may use
SETTINGS = ImportSettings(languages=(["en"], ["de"]))


@dataclass(frozen=True, slots=True)
class Form:
    """What a model is made of.

    options: of Marian, where they are not those of `marian_models.OPTIONS`
    ends: what is added to the bias of the end token, so that translations end
    two: whether source and target have a vocabulary each
    steps: of training on copying; 0 leaves the weights as they are drawn
    """

    options: dict[str, Any] = field(default_factory=dict)
    seed: int = 1
    ends: float = 3.0
    two: bool = False
    steps: int = 0


FORMS: dict[str, Form] = {
    "post-norm, relu": Form({}, seed=7, ends=4.0),
    "post-norm, swish": Form({"transformer-ffn-activation": "swish"}, seed=20, ends=2.0),
    "post-norm, gelu": Form({"transformer-ffn-activation": "gelu"}, seed=7, ends=4.0),
    "norm after the embedding": Form({"transformer-postprocess-emb": "nd"}, seed=7, ends=4.0),
    "target tied, two vocabularies": Form(TARGET_TIED, seed=7, ends=2.0, two=True),
    "untied, two vocabularies": Form(UNTIED, seed=13, ends=2.0, two=True),
    "pre-norm": Form(PRE_NORM, seed=1, ends=4.0),
    "pre-norm, no final norm": Form({**PRE_NORM, "transformer-postprocess-top": ""}, seed=3, ends=2.0),
    "norms before and after": Form(BOTH_NORMS, seed=10, ends=2.0),
    "SSRU, post-norm": Form(STUDENT, seed=6, ends=2.0),
    "SSRU, pre-norm": Form({**STUDENT, **PRE_NORM}, seed=7, ends=2.0),
    "SSRU, norms before and after": Form({**STUDENT, **BOTH_NORMS}, seed=6, ends=2.0),
}
TRAINED: dict[str, Form] = {
    f"{name}, trained to copy": replace(FORMS[name], steps=800, ends=0.0)
    for name in ("post-norm, swish", "pre-norm", "SSRU, post-norm", "SSRU, pre-norm", "target tied, two vocabularies")
}


def counted_pieces(texts: Sequence[str], size: int = 250) -> bytes:
    """Return a sentencepiece model of the commonest words, and their letters; the end is 0, unknown 1."""
    words = Counter(f"\u2581{word}" for text in texts for word in text.split())
    letters = Counter(letter for word, count in words.items() for letter in list(word) * count)
    chosen = [*letters, *(word for word, _ in words.most_common() if len(word) > 1)][:size]
    total = sum(letters.values())
    kinds = spm.ModelProto.SentencePiece
    model = spm.ModelProto()
    model.pieces.add(piece="</s>", score=0, type=kinds.CONTROL)
    model.pieces.add(piece="<unk>", score=0, type=kinds.UNKNOWN)
    for piece in chosen:
        count = letters[piece] if len(piece) == 1 else words[piece]
        model.pieces.add(piece=piece, score=float(np.log(count / total)), type=kinds.NORMAL)
    trainer = model.trainer_spec
    trainer.model_type, trainer.vocab_size = spm.TrainerSpec.UNIGRAM, len(model.pieces)
    trainer.eos_id, trainer.unk_id, trainer.bos_id, trainer.pad_id = 0, 1, -1, -1
    model.normalizer_spec.name = "identity"
    return bytes(model.SerializeToString())


@dataclass(frozen=True, slots=True)
class Files:
    """The files of a model: those that the engine reads, in a folder that `lingon import` reads.

    plain: of a model in 8 bits, what its integers stand for, in float32
    """

    folder: Path
    model: Path
    vocabularies: tuple[Path, ...]
    shortlist: Path | None = None
    plain: Path | None = None

    def imported(self) -> Imported:
        """Return what `lingon import` reads."""
        return pipeline.read_source(self.folder, SETTINGS, lambda line: None)


def written(form: Form, folder: Path) -> tuple[Marian, Files]:
    """Write a model in float32; return it and its files."""
    folder.mkdir(parents=True)
    vocabularies = _write_vocabularies(folder, two=form.two)
    rows = [len(names_of(path.read_bytes())) for path in vocabularies]
    model = Marian.random((rows[0], rows[-1]), form.seed, form.ends, **form.options)
    files = Files(folder, folder / "model.ende.bin", vocabularies)
    files.model.write_bytes(binary(model, {}))
    if form.steps:
        model = trained_to_copy(model, files, form.steps)
        files.model.write_bytes(binary(model, {}))
    return model, files


def in_8_bits(model: Marian, files: Files, alphas: dict[str, float], *, listed: int = 0) -> Files:
    """Write a model in 8 bits as Firefox publishes it, beside its vocabularies, into a folder of its own.

    alphas: of the inputs of products by the names of their matrices; that of the output is an 8-bit scalar of
        decoder_Wemb with two vocabularies; with one it is that of none and of Wemb, as Marian's own tools write it
    listed: the number of target pieces of each source piece in a shortlist; 0 writes none
    """
    folder = files.folder.with_name(f"{files.folder.name} in 8 bits{' with a shortlist' if listed else ''}")
    folder.mkdir()
    named = dict(alphas)
    output = named.pop("output")
    two = len(files.vocabularies) == 2
    packed, integers = quantised(model, named if two else {**named, "none": output, "Wemb": output})
    if two:
        integers["decoder_Wemb_QuantMultA"] = scale_in_8_bits(output)
        packed.tensors["decoder_Wemb_QuantMultA"] = np.array([[output]], np.float32)
    vocabularies = tuple(folder / path.name for path in files.vocabularies)
    for path, copied in zip(files.vocabularies, vocabularies, strict=True):
        copied.write_bytes(path.read_bytes())
    shortlist = None
    if listed:
        rows = [len(names_of(path.read_bytes())) for path in vocabularies]
        lists = [sorted({(row + step) % rows[-1] for step in range(listed)}) for row in range(rows[0])]
        shortlist = folder / "lex.50.50.ende.s2t.bin"
        shortlist.write_bytes(lexicon(lists, FREQUENT))
    plain = folder / "plain" / "model.bin"
    plain.parent.mkdir()
    floats = {name: tensor for name, tensor in packed.tensors.items() if "QuantMultA" not in name}
    plain.write_bytes(binary(Marian(model.options, floats), {}))
    found = Files(folder, folder / "model.ende.intgemm.alphas.bin", vocabularies, shortlist, plain)
    found.model.write_bytes(binary(packed, integers))
    return found


def measured_alphas(imported: Imported, model: Marian) -> dict[str, float]:
    """Return the scale of the input of each product by the name of its matrix, and that of the output.

    They are 127 / the largest input that LINES make, as Marian's own tools measure them.
    """
    checkpoint = imported.checkpoint
    sources = [checkpoint.tokenizer.encode_source(line) for line in LINES]
    settings = SearchSettings(length_factor=2.0, length_extra=0)
    targets = [list(best.tokens) for best, *_ in translate(checkpoint.model, sources, settings)]
    largest = {
        name: max(-seen.low, seen.high)
        for name, seen in calibrate(checkpoint.model, zip(sources, targets, strict=True)).items()
    }
    ours = {
        "self_Wq": "attention.qkv", "self_Wk": "attention.qkv", "self_Wv": "attention.qkv",
        "self_Wo": "attention.output", "rnn_W": "attention.gates", "rnn_Wf": "attention.gates",
        "context_Wq": "cross.query", "context_Wk": "cross.key_value", "context_Wv": "cross.key_value",
        "context_Wo": "cross.output", "ffn_W1": "feed_forward.inner", "ffn_W2": "feed_forward.outer",
    }  # fmt: skip
    found = {"output": 127 / largest["output"]}
    for name in model.tensors:
        side, _, rest = name.partition("_l")
        number, _, product = rest.partition("_")
        if product in ours:
            found[name] = 127 / largest[f"{side}.{int(number) - 1}.{ours[product]}"]
    return found


def trained_to_copy(model: Marian, files: Files, steps: int) -> Marian:
    """Return a model after training on copying the start of its sources, which it then ends by itself.

    It is trained as `lingon import` reads it. Where a weight of Marian went is seen by numbers in the place of weights.
    """
    numbered = _numbered(model)
    files.model.write_bytes(binary(numbered, {}))
    places = {name: value.detach().long() for name, value in files.imported().checkpoint.model.named_parameters()}
    files.model.write_bytes(binary(model, {}))
    imported = files.imported()
    _train(imported, places, steps)
    flat = np.zeros(1 + max(int(each.max()) for each in numbered.tensors.values()), np.float32)
    for name, value in imported.checkpoint.model.named_parameters():
        flat[places[name].numpy()] = value.detach().numpy()
    found = {name: flat[each.astype(np.int64)] for name, each in numbered.tensors.items()}
    return Marian(model.options, found)


def _write_vocabularies(folder: Path, *, two: bool) -> tuple[Path, ...]:
    names = {"srcvocab.ende.spm": ["en"], "trgvocab.ende.spm": ["de"]} if two else {"vocab.ende.spm": ["en", "de"]}
    found = []
    for name, languages in names.items():
        path = folder / name
        path.write_bytes(counted_pieces([line for each in languages for line in lines(each)], PIECES[len(languages)]))
        found.append(path)
    return tuple(found)


def _numbered(model: Marian) -> Marian:
    """Return a model whose weights are 1, 2, 3 and so on, exact in float32."""
    found, first = Marian(model.options), 1
    for name, tensor in model.tensors.items():
        found.tensors[name] = np.arange(first, first + tensor.size, dtype=np.float32).reshape(tensor.shape)
        first += tensor.size
    assert first < 2**24
    return found


def _train(imported: Imported, places: dict[str, torch.Tensor], steps: int) -> None:
    """Train on pairs of a source and its first pieces; weights that Marian does not have stay 0."""
    model, tokenizer = imported.checkpoint.model, imported.checkpoint.tokenizer
    encoded = [(tokenizer.encode_source(line), tokenizer.encode_target(line)) for line in LINES]
    pairs = [pair for pair in encoded if len(pair[0]) < 40 and UNK not in pair[1]]
    torch.manual_seed(1)
    parameters = dict(model.named_parameters())
    optimiser = torch.optim.Adam(parameters.values(), lr=3e-3, betas=(0.9, 0.98))
    model.train()
    for module in model.modules():
        if hasattr(module, "rate"):
            module.dropped = module.rate = 0  # dropout
    for step in range(steps):
        batch, whole = zip(*(pairs[(step * 32 + each) * 7 % len(pairs)] for each in range(32)), strict=True)
        targets = [[each for each in ids[:8] if each != EOS] for ids in whole]
        given, wanted = pad([[BOS, *ids] for ids in targets]), pad([[*ids, EOS] for ids in targets])
        logits = model(pad(batch), torch.tensor([len(ids) for ids in batch]), given)
        loss = functional.cross_entropy(logits.flatten(0, 1), wanted.flatten(), ignore_index=PAD)
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters.values(), 1.0)
        optimiser.step()
        with torch.no_grad():
            for name, value in parameters.items():
                value.mul_(places[name] > 0)
    model.eval()
