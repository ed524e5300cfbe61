"""IndicTrans2 in the form of Transformers: English and 22 languages of India, the tags of both before each text.

Its repositories have code of their own. None of it is run: the weights, the dictionaries and the sentencepiece models
are read as files. Gala et al. (2023), https://arxiv.org/abs/2305.16307, describe the models and what is done to texts.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sentencepiece.sentencepiece_model_pb2 import ModelProto

from lingon.errors import SettingsError, SourceModelError
from lingon.importers.files.fields import JsonFields
from lingon.importers.files.pieces import Numbering, SpecialIds, read_model, renumber, rewrite
from lingon.importers.files.tensors import open_tensors
from lingon.importers.foreign_model import ALL, Facts, ForeignModel, Sides
from lingon.importers.readers.bart import MOST, BartReader
from lingon.importers.readers.codes import tags_of
from lingon.importers.readers.opus_mt import (
    ACTIVATIONS,
    CONFIG,
    GENERATION,
    MOST_POSITIONS,
    TOKENIZER_CONFIG,
    PieceDictionary,
    facts_of,
    read_file,
)
from lingon.text import Tokenizer
from lingon.training.config import LanguageSettings
from lingon.training.model_settings import TransformerSettings

DICTIONARIES, SEGMENTERS = ("dict.SRC.json", "dict.TGT.json"), ("model.SRC", "model.TGT")
HEAD = ("<s>", "<pad>", "</s>", "<unk>")  # of fairseq, with the ids 0 to 3
SPECIAL = SpecialIds(pad=1, start=2, eos=2, unk=3)
NEVER = "<s>"  # which fairseq has in its vocabularies and does not use
FIRST_POSITION = 2  # of fairseq, whose padding id is 1
ENGLISH = "eng_Latn"
LICENCE = "MIT for the published weights of IndicTrans2"
NOT_DONE = (
    "texts are read and written as they are: what IndicTrans2's own programs do to them besides is not done (Moses "
    "tokens of English, the normaliser and tokens of indic-nlp, Latin digits, placeholders for numbers and addresses)"
)
_TAG = re.compile("[a-z]{3}_[A-Z][a-z]{3}")

# The scripts of Brahmic origin. The model reads and writes them in Devanagari: their blocks in Unicode have the same
# letters at the same places. The pieces are transliterated once, and no text is: a text in Bengali is cut into pieces
# in Bengali as its transliteration is cut into those in Devanagari.

DEVANAGARI = 0x900
BLOCKS = {
    "Beng": 0x980,
    "Guru": 0xA00,
    "Gujr": 0xA80,
    "Orya": 0xB00,
    "Taml": 0xB80,
    "Telu": 0xC00,
    "Knda": 0xC80,
    "Mlym": 0xD00,
}
"""The first code point of each script, by its code in ISO 15924."""

UNASSIGNED = "Cn"  # the category of code points that Unicode has no letter for
COMMON = 0x70  # places of a block that mean the same in all scripts
DANDAS = (0x64, 0x65)  # places of the full stops, which all scripts take from Devanagari
INDIC_SHARE = 0.1  # of the pieces of a side: with fewer in Devanagari its language is English


def read_indictrans2(folder: Path, longest: int | None = None, languages: Sides | None = None) -> ForeignModel:
    """Read a folder.

    longest: source tokens that the model shall read
    languages: those to serve on both sides, as the user names them, or None if only a report is wanted. A bundle has
        one script of Brahmic origin on each side

    Raises SourceModelError, and SettingsError for languages that one bundle cannot serve.
    """
    config = JsonFields.read(folder / CONFIG)
    sides = [_Side.read(folder, side) for side in (0, 1)]
    offered = _Offered(folder, *(each.tags(sides[0].codes) for each in sides))
    scripts = [offered.script(side, languages) for side in (0, 1)]
    sides = [each if script is None else each.written_in(script) for each, script in zip(sides, scripts, strict=True)]
    vocabularies = [
        each.dictionary.with_rows(config, f"{side}_vocab_size")
        for each, side in zip(sides, ("encoder", "decoder"), strict=True)
    ]
    source, target = (_renumbered(config, *each) for each in zip(vocabularies, sides, strict=True))
    reserved = [_reserved(each) for each in vocabularies]
    tokenizer = Tokenizer(
        rewrite(sides[0].segmenter, source, reserved[0]), rewrite(sides[1].segmenter, target, reserved[1])
    )
    longest = longest or config.integer("max_source_positions", 2, MOST_POSITIONS)
    settings = _settings(config, target, longest)
    tensors = open_tensors(folder)
    rows = len(vocabularies[0].pieces), len(vocabularies[1].pieces)
    reader = BartReader(tensors, settings, source, target, rows, separate=True)
    tensors.notes.append(NOT_DONE)
    tensors.notes += [
        f"{side} pieces are written in {script} instead of Devanagari"
        for side, script in zip(("source", "target"), scripts, strict=True)
        if script
    ]
    facts = _facts(folder, config, longest)
    framed = offered.framed(languages)
    return ForeignModel(settings, reader.weights(), tokenizer, source, target, facts, tensors.notes, framed)


@dataclass(frozen=True, slots=True)
class _Side:
    """The vocabulary of one side: a dictionary with the ids, and the model that cuts text into its pieces."""

    dictionary: PieceDictionary
    segmenter: ModelProto

    @classmethod
    def read(cls, folder: Path, side: int) -> _Side:
        """Read the files of a side: 0 is the source, 1 the target."""
        dictionary, path = PieceDictionary.read(folder / DICTIONARIES[side]), folder / SEGMENTERS[side]
        if tuple(dictionary.pieces[:4]) != HEAD:
            raise SourceModelError(
                f"{dictionary.path}: its first pieces must be {', '.join(HEAD)}, are {', '.join(dictionary.pieces[:4])}"
            )
        return cls(dictionary, read_model(read_file(path), str(path)))

    @property
    def codes(self) -> list[str]:
        """The codes of languages in the dictionary, such as hin_Deva."""
        return [piece for piece in self.dictionary.pieces if _TAG.fullmatch(piece)]

    def tags(self, codes: Sequence[str]) -> dict[str, str]:
        """Return the languages of the side: codes by their tags; codes: those that the source has.

        The files do not say the direction. A vocabulary with hardly any piece in Devanagari is that of English.
        """
        indic = sum(any(_is_devanagari(letter) for letter in piece) for piece in self.dictionary.pieces)
        is_english = indic < INDIC_SHARE * len(self.dictionary.pieces)
        return tags_of(code for code in codes if (code == ENGLISH) == is_english)

    def written_in(self, script: str) -> _Side:
        """Return the side with its pieces in another script. A piece whose new name another one has keeps its own."""
        letters = _letters(script)
        names = dict.fromkeys([*self.dictionary.pieces, *(piece.piece for piece in self.segmenter.pieces)])
        taken, renamed = set(names), dict[str, str]()
        for name in names:
            if (new := name.translate(letters)) not in taken:
                taken.add(new)
                renamed[name] = new
        segmenter = ModelProto()
        segmenter.CopyFrom(self.segmenter)
        for piece in segmenter.pieces:
            piece.piece = renamed.get(piece.piece, piece.piece)
        pieces = [renamed.get(piece, piece) for piece in self.dictionary.pieces]
        return _Side(replace(self.dictionary, pieces=pieces), segmenter)


def _is_devanagari(letter: str) -> bool:
    return DEVANAGARI <= ord(letter) < DEVANAGARI + 0x80 and ord(letter) - DEVANAGARI not in DANDAS


def _letters(script: str) -> Mapping[int, int]:
    """Return the letter of a script for each one of Devanagari that has one."""
    found = {}
    for place in range(COMMON):
        letter = BLOCKS[script] + (_tamil(place) if script == "Taml" else place)
        if place not in DANDAS and unicodedata.category(chr(letter)) != UNASSIGNED:
            found[DEVANAGARI + place] = letter
    return found


def _tamil(place: int) -> int:
    """Return the place of the letter by which Tamil writes another one.

    It has one letter for the voiced, the aspirated and the plain consonant of a place of articulation, besides ja, and
    one for the two sounds of sh.
    """
    first, last = 0x15, 0x28  # ka to na: four rows of five, the last of each nasal
    if first <= place <= last and place != 0x1C and (place - first) % 5 not in (0, 4):
        return place - (place - first) % 5
    return {0x2B: 0x2A, 0x2C: 0x2A, 0x2D: 0x2A, 0x36: 0x37}.get(place, place)


@dataclass(frozen=True, slots=True)
class _Offered:
    """The languages of a model: codes by their tags, of the source and of the target. folder: for messages."""

    folder: Path
    sources: dict[str, str]
    targets: dict[str, str]

    def __post_init__(self) -> None:
        if not self.sources or not self.targets:
            raise SourceModelError(f"{self.folder / DICTIONARIES[0]}: has no codes of languages such as hin_Deva")

    def chosen(self, side: int, languages: Sides | None) -> list[str]:
        """Return the codes of a side that the user names; all for ALL, and if none is named. Others are left out."""
        known = {tag.lower(): code for tag, code in (self.sources, self.targets)[side].items()}
        if languages is None or ALL in languages[side]:
            return list(known.values())
        return [known[tag.lower()] for tag in languages[side] if tag.lower() in known]

    def script(self, side: int, languages: Sides | None) -> str | None:
        """Return the script in which the pieces of a side are written, or None if they stay as they are.

        Raises SettingsError if languages of several such scripts are to be served.
        """
        if languages is None:
            return None
        scripts = _brahmic(self.chosen(side, languages))
        if len(scripts) > 1:
            name = ("source", "target")[side]
            raise SettingsError(
                f"--languages: a bundle of {self.folder} has {name} languages of one script of Brahmic origin, got "
                f"{', '.join(scripts)}; import it once for each"
            )
        return next((script for script in scripts if script in BLOCKS), None)

    def framed(self, languages: Sides | None) -> LanguageSettings:
        """Return the languages with the tokens before a text: the code of the source, then that of the target.

        Lingon writes the tokens of a target before those of a source. So one of the two writes both codes, and the
        other side has one language. For a report, which names none, the order does not matter.

        Raises SettingsError if several languages of both sides are to be served.
        """
        sources, targets = self.chosen(0, languages), self.chosen(1, languages)
        if languages is not None and len(sources) > 1 and len(targets) > 1:
            raise SettingsError(
                f"--languages: a bundle of {self.folder} has one source language or one target language, got "
                f"{len(sources)} and {len(targets)}; import it once for each"
            )
        last, first = ("", "") if languages is None else (_only(targets), _only(sources))
        return LanguageSettings.model_validate(
            {
                "sources": [
                    {"language": tag, "before": [code, last] if last else [] if first else [code]}
                    for tag, code in self.sources.items()
                    if last or code == first or not first
                ],
                "targets": [
                    {"language": tag, "source": [] if last else [first, code] if first else [code]}
                    for tag, code in self.targets.items()
                    if code == last or not last
                ],
            }
        )


def _only(codes: Sequence[str]) -> str:
    """Return the only code, or "" if there are others."""
    return codes[0] if len(codes) == 1 else ""


def _brahmic(codes: Iterable[str]) -> list[str]:
    """Return the scripts of languages that Devanagari stands for, and Devanagari, each once."""
    scripts = [code.partition("_")[2] for code in codes]
    return list(dict.fromkeys(script for script in scripts if script in BLOCKS or script == "Deva"))


def _reserved(vocabulary: PieceDictionary) -> set[str]:
    """Return the pieces that no text becomes, and that are not generated."""
    return {NEVER, *vocabulary.spare, *(piece for piece in vocabulary.pieces if _TAG.fullmatch(piece))}


def _renumbered(config: JsonFields, vocabulary: PieceDictionary, side: _Side) -> Numbering:
    for name, expected in (("pad", SPECIAL.pad), ("eos", SPECIAL.eos), ("decoder_start", SPECIAL.start)):
        if config.integer(f"{name}_token_id", 0, MOST, default=expected) != expected:
            raise config.error(f"{name}_token_id", f"must be that of {HEAD[expected]} ({expected})")
    return renumber(vocabulary.pieces, SPECIAL, [side.segmenter], _reserved(vocabulary))


def _same(config: JsonFields, name: str, most: int) -> int:
    """Return a size that both sides must have."""
    encoder, decoder = (config.integer(f"{side}_{name}", 1, most) for side in ("encoder", "decoder"))
    if encoder != decoder:
        raise config.error(f"decoder_{name}", f"must be that of the encoder ({encoder:,})")
    return encoder


def _settings(config: JsonFields, target: Numbering, longest: int) -> TransformerSettings:
    before = config.flag("encoder_normalize_before", False)
    if config.flag("decoder_normalize_before", False) != before:
        raise config.error("decoder_normalize_before", f"must be that of the encoder ({str(before).lower()})")
    dim, heads = _same(config, "embed_dim", MOST), _same(config, "attention_heads", MOST)
    if dim % (2 * heads) or dim < 4:
        rule = f"must be 4 or more, even and a multiple of encoder_attention_heads ({heads})"
        raise config.error("encoder_embed_dim", rule)
    return TransformerSettings(
        dim=dim,
        heads=heads,
        head_dim=dim // heads,
        ffn=_same(config, "ffn_dim", MOST),
        encoder_layers=config.integer("encoder_layers", 1, 1000),
        decoder_layers=config.integer("decoder_layers", 1, 1000),
        norm="pre" if before else "post",
        embedding_norm=config.flag("layernorm_embedding", False),
        activation=config.choice("activation_function", ACTIVATIONS),
        sinusoids="inclusive-halves",
        first_position=FIRST_POSITION,
        never_generated=target.never,
        scale_embedding=config.flag("scale_embedding", True),
        tie="decoder" if config.flag("share_decoder_input_output_embed", False) else "none",
        max_positions=max(longest, config.integer("max_target_positions", 2, MOST_POSITIONS)) + 1,
        dropout=0.1,
    )


def _facts(folder: Path, config: JsonFields, longest: int) -> Facts:
    return facts_of(
        folder,
        (CONFIG, TOKENIZER_CONFIG, GENERATION, *DICTIONARIES, *SEGMENTERS),
        "Hugging Face IndicTrans2",
        longest,
        beam_size=config.integer("num_beams", 1, 64, default=5),
        licence=LICENCE,
        toolkit="IndicTrans2",  # Transformers has no code for it: that of its repositories is not run
    )
