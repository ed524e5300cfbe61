"""Evaluation of a model: the loss on held-out pairs, and translations by the reference search."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from lingon.errors import CorpusError, SettingsError
from lingon.sentences import WordTooLong, split
from lingon.text import Tokenizer, normalise
from lingon.training.checkpoint import Checkpoint, load_checkpoint
from lingon.training.data.batches import EncodedPairs, plan_batches
from lingon.training.device import choose_device
from lingon.training.models.interface import AnyModel
from lingon.training.models.loss import smoothed_loss
from lingon.training.search import SearchSettings, translate


def translate_lines(
    checkpoint: Path,
    lines: list[str],
    *,
    beam_size: int,
    length_penalty: float,
    device: str = "auto",
    precision: str | None = None,
    batch_size: int = 64,
    on_progress: Callable[[int, int], object] = lambda done, of: None,
) -> list[str]:
    """Translate lines with a checkpoint and the reference search; a blank line stays blank.

    A line that is longer than the bundle of the checkpoint would read is translated in the same parts as there.

    on_progress: called now and then with the number of parts that are done and the number of all
    """
    if precision not in (None, "fp32"):
        raise SettingsError(f"--precision of a checkpoint must be fp32, got {precision!r}")
    loaded = load_checkpoint(checkpoint)
    parts = [_parts(loaded, normalise(line), number) for number, line in enumerate(lines, start=1)]
    settings = SearchSettings(beam_size=beam_size, length_penalty=length_penalty)
    model = loaded.model.to(choose_device(device))
    every_part = [part for line in parts for part in line]
    translated = iter(translate_texts(model, loaded.tokenizer, every_part, settings, batch_size, on_progress))
    return [" ".join(" ".join(next(translated) for _ in line).split()) for line in parts]


def _parts(checkpoint: Checkpoint, text: str, number: int) -> list[str]:
    """Return the parts of a normalised line that the model reads one by one; none if the line is blank."""
    longest = checkpoint.config.max_source_tokens

    def fits(part: str) -> bool:
        return len(checkpoint.tokenizer.encode_source(part)) <= longest

    if not text or fits(text):
        return [text] if text else []
    try:
        return [text[begin:end] for begin, end in split(text, fits)]
    except WordTooLong:
        raise CorpusError(
            f"line {number} has a single word of more than the {longest} tokens that the model reads at most"
        ) from None


def translate_texts(
    model: AnyModel,
    tokenizer: Tokenizer,
    texts: Sequence[str],
    settings: SearchSettings,
    batch_size: int = 64,
    on_progress: Callable[[int, int], object] = lambda done, of: None,
) -> list[str]:
    """Return the best translation of each normalised text, by the reference search; on_progress: see `translate`."""
    settings = replace(settings, forced=tokenizer.languages.forced)
    found = translate(model, [tokenizer.encode_source(text) for text in texts], settings, batch_size, on_progress)
    return [tokenizer.decode(hypotheses[0].tokens) for hypotheses in found]


@torch.inference_mode()
def held_out_loss(model: AnyModel, pairs: EncodedPairs, batch_tokens: int) -> float:
    """Return the mean negative log-likelihood per target token, without label smoothing; its exp is the perplexity."""
    total, tokens = torch.zeros((), dtype=torch.float64), 0
    for rows in plan_batches(pairs.lengths(), batch_tokens, seed=(0,)):
        batch = pairs.batch(rows.tolist())
        tokens += batch.tokens
        batch = batch.to(model.output.weight.device)
        total += smoothed_loss(model(*batch[:3]), batch.labels, 0.0).cpu()
    return float(total / tokens)
