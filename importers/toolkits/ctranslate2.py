"""CTranslate2 beside an imported model: the tokens that it generates from pieces. It has no tokenizer."""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lingon.errors import SourceModelError
from lingon.export.gates_text import NEAR_TIE, BeamSettings
from lingon.importers.files.fields import JsonFields
from lingon.importers.files.pieces import Numbering
from lingon.importers.foreign_model import ForeignModel
from lingon.importers.readers.ctranslate2 import MODEL, ctranslate2_folder, read_vocabularies
from lingon.importers.readers.ctranslate2_files import read_variables, special_tokens
from lingon.importers.readers.opus_mt import CONFIG
from lingon.importers.toolkits.comparison import LENGTH_EXTRA, compare_tokens
from lingon.text import BOS, EOS, UNK
from lingon.training.checkpoint import Checkpoint
from lingon.training.search import Hypothesis, SearchSettings

TOOLKIT = "CTranslate2"
BEAM_SIZE = 4  # of the beam search that is compared
PATIENCE = 2  # its beam search ends when so many times the beam size have ended; ours if no better one can end


def is_installed() -> bool:
    """Return whether CTranslate2 can be imported."""
    return importlib.util.find_spec("ctranslate2") is not None


class CTranslate2Toolkit:
    """A folder as CTranslate2 loads it, computed in float32 on the CPU whatever the type of its weights is.

    It takes and returns pieces, by which it is told ids: the numbers of its vocabulary are not used.
    """

    name, length_extra, near_tie = TOOLKIT, LENGTH_EXTRA, NEAR_TIE

    def __init__(self, folder: Path, source: ForeignModel) -> None:
        """Raise SourceModelError if CTranslate2 cannot load the folder."""
        import ctranslate2

        try:
            self._translator: Any = ctranslate2.Translator(str(folder), device="cpu", compute_type="float32")
        except (RuntimeError, ValueError) as error:
            raise SourceModelError(f"{folder}: CTranslate2 cannot load it: {_first_line(error)}") from None
        variables = read_variables(folder / MODEL)
        config = special_tokens(JsonFields.read_if_there(folder / CONFIG), folder / MODEL, variables)
        self._adds_end = config.flag("add_source_eos", False)
        self._end = config.text("eos_token", "</s>")
        unknown = config.text("unk_token", "<unk>")
        _, self._vocabulary = read_vocabularies(folder, unknown)
        self._source, self._target = (
            _pieces_by_row(each, self._end, unknown) for each in (source.source, source.target)
        )
        self._penalty = source.facts.length_penalty
        starts_with_a_code = "decoder_start_token" in config.values and config.values["decoder_start_token"] is None
        self._start = [self._vocabulary[source.target.rows[BOS]]] if starts_with_a_code else []

    def searches(self, forced: Sequence[int]) -> Sequence[BeamSettings]:
        """Return the searches. After forced tokens its beam search drops the end token of all hypotheses but one."""
        beams = dict.fromkeys((0.0, self._penalty))
        return [(1, 0.0)] if forced else [(1, 0.0), *((BEAM_SIZE, penalty) for penalty in beams)]

    def is_comparable(self, source: Sequence[int], ours: Hypothesis, settings: SearchSettings) -> bool:
        """Return whether it finds such a translation. Its beam search loses some that are empty."""
        return settings.beam_size == 1 or bool(ours.tokens)

    def generate(
        self,
        source: Sequence[int],
        never: Sequence[int],
        settings: SearchSettings,
        most: int,
        forced: Sequence[int] = (),
    ) -> list[int]:
        """Return the generated ids."""
        pieces = [self._source[row] for row in source]
        if self._adds_end and pieces[-1] == self._end:
            del pieces[-1]
        silent = set(never)
        rows = {piece: row for row, piece in self._target.items() if row not in silent}
        prefix = [self._target[row] for row in forced]
        found = self._translator.translate_batch(
            [pieces],
            target_prefix=[[*self._start, *prefix]] if self._start or prefix else None,
            beam_size=settings.beam_size,
            length_penalty=settings.length_penalty,
            patience=PATIENCE if settings.beam_size > 1 else 1,
            min_decoding_length=0,
            max_decoding_length=most + len(prefix),
            max_input_length=0,
            suppress_sequences=[[piece] for piece in self._vocabulary if piece not in rows],
        )
        return [rows[piece] for piece in found[0].hypotheses[0][len(prefix) :]]


def compare(checkpoint: Checkpoint, source: ForeignModel, folder: Path, texts: Sequence[str]) -> list[str]:
    """Compare tokens with those of CTranslate2 for a folder of its own and return a line for each search.

    Raises ParityError as `compare_tokens` does.
    """
    toolkit = CTranslate2Toolkit(ctranslate2_folder(folder), source)
    return list(compare_tokens(toolkit, checkpoint, source, texts))


def compare_converted(checkpoint: Checkpoint, source: ForeignModel, folder: Path, texts: Sequence[str]) -> list[str]:
    """Compare tokens for a folder of Transformers, which CTranslate2 converts. See `compare`.

    A model that it cannot convert or load is not compared, and a line says so.
    """
    from ctranslate2.converters import TransformersConverter

    with tempfile.TemporaryDirectory() as room:
        converted = Path(room) / "converted"
        try:
            TransformersConverter(str(folder)).convert(str(converted))
            toolkit = CTranslate2Toolkit(converted, source)
        except Exception as error:  # what its converter raises depends on the model, and on both versions
            return [f"not compared with CTranslate2, which does not convert the model: {_first_line(error)}"]
        return list(compare_tokens(toolkit, checkpoint, source, texts))


def _pieces_by_row(numbering: Numbering, end: str, unknown: str) -> dict[int, str]:
    """Return the piece of each row that has one. The start and the padding have none."""
    first_alias = len(numbering.pieces) - numbering.aliases
    pieces = numbering.written or numbering.pieces
    named = zip(numbering.rows[UNK + 1 : first_alias], pieces[UNK + 1 : first_alias], strict=True)
    return {**dict(named), numbering.rows[EOS]: end, numbering.rows[UNK]: unknown}


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)
