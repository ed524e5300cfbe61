"""OPUS-MT in the form of Transformers: MarianMTModel with two sentencepiece models and a dictionary of pieces."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sentencepiece.sentencepiece_model_pb2 import ModelProto

from lingon.bundle.manifest import Language
from lingon.bundle.schema import unmet_rule
from lingon.errors import SourceModelError
from lingon.importers.files.fields import MOST_JSON_BYTES, JsonFields, shown
from lingon.importers.files.pieces import Numbering, SpecialIds, read_model, renumber, rewrite, spare_rows, tokenizer_of
from lingon.importers.files.tensors import open_tensors, tensor_files
from lingon.importers.foreign_model import Facts, ForeignModel
from lingon.importers.readers.bart import MOST, BartReader, read_sizes
from lingon.importers.readers.codes import languages_by_code
from lingon.text import Tokenizer
from lingon.training.model_settings import Activation, TransformerSettings

CONFIG, TOKENIZER_CONFIG, GENERATION = "config.json", "tokenizer_config.json", "generation_config.json"
SOURCE_PIECES, TARGET_PIECES = "source.spm", "target.spm"
VOCABULARY, TARGET_VOCABULARY = "vocab.json", "target_vocab.json"
ACTIVATIONS: dict[str, Activation] = {
    "swish": "silu",
    "silu": "silu",
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu-tanh",
}
FORM = "Hugging Face MarianMTModel (OPUS-MT)"
MOST_POSITIONS = 2**15 - 1  # tokens of a source; a bundle has at most one more


def read_opus_mt(folder: Path, longest: int | None = None) -> ForeignModel:
    """Read a folder of a MarianMTModel; longest: source tokens that the model shall read. Raises SourceModelError."""
    config, more = JsonFields.read(folder / CONFIG), JsonFields.read_if_there(folder / TOKENIZER_CONFIG)
    separate = not config.flag("share_encoder_decoder_embeddings", True)
    if separate != more.flag("separate_vocabs", separate):
        raise more.error("separate_vocabs", f"must be {str(separate).lower()}, as {CONFIG} has two tables of pieces")
    if separate and not (folder / TARGET_VOCABULARY).is_file():
        needed = f"{CONFIG} says that the target has a vocabulary of its own (share_encoder_decoder_embeddings: false)"
        raise SourceModelError(f"{folder / TARGET_VOCABULARY}: No such file or directory, and {needed}")
    tensors = open_tensors(folder)
    source = PieceDictionary.read(folder / VOCABULARY).with_rows(config, "vocab_size")
    target = source
    if separate:
        target = PieceDictionary.read(folder / TARGET_VOCABULARY).with_rows(config, "decoder_vocab_size")
    elif config.integer("decoder_vocab_size", 1, MOST, default=len(source.pieces)) != len(source.pieces):
        raise config.error("decoder_vocab_size", f"must be vocab_size ({len(source.pieces):,})")
    sizes = len(source.pieces), len(target.pieces)
    tokenizer, of_source, of_target = _tokenizer(folder, config, source, target)
    longest = longest or config.integer("max_position_embeddings", 2, MOST_POSITIONS)
    settings = _settings(config, of_target, separate=separate, longest=longest)
    reader = BartReader(tensors, settings, of_source, of_target, sizes, separate=separate)
    facts = _facts(folder, config, more, settings, longest)
    languages = languages_by_code(source.codes, facts.languages)
    return ForeignModel(settings, reader.weights(), tokenizer, of_source, of_target, facts, tensors.notes, languages)


def _settings(config: JsonFields, target: Numbering, *, separate: bool, longest: int) -> TransformerSettings:
    positions = config.integer("max_position_embeddings", 2, MOST_POSITIONS)
    tied = config.flag("tie_word_embeddings", True)
    return TransformerSettings(
        **read_sizes(config),
        activation=config.choice("activation_function", ACTIVATIONS),
        sinusoids="halves",
        output_bias=True,
        never_generated=target.never,
        scale_embedding=config.flag("scale_embedding", False),
        tie=("decoder" if separate else "all") if tied else "none",
        max_positions=max(longest, positions) + 1,
        dropout=0.1,
    )


@dataclass(frozen=True, slots=True)
class PieceDictionary:
    """A dictionary of pieces, in the order of their ids.

    spare: the last ones of these, which stand for rows of a table that the dictionary has no piece for
    """

    path: Path
    pieces: list[str]
    spare: frozenset[str] = frozenset()

    @classmethod
    def read(cls, path: Path) -> PieceDictionary:
        """Read a dictionary. Raises SourceModelError unless its ids are 0 to n - 1."""
        ids = JsonFields.read(path).values
        pieces: list[str | None] = [None] * len(ids)
        for piece, number in ids.items():
            if type(number) is not int or not 0 <= number < len(ids):
                raise SourceModelError(f"{path}: the id of {piece!r} must be 0 to {len(ids) - 1:,}, is {shown(number)}")
            if pieces[number] is not None:
                raise SourceModelError(f"{path}: {piece!r} and {pieces[number]!r} both have the id {number}")
            pieces[number] = piece
        return cls(path, [piece for piece in pieces if piece is not None])

    def with_rows(self, config: JsonFields, name: str) -> PieceDictionary:
        """Return a vocabulary of so many rows as a field says. Raises SourceModelError if it says too few."""
        rows, pieces = config.integer(name, 1, MOST, default=len(self.pieces)), len(self.pieces)
        if rows < pieces:
            raise config.error(name, f"must be the number of pieces of {self.path.name} ({pieces:,}) or more")
        spare = spare_rows(pieces, rows)
        return replace(self, pieces=[*self.pieces, *spare], spare=frozenset(spare))

    def id_of(self, piece: str) -> int:
        """Return the id of a piece that must be there."""
        try:
            return self.pieces.index(piece)
        except ValueError:
            raise SourceModelError(f"{self.path}: has no piece {piece}") from None

    @property
    def codes(self) -> set[str]:
        """The codes of target languages, such as >>deu<<."""
        return {piece for piece in self.pieces if piece.startswith(">>") and piece.endswith("<<")}

    @property
    def reserved(self) -> set[str]:
        """The pieces that no text becomes."""
        return {*self.codes, *self.spare}

    def renumbered(self, config: JsonFields, segmenters: list[ModelProto], *, decoded: bool) -> Numbering:
        """Return the new ids; decoded: whether it is the vocabulary of the decoder, which config.json describes."""
        pad, eos, unk = (self.id_of(piece) for piece in ("<pad>", "</s>", "<unk>"))
        start = config.integer("decoder_start_token_id", 0, MOST) if decoded else pad
        if not decoded:
            return renumber(self.pieces, SpecialIds(pad, pad, eos, unk), segmenters, self.reserved)
        for name, piece, number in (("pad_token_id", "<pad>", pad), ("eos_token_id", "</s>", eos)):
            if config.integer(name, 0, MOST) != number:
                raise config.error(name, f"must be the id of {piece} in {self.path.name} ({number:,})")
        if start in (eos, unk) or start >= len(self.pieces):
            raise config.error("decoder_start_token_id", f"must be an id of {self.path.name}, but not of </s> or <unk>")
        return renumber(self.pieces, SpecialIds(pad, start, eos, unk), segmenters, self.reserved)


def _tokenizer(
    folder: Path, config: JsonFields, source: PieceDictionary, target: PieceDictionary
) -> tuple[Tokenizer, Numbering, Numbering]:
    """Return the tokenizer with the new ids, and the numberings of the source and of the target vocabulary."""
    first, second = (
        read_model(read_file(folder / name), str(folder / name)) for name in (SOURCE_PIECES, TARGET_PIECES)
    )
    if source is target:
        of_source = of_target = source.renumbered(config, [first, second], decoded=True)
    else:
        of_source = source.renumbered(config, [first], decoded=False)
        of_target = target.renumbered(config, [second], decoded=True)
    rewritten = rewrite(first, of_source, source.reserved), rewrite(second, of_target, target.reserved)
    return tokenizer_of(*rewritten), of_source, of_target


def facts_of(
    folder: Path,
    names: Iterable[str],
    form: str,
    longest: int,
    *,
    beam_size: int,
    length_penalty: float = 1,
    **more: Any,
) -> Facts:
    """Return the facts of a folder of Transformers.

    names: of its files besides the tensors, as far as they are there
    beam_size, length_penalty: of its search if GENERATION has none
    """
    generation = JsonFields.read_if_there(folder / GENERATION)
    files = [folder / name for name in names if (folder / name).is_file()]
    return Facts(
        form=form,
        beam_size=generation.integer("num_beams", 1, 64, default=beam_size),
        length_penalty=generation.number("length_penalty", 0, 10, default=length_penalty),
        longest=longest,
        files=(*files, *tensor_files(folder)),
        **more,
    )


def _facts(folder: Path, config: JsonFields, more: JsonFields, settings: TransformerSettings, longest: int) -> Facts:
    source, target = (_language(more.text(f"{side}_lang", "")) for side in ("source", "target"))
    return facts_of(
        folder,
        (CONFIG, TOKENIZER_CONFIG, GENERATION, SOURCE_PIECES, TARGET_PIECES, VOCABULARY, TARGET_VOCABULARY),
        FORM,
        longest,
        beam_size=config.integer("num_beams", 1, 64, default=4),
        length_penalty=config.number("length_penalty", 0, 10, default=1),
        languages=(source, target),
        # Marian guides one head, the first one of the last layer. The port to Transformers does not say so.
        alignment=(settings.decoder_layers - 1, (0,)),
    )


def _language(name: str) -> str:
    """Return a language if it has the form of a tag, else ""."""
    return "" if unmet_rule(Language, name) else name


def read_file(path: Path) -> bytes:
    """Return the content of a file of pieces. Raises SourceModelError."""
    try:
        if (size := path.stat().st_size) > MOST_JSON_BYTES:
            raise SourceModelError(f"{path}: must have at most {MOST_JSON_BYTES:,} bytes, has {size:,}")
        return path.read_bytes()
    except OSError as error:
        raise SourceModelError(f"{path}: {error.strerror}") from None
