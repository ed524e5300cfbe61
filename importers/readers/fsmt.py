"""FSMT: the models of fairseq for WMT19 in the form of Transformers, with Moses tokens and byte-pair merges."""

from __future__ import annotations

from pathlib import Path

from lingon.bundle.manifest import Language
from lingon.bundle.schema import unmet_rule
from lingon.importers.files.fields import JsonFields
from lingon.importers.files.pieces import Numbering, SpecialIds, moses_tokenizer, read_merges, renumber
from lingon.importers.files.tensors import open_tensors
from lingon.importers.foreign_model import ForeignModel
from lingon.importers.readers.bart import MOST, BartReader, read_sizes
from lingon.importers.readers.opus_mt import (
    ACTIVATIONS,
    CONFIG,
    GENERATION,
    MOST_POSITIONS,
    TOKENIZER_CONFIG,
    PieceDictionary,
    facts_of,
)
from lingon.training.model_settings import TransformerSettings

VOCABULARIES = {"src": "vocab-src.json", "tgt": "vocab-tgt.json"}
MERGES = "merges.txt"
OUTPUT = "model.decoder.output_projection.weight"
FIRST_POSITION = 2  # of fairseq, whose padding id is 1
NEVER = "<s>"  # which fairseq has in its vocabularies and does not use


def read_fsmt(folder: Path, longest: int | None = None) -> ForeignModel:
    """Read a folder; longest: source tokens that the model shall read. Raises SourceModelError."""
    config, more = JsonFields.read(folder / CONFIG), JsonFields.read_if_there(folder / TOKENIZER_CONFIG)
    if more.flag("do_lower_case", False):
        raise more.error("do_lower_case", "must be false: Lingon keeps the case of a text")
    languages = _languages(config)
    vocabularies = [
        PieceDictionary.read(folder / name).with_rows(config, f"{side}_vocab_size")
        for side, name in VOCABULARIES.items()
    ]
    source, target = (_renumbered(config, each) for each in vocabularies)
    merges = read_merges(folder / MERGES)
    tokenizer = moses_tokenizer(
        languages,
        (source, target),
        (merges, merges),
        {NEVER, *(spare for each in vocabularies for spare in each.spare)},
    )
    longest = longest or config.integer("max_position_embeddings", 2, MOST_POSITIONS, default=1024)
    settings = _settings(config, target, longest)
    tensors = open_tensors(folder)
    rows = len(vocabularies[0].pieces), len(vocabularies[1].pieces)
    reader = BartReader(tensors, settings, source, target, rows, separate=True, head=OUTPUT)
    facts = facts_of(
        folder,
        (CONFIG, TOKENIZER_CONFIG, GENERATION, *VOCABULARIES.values(), MERGES),
        "Hugging Face FSMT (fairseq WMT19)",
        longest,
        beam_size=config.integer("num_beams", 1, 64, default=5),
        length_penalty=config.number("length_penalty", 0, 10, default=1),
        languages=languages,
        toolkit="fairseq",  # not Transformers: its search gives all tokens one position
    )
    return ForeignModel(settings, reader.weights(), tokenizer, source, target, facts, tensors.notes)


def _languages(config: JsonFields) -> tuple[str, str]:
    found = config.values.get("langs")
    if not (isinstance(found, list) and len(found) == 2 and not any(unmet_rule(Language, each) for each in found)):
        raise config.error("langs", "must be the codes of two languages")
    return found[0], found[1]


def _renumbered(config: JsonFields, vocabulary: PieceDictionary) -> Numbering:
    pad, eos, unk = (vocabulary.id_of(piece) for piece in ("<pad>", "</s>", "<unk>"))
    for name, piece, number in (("pad_token_id", "<pad>", pad), ("eos_token_id", "</s>", eos)):
        if config.integer(name, 0, MOST, default=number) != number:
            raise config.error(name, f"must be the id of {piece} in {vocabulary.path.name} ({number:,})")
    if config.integer("decoder_start_token_id", 0, MOST, default=eos) != eos:
        raise config.error("decoder_start_token_id", f"must be the id of </s> ({eos:,})")
    special = SpecialIds(pad=pad, start=eos, eos=eos, unk=unk)
    return renumber(vocabulary.pieces, special, [], {NEVER, *vocabulary.spare})


def _settings(config: JsonFields, target: Numbering, longest: int) -> TransformerSettings:
    return TransformerSettings(
        **read_sizes(config, least=4),
        activation=config.choice("activation_function", ACTIVATIONS),
        sinusoids="inclusive-halves",
        first_position=FIRST_POSITION,
        never_generated=target.never,
        scale_embedding=config.flag("scale_embedding", True),
        tie="decoder",
        max_positions=longest + 1,
        dropout=0.1,
    )
