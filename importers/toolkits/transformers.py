"""Transformers beside an imported model: its ids of texts, and the tokens that it generates."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from lingon.errors import ParityError
from lingon.export.gates_text import NEAR_TIE, BeamSettings
from lingon.importers.files.fast_tokenizer import TOKENIZER
from lingon.importers.files.fields import JsonFields
from lingon.importers.files.pieces import SPACE
from lingon.importers.foreign_model import ForeignModel
from lingon.importers.readers.multilingual import SMALL_100, form_of
from lingon.importers.readers.opus_mt import TOKENIZER_CONFIG
from lingon.importers.toolkits.comparison import LENGTH_EXTRA, SENTENCES, compare_tokens
from lingon.training.checkpoint import Checkpoint
from lingon.training.search import Hypothesis, SearchSettings

TOOLKIT = "Transformers"
FIXED_POSITIONS = "marian", "mbart"  # types of models with a table of positions that does not grow
SEARCHES: tuple[BeamSettings, ...] = ((1, 0.0), (4, 0.0), (4, 1.0))


def is_installed() -> bool:
    """Return whether Transformers can be imported."""
    return importlib.util.find_spec("transformers") is not None


class TransformersToolkit:
    """A model as Transformers loads it."""

    name, length_extra, near_tie = TOOLKIT, LENGTH_EXTRA, NEAR_TIE

    def __init__(self, folder: Path, code: str = "") -> None:
        """code: of the source language, for a model whose tokenizer writes it."""
        from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, GenerationConfig, M2M100Tokenizer

        # The other attention of Transformers leaves out the bound of the scores of T5Gemma, and reports nothing.
        self._model: Any = AutoModelForSeq2SeqLM.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="eager"
        ).eval()
        config = self._model.config  # the other types have positions for any length
        self._start = config.bos_token_id if config.decoder_start_token_id is None else config.decoder_start_token_id
        self._positions = config.max_position_embeddings if config.model_type in FIXED_POSITIONS else sys.maxsize
        # The cache of T5Gemma keeps of a source, too, no more than the window of the decoder's self-attention.
        self._cached = config.decoder.sliding_window if config.model_type == "t5gemma" else sys.maxsize
        self._model.generation_config = GenerationConfig()  # its values would replace those of `generate`
        named = JsonFields.read_if_there(folder / TOKENIZER_CONFIG).text("tokenizer_class", "")
        reader: Any = M2M100Tokenizer if named == SMALL_100.tokenizer else AutoTokenizer
        self._tokenizer: Any = reader.from_pretrained(folder, **({"src_lang": code} if code else {}))

    def encode(self, text: str) -> list[int]:
        """Return the source ids of a text, with the end token."""
        return list(self._tokenizer(text).input_ids)

    def id_of(self, token: str) -> int:
        """Return the id of a token."""
        return int(self._tokenizer.convert_tokens_to_ids(token))

    @property
    def is_blind(self) -> bool:
        """Whether the tokenizer reads other pieces than its files hold, as that of NLLB of Transformers 5.24 does.

        Of a folder without tokenizer.json it reads neither the merges of the sentencepiece model nor, if no file lists
        them, the language codes. It reports nothing.
        """
        from transformers import __version__

        alone = not (Path(self._tokenizer.name_or_path) / TOKENIZER).is_file()
        return alone and int(__version__.partition(".")[0]) >= 5 and type(self._tokenizer).__name__.startswith("Nllb")

    def searches(self, forced: Sequence[int]) -> Sequence[BeamSettings]:
        return SEARCHES

    def is_comparable(self, source: Sequence[int], ours: Hypothesis, settings: SearchSettings) -> bool:
        return max(len(source), 1 + len(settings.forced) + len(ours.tokens)) <= self._positions

    def generate(
        self,
        source: Sequence[int],
        never: Sequence[int],
        settings: SearchSettings,
        most: int,
        forced: Sequence[int] = (),
    ) -> list[int]:
        """Return the generated ids. Those of `never` leave the softmax, as in Lingon, by renormalize_logits."""
        from transformers import GenerationConfig

        config = self._model.config
        beams = {"length_penalty": settings.length_penalty, "early_stopping": False} if settings.beam_size > 1 else {}
        generation = GenerationConfig(
            num_beams=settings.beam_size,
            **beams,
            do_sample=False,
            max_new_tokens=min(most, self._positions - len(forced)),
            forced_eos_token_id=None,
            renormalize_logits=True,
            bad_words_ids=[[each] for each in never],
            decoder_start_token_id=self._start,
            eos_token_id=config.eos_token_id,
            pad_token_id=config.pad_token_id,
            use_cache=len(source) < self._cached,
        )
        with torch.inference_mode():
            begun = torch.tensor([[self._start, *forced]])
            found = self._model.generate(
                input_ids=torch.tensor([list(source)]), decoder_input_ids=begun, generation_config=generation
            )[0]
        ids: list[int] = found.tolist()[begun.size(1) :]
        return ids[: ids.index(config.eos_token_id)] if config.eos_token_id in ids else ids


def compare(checkpoint: Checkpoint, source: ForeignModel, folder: Path, texts: Sequence[str]) -> list[str]:
    """Compare ids and tokens with those of Transformers and return a line for each comparison.

    texts: normalised. The first SENTENCES are compared

    Raises ParityError if the ids of a text differ, or if a translation of Transformers scores better than ours.
    """
    written, code = source_code(checkpoint), target_code(checkpoint)
    if source.facts.form == form_of(SMALL_100):
        # The tokenizer of M2M-100 writes a code where that of SMaLL-100, which Transformers has not, writes the target.
        written, code = code.removeprefix("__").removesuffix("__"), ""
    toolkit, texts = TransformersToolkit(folder, written), list(texts[:SENTENCES])
    if toolkit.is_blind:
        return ["not compared with Transformers, which needs tokenizer.json to read the pieces of NLLB"]
    for text in texts:
        ids = checkpoint.tokenizer.encode_source(text)
        found = toolkit.encode(f"{code} {text}" if code else text)
        if found != [source.source.rows[each] for each in ids]:
            raise ParityError(f"Transformers reads {text[:60]!r} as ids {found[:20]}, Lingon as {ids[:20]}")
    _check_target_code(checkpoint, source, toolkit)
    return [
        f"Transformers: ids of {len(texts)} texts are the same",
        *compare_tokens(toolkit, checkpoint, source, texts),
    ]


def _check_target_code(checkpoint: Checkpoint, source: ForeignModel, toolkit: TransformersToolkit) -> None:
    """Raise ParityError if the code of the target language has another id for Transformers."""
    for code, ours in zip(_forced_codes(checkpoint), checkpoint.tokenizer.languages.forced, strict=True):
        if (theirs := toolkit.id_of(code)) != source.target.rows[ours]:
            raise ParityError(f"Transformers has the id {theirs} for {code}, Lingon {source.target.rows[ours]}")


def _forced_codes(checkpoint: Checkpoint) -> list[str]:
    """Return the codes of the target language with which translations begin."""
    languages, wanted = checkpoint.config.languages, checkpoint.config.data.target_language
    targets = languages.targets if languages else ()
    return [code for target in targets if target.language == wanted for code in target.forced]


def source_code(checkpoint: Checkpoint) -> str:
    """Return the code of the source language, as the tokenizer of Transformers is told it, or "" if it is not told
    one.
    """
    languages, wanted = checkpoint.config.languages, checkpoint.config.data.source_language
    for source in languages.sources if languages else ():
        if source.language == wanted and (source.before or source.after):
            code = (*source.before, *source.after)[0]
            return code.removeprefix("__").removesuffix("__") if code.startswith("__") else code
    return ""


def target_code(checkpoint: Checkpoint) -> str:
    """Return what is written before a text for the target language, a code or a sentence, or "" if nothing is."""
    languages, wanted = checkpoint.config.languages, checkpoint.config.data.target_language
    codes = [each.source for each in languages.targets if each.language == wanted] if languages else []
    return "".join(codes[0]).replace(SPACE, " ").strip() if codes else ""
