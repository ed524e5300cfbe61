"""The toolkit that a model comes from, as a witness: its ids of texts, and the tokens that it generates."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from lingon.errors import ParityError
from lingon.export.gates.quality import NEAR_TIE
from lingon.importers.files.pieces import Numbering
from lingon.importers.source import Source
from lingon.text import BOS, EOS, FORBIDDEN
from lingon.training.checkpoint import Checkpoint
from lingon.training.models.interface import AnyModel
from lingon.training.search import SearchSettings, normalised_score, translate

TOOLKIT = "Transformers"
SPACE = "\u2581"  # in pieces of sentencepiece
SENTENCES = 40  # that are compared
SEARCHES = ((1, 0.0), (4, 0.0), (4, 1.0))  # beam size and length penalty


def is_installed() -> bool:
    """Whether Transformers can be imported."""
    return importlib.util.find_spec("transformers") is not None


class TransformersWitness:
    """A model as Transformers loads it; ids are those of the checkpoint."""

    def __init__(self, folder: Path, code: str = "") -> None:
        """code: of the source language, for a model whose tokenizer writes it."""
        from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, GenerationConfig

        self._model: Any = AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=torch.float32).eval()
        self._model.generation_config = GenerationConfig()  # its values would replace those of `generate`
        self._tokenizer: Any = AutoTokenizer.from_pretrained(folder, **({"src_lang": code} if code else {}))

    def encode(self, text: str) -> list[int]:
        """Return the source ids of a text, with the end token."""
        return list(self._tokenizer(text).input_ids)

    def generate(
        self,
        source: Sequence[int],
        never: Sequence[int],
        settings: SearchSettings,
        most: int,
        forced: Sequence[int] = (),
    ) -> list[int]:
        """Return the generated ids, without those of the start and the end; `most` of them at most, the end counted.

        forced: ids that are read after the start
        never: ids that are not generated. They leave the softmax, as in Lingon, by renormalize_logits.
        """
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
    sources = [checkpoint.tokenizer.encode_source(text) for text in texts]
    theirs = [[source.source.rows[each] for each in ids] for ids in sources]
    for text, ids in zip(texts, theirs, strict=True):
        if (found := witness.encode(f"{code} {text}" if code else text)) != ids:
            raise ParityError(f"Transformers reads {text[:60]!r} as ids {found[:20]}, Lingon as {ids[:20]}")
    lines = [f"Transformers: ids of {len(texts)} texts are the same"]
    for beam_size, penalty in SEARCHES:
        settings = SearchSettings(beam_size=beam_size, length_penalty=penalty)
        label = f"Transformers: beam size {beam_size}, length penalty {penalty:g}"
        same = _count_same(checkpoint, source, witness, texts, settings, label)
        ties = f", {len(texts) - same} score alike" if same < len(texts) else ""
        lines.append(f"{label}: tokens of {same} of {len(texts)} texts are the same{ties}")
    return lines


def _count_same(
    checkpoint: Checkpoint,
    source: Source,
    witness: TransformersWitness,
    texts: Sequence[str],
    settings: SearchSettings,
    label: str,
) -> int:
    """Return how many texts have the same tokens; raise ParityError if another translation scores better than ours."""
    model, rows, same = checkpoint.model, source.target.rows, 0
    forced = checkpoint.tokenizer.languages.forced
    settings = replace(settings, forced=forced)
    silent, new_ids = _never_generated(source.target), _new_ids(source.target)
    sources = [checkpoint.tokenizer.encode_source(text) for text in texts]
    for text, ids, (best, *_) in zip(texts, sources, translate(model, sources, settings), strict=True):
        most = settings.max_length(len(ids), model.settings.max_positions)
        foreign = witness.generate(
            [source.source.rows[each] for each in ids], silent, settings, most, [rows[each] for each in forced]
        )
        if foreign == [rows[each] for each in best.tokens]:
            same += 1
            continue
        tokens = [new_ids[each] for each in foreign]
        theirs = _score(model, ids, tokens, settings, finished=len(tokens) < most)
        if settings.beam_size == 1 or theirs > best.score + NEAR_TIE:
            raise ParityError(
                f"{label}: {text[:60]!r} has other tokens, of score {theirs:.4f}; ours is {best.score:.4f}"
            )
    return same


@torch.inference_mode()
def _score(
    model: AnyModel, ids: Sequence[int], tokens: Sequence[int], settings: SearchSettings, *, finished: bool
) -> float:
    """Return the score that the search gives to a translation."""
    labels = [*tokens, EOS] if finished else [*tokens]
    given = torch.tensor([[BOS, *settings.forced, *labels[:-1]]])
    logits = model(torch.tensor([list(ids)]), torch.tensor([len(ids)]), given)[:, len(settings.forced) :]
    chosen = model.log_probs(logits)[0].gather(1, torch.tensor(labels)[:, None])
    return normalised_score(float(chosen.sum()), len(labels), settings)


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


def _new_ids(numbering: Numbering) -> dict[int, int]:
    """Return the id in Lingon of each id of the checkpoint that may be generated."""
    never = {*FORBIDDEN, *numbering.never}
    return {row: new for new, row in enumerate(numbering.rows) if new not in never}


def _never_generated(numbering: Numbering) -> list[int]:
    """Return the ids of the checkpoint that are never generated."""
    return sorted(set(numbering.rows) - _new_ids(numbering).keys())
