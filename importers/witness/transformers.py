"""Transformers as a witness: its ids of texts, and the tokens that it generates."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from lingon.errors import ParityError
from lingon.importers.source import Source
from lingon.importers.witness.comparison import SENTENCES, Search, compare_tokens
from lingon.training.checkpoint import Checkpoint
from lingon.training.search import Hypothesis, SearchSettings

TOOLKIT = "Transformers"
SPACE = "\u2581"  # in pieces of sentencepiece
SEARCHES: tuple[Search, ...] = ((1, 0.0), (4, 0.0), (4, 1.0))


def is_installed() -> bool:
    """Whether Transformers can be imported."""
    return importlib.util.find_spec("transformers") is not None


class TransformersWitness:
    """A model as Transformers loads it."""

    name = TOOLKIT

    def __init__(self, folder: Path, code: str = "") -> None:
        """code: of the source language, for a model whose tokenizer writes it."""
        from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, GenerationConfig

        self._model: Any = AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=torch.float32).eval()
        self._model.generation_config = GenerationConfig()  # its values would replace those of `generate`
        self._tokenizer: Any = AutoTokenizer.from_pretrained(folder, **({"src_lang": code} if code else {}))

    def encode(self, text: str) -> list[int]:
        """Return the source ids of a text, with the end token."""
        return list(self._tokenizer(text).input_ids)

    def searches(self, forced: Sequence[int]) -> Sequence[Search]:
        return SEARCHES

    def is_comparable(self, ours: Hypothesis, settings: SearchSettings) -> bool:
        return True

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
            max_new_tokens=most,
            forced_eos_token_id=None,
            renormalize_logits=True,
            bad_words_ids=[[each] for each in never],
            decoder_start_token_id=config.decoder_start_token_id,
            eos_token_id=config.eos_token_id,
            pad_token_id=config.pad_token_id,
        )
        with torch.inference_mode():
            begun = torch.tensor([[config.decoder_start_token_id, *forced]])
            found = self._model.generate(
                input_ids=torch.tensor([list(source)]), decoder_input_ids=begun, generation_config=generation
            )[0]
        ids: list[int] = found.tolist()[begun.size(1) :]
        return ids[: ids.index(config.eos_token_id)] if config.eos_token_id in ids else ids


def compare(checkpoint: Checkpoint, source: Source, folder: Path, texts: Sequence[str]) -> list[str]:
    """Compare ids and tokens with those of Transformers; return a line for each comparison.

    texts: normalised; the first SENTENCES are compared

    Raises ParityError if the ids of a text differ, or if a translation of Transformers scores better than ours.
    """
    witness, texts = TransformersWitness(folder, _source_code(checkpoint)), list(texts[:SENTENCES])
    code = _target_code(checkpoint)
    for text in texts:
        ids = checkpoint.tokenizer.encode_source(text)
        found = witness.encode(f"{code} {text}" if code else text)
        if found != [source.source.rows[each] for each in ids]:
            raise ParityError(f"Transformers reads {text[:60]!r} as ids {found[:20]}, Lingon as {ids[:20]}")
    return [
        f"Transformers: ids of {len(texts)} texts are the same",
        *compare_tokens(witness, checkpoint, source, texts),
    ]


def _source_code(checkpoint: Checkpoint) -> str:
    """Return the code of the source language, as the tokenizer of Transformers is told it; "" if it is not told one."""
    languages, wanted = checkpoint.config.languages, checkpoint.config.data.source_language
    for source in languages.sources if languages else ():
        if source.language == wanted and (source.before or source.after):
            code = (*source.before, *source.after)[0]
            return code.removeprefix("__").removesuffix("__") if code.startswith("__") else code
    return ""


def _target_code(checkpoint: Checkpoint) -> str:
    """Return what is written before a text for the target language, a code or a sentence; "" if nothing is."""
    languages, wanted = checkpoint.config.languages, checkpoint.config.data.target_language
    codes = [each.source for each in languages.targets if each.language == wanted] if languages else []
    return "".join(codes[0]).replace(SPACE, " ").strip() if codes else ""
