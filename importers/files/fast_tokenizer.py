"""tokenizer.json, in which Transformers 5 saves pieces, scores, merges and normaliser, read as a sentencepiece model.

The two libraries cut a text that `normalise` has made (NFC, single blanks, none at the ends) into the same pieces, with
four exceptions. Next to an added token, tokenizers begins a word: "Tom<x>." is cut as "Tom", "<x>", " .". A blank that
its normaliser makes of another character stays at the end of a text. It drops an accent that follows a ligature or a
letter of full width. And of the positions where byte pairs can be merged into the same piece it may take another one.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import sentencepiece
from sentencepiece.sentencepiece_model_pb2 import ModelProto, NormalizerSpec, TrainerSpec

from lingon.errors import SourceModelError
from lingon.importers.files.fields import JsonFields, shown
from lingon.importers.files.pieces import SPACE, ModelPiece

TOKENIZER = "tokenizer.json"
MOST_BYTES = 2**28  # of the file; that of NLLB-200 has about 45 MB
NAMED = tuple(f"{name}_token" for name in ("bos", "eos", "unk", "sep", "pad", "cls", "mask"))
"""The fields of tokenizer_config.json that name special tokens."""

BLANKS = (" ", " {2,}", r"\s{2,}", " +", r"\s+", r"\A +| +\z", rf"\A{SPACE}")
"""What normalisers replace that sentencepiece replaces too, or that a text has not after `normalise`."""

_BYTE = re.compile("<0x[0-9A-F]{2}>")


class FastTokenizer:
    """The fields of a tokenizer.json.

    model: a sentencepiece model with a piece for each id, in the order of the ids. Tokens that are named and reserved
        ones are control pieces, other added tokens user-defined ones.
    added: the added tokens in the order of their ids
    """

    def __init__(self, path: Path, more: JsonFields, reserved: Callable[[str], bool]) -> None:
        """Read a file. Raises SourceModelError.

        more: the fields of tokenizer_config.json, which name the special tokens
        reserved: whether no text may become an added token, such as the code of a language
        """
        self._fields = JsonFields.read(path, MOST_BYTES)
        model = self._fields.values.get("model")
        if not isinstance(model, dict) or model.get("type") not in ("Unigram", "BPE"):
            found = shown(model.get("type")) if isinstance(model, dict) else shown(model)
            raise SourceModelError(f"{path}: the type of the model must be Unigram or BPE, is {found}")
        is_bpe = model["type"] == "BPE"
        self.model = ModelProto()
        trainer = self.model.trainer_spec
        trainer.model_type = TrainerSpec.BPE if is_bpe else TrainerSpec.UNIGRAM
        trainer.byte_fallback = model.get("byte_fallback") is True
        splits = self._set_normaliser(self.model.normalizer_spec)
        for text, score in self._merged(model) if is_bpe else self._scored(model):
            kind = ModelPiece.NORMAL if score is not None else ModelPiece.CONTROL
            if trainer.byte_fallback and _BYTE.fullmatch(text):
                kind = ModelPiece.BYTE
            elif splits and SPACE in text[1:]:
                kind = ModelPiece.CONTROL if is_bpe else ModelPiece.UNUSED  # an unused piece of BPE disturbs the merges
            self.model.pieces.add(piece=text, score=score or 0.0, type=kind)
        self.added = self._add_tokens()
        named = {name: named_token(more, name) for name in NAMED}
        positions = {piece.piece: piece for piece in self.model.pieces}
        if len(positions) < len(self.model.pieces):
            raise SourceModelError(f"{path}: a piece has two ids")
        for text in self.added:
            is_control = text in named.values() or reserved(text)
            positions[text].type = ModelPiece.CONTROL if is_control else ModelPiece.USER_DEFINED
            if self._strips and not is_control:  # the blank before it, which is part of the piece then
                positions[text].piece = SPACE + text
        self._set_unknown(model, named["unk_token"], positions)

    def _scored(self, model: dict[str, Any]) -> Iterator[tuple[str, float | None]]:
        """Yield the pieces of a unigram model with their scores."""
        vocabulary = model.get("vocab")
        if not isinstance(vocabulary, list) or not vocabulary:
            raise self._error("the vocabulary of a Unigram model must be a list of pieces")
        for number, each in enumerate(vocabulary):
            match each:
                case [str() as piece, float() | int() as score] if piece and abs(score) < 1e30:
                    yield piece, float(score)
                case _:
                    raise self._error(f"piece {number:,} must be a text and its score")

    def _merged(self, model: dict[str, Any]) -> Iterator[tuple[str, float | None]]:
        """Yield the pieces of byte-pair encoding with scores in the order of their merges, None without a merge.

        sentencepiece merges any two pieces that are a piece together, and of several such pairs the one with the best
        score: the merges must be all such pairs, those of one piece one after the other.
        """
        ids = model.get("vocab")
        numbers = ids.values() if isinstance(ids, dict) else ()
        if not ids or not all(type(each) is int for each in numbers) or {*numbers} != {*range(len(ids))}:
            raise self._error("the vocabulary of a BPE model must have the ids from 0 without gaps")
        for name in ("continuing_subword_prefix", "end_of_word_suffix", "ignore_merges"):
            if model.get(name):
                raise self._error(f"{name} must be empty or false, is {shown(model[name])}")
        merges = [self._pair(number, each) for number, each in enumerate(model.get("merges") or [])]
        order = [piece for piece, _ in groupby(left + right for left, right in merges)]
        ranks = {piece: rank for rank, piece in enumerate(order)}
        if len(ranks) < len(order):
            raise self._error("the merges into one piece must stand one after the other")
        if unknown := next((piece for piece in order if piece not in ids), None):
            raise self._error(f"the merges make {unknown!r}, which the vocabulary has not")
        known = {piece for piece in ids if len(piece) == 1 or piece in ranks}
        given = set(merges)
        for piece in order:
            for position in range(1, len(piece)):
                pair = piece[:position], piece[position:]
                if pair[0] in known and pair[1] in known and pair not in given:
                    raise self._error(f"the merges must be those of a sentencepiece model, lack {' and '.join(pair)}")
        for piece in sorted(ids, key=ids.__getitem__):
            rank = ranks.get(piece, len(order) if len(piece) == 1 else None)
            yield piece, None if rank is None else -float(rank)

    def _pair(self, number: int, merge: object) -> tuple[str, str]:
        match merge.split(" ") if isinstance(merge, str) else merge:
            case [str() as left, str() as right] if left and right:
                return left, right
        raise self._error(f"merge {number:,} must be two pieces")

    def _add_tokens(self) -> list[str]:
        """Add the pieces of tokens that the vocabulary has not and return all added tokens."""
        tokens = self._fields.values.get("added_tokens") or []
        try:
            found = sorted((each["id"], each["content"]) for each in tokens)
        except (KeyError, TypeError):
            raise self._error("added_tokens must be tokens with id and content") from None
        for number, text in found:
            if not isinstance(text, str) or not text or type(number) is not int:
                raise self._error("added_tokens must be tokens with id and content")
            if number == len(self.model.pieces):
                self.model.pieces.add(piece=text, score=0.0)
            elif not 0 <= number < len(self.model.pieces):
                raise self._error(f"added_tokens: {text} must have the id {len(self.model.pieces):,}, has {number:,}")
            elif self.model.pieces[number].piece != text:
                other = self.model.pieces[number].piece
                raise self._error(f"added_tokens: {text} and {other} both have the id {number:,}")
        return [text for _, text in found]

    def _set_unknown(self, model: dict[str, Any], named: str | None, positions: dict[str, ModelPiece]) -> None:
        """Set the type of the unknown piece: that which tokenizer_config.json names, or else tokenizer.json.

        Transformers 5 writes the number 2 as unk_id of every T5, though that is </s> in MADLAD-400.
        """
        number = model.get("unk_id")
        if named is None and type(number) is int and 0 <= number < len(self.model.pieces):
            named = self.model.pieces[number].piece
        named = model.get("unk_token") if named is None else named
        if not isinstance(named, str) or named not in positions:
            raise self._error(f"has no unknown piece {shown(named)}")
        positions[named].type = ModelPiece.UNKNOWN

    def _set_normaliser(self, written: NormalizerSpec) -> bool:
        """Write how texts are normalised and return whether they are then split at blanks."""
        written.name, written.precompiled_charsmap = "identity", b""
        written.add_dummy_prefix = splits = escapes = self._strips = False
        rules = []
        for kind, each in self._steps("normalizer", "normalizers"):
            pattern = each.get("pattern")
            pattern = next(iter(pattern.values()), None) if isinstance(pattern, dict) else pattern
            if kind == "Precompiled":
                written.precompiled_charsmap = self._charsmap(each.get("precompiled_charsmap"))
            elif kind in ("NFKC", "Nmt"):
                rules.append(kind)
            elif kind == "Prepend" and each.get("prepend") == SPACE:
                written.add_dummy_prefix = True
            elif kind == "Replace" and pattern in BLANKS:
                escapes = escapes or (pattern, each.get("content")) == (" ", SPACE)
            elif kind not in ("NFC", "Strip"):  # a text has that form already
                raise self._error(f"the normaliser {_described(kind, pattern)} is none of sentencepiece")
        if rules and rules != ["Nmt"] and not written.precompiled_charsmap:
            rule = "nmt_nfkc" if "Nmt" in rules else "nfkc"
            made = sentencepiece.SentencePieceNormalizer(rule_name=rule).serialized_model_proto()
            written.precompiled_charsmap = ModelProto.FromString(made).normalizer_spec.precompiled_charsmap
        elif rules:
            raise self._error(f"the normalisers {' and '.join(rules)} are none of sentencepiece")
        for kind, each in self._steps("pre_tokenizer", "pretokenizers"):
            if kind == "Metaspace" and each.get("replacement") == SPACE:
                scheme = each.get("prepend_scheme", "always" if each.get("add_prefix_space", True) else "never")
                written.add_dummy_prefix = written.add_dummy_prefix or scheme != "never"
                splits, escapes = splits or each.get("split") is not False, True
            elif kind == "WhitespaceSplit":
                splits = self._strips = True
            else:
                raise self._error(f"the pre-tokeniser {kind} is none of sentencepiece")
        if not escapes:
            raise self._error(f"neither normaliser nor pre-tokeniser writes blanks as {SPACE}, as sentencepiece does")
        return splits

    def _steps(self, name: str, parts: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield type and fields of each step of a pipeline."""
        step = self._fields.values.get(name)
        steps = [step] if step is not None else []
        for each in steps:  # the parts of a sequence are appended to what is read; they may be sequences too
            if not isinstance(each, dict) or not isinstance(each.get("type"), str):
                raise self._error(f"{name} must be made of objects with a type")
            if each["type"] != "Sequence":
                yield each["type"], each
            elif isinstance(each.get(parts), list):
                steps += each[parts]
            else:
                raise self._error(f"{name} of the type Sequence must have {parts}")

    def _charsmap(self, text: object) -> bytes:
        try:
            return base64.b64decode(text if isinstance(text, str) else "", validate=True)
        except binascii.Error:
            raise self._error("precompiled_charsmap must be base64") from None

    def _error(self, message: str) -> SourceModelError:
        return SourceModelError(f"{self._fields.path}: {message}")


def named_token(more: JsonFields, name: str) -> str | None:
    """Return a special token that tokenizer_config.json names, as a text or as an object with its content."""
    value = more.values.get(name)
    value = value.get("content") if isinstance(value, dict) else value
    return value if isinstance(value, str) else None


def _described(kind: str, pattern: object) -> str:
    return f"{kind} of {pattern[:40]!r}" if isinstance(pattern, str) else kind
