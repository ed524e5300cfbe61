"""Evaluation of a model: the loss on held-out pairs, translations by the reference search, and validations."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean

import torch

from lingon.errors import SettingsError
from lingon.files import TranslatedLines
from lingon.scoring import Scores, score
from lingon.text import Tokenizer, normalise, split
from lingon.training.batches import EncodedPairs, encode_pairs
from lingon.training.checkpoint import Checkpoint, load_checkpoint
from lingon.training.config import Config, LanguagePair, pair_name
from lingon.training.corpus import Pair, by_languages, sides
from lingon.training.epochs import plan_batches
from lingon.training.models.interface import AnyModel
from lingon.training.models.loss import smoothed_loss
from lingon.training.processes import choose_device
from lingon.training.search import SearchSettings, translate


def translate_lines(
    checkpoint: Path,
    lines: list[str],
    *,
    beam_size: int,
    length_penalty: float,
    device: str = "auto",
    precision: str | None = None,
    source_language: str | None = None,
    target_language: str | None = None,
    batch_size: int = 64,
    on_progress: Callable[[int, int], object] = lambda done, of: None,
) -> TranslatedLines:
    """Translate lines with a checkpoint and the reference search. A blank line stays blank.

    A line that is longer than the bundle of the checkpoint would read is translated in the same parts as there.

    on_progress: called now and then with the number of parts that are done and the number of all
    """
    if precision not in (None, "fp32"):
        raise SettingsError(f"--precision of a checkpoint must be fp32, got {precision!r}")
    loaded = _for_pair(load_checkpoint(checkpoint), source_language, target_language)
    parts = [_parts(loaded, normalise(line)) for line in lines]
    settings = SearchSettings(beam_size=beam_size, length_penalty=length_penalty)
    model = loaded.model.to(choose_device(device))
    every_part = [part for line in parts for part in line]
    translated = iter(translate_texts(model, loaded.tokenizer, every_part, settings, batch_size, on_progress))
    found = [" ".join(" ".join(next(translated) for _ in line).split()) for line in parts]
    return TranslatedLines(found, loaded.config.data.target_language)


def _for_pair(checkpoint: Checkpoint, source: str | None, target: str | None) -> Checkpoint:
    """Return a checkpoint that translates between these languages. None is that of its settings.

    Raises SettingsError for languages that it does not have.
    """
    config, data = checkpoint.config, checkpoint.config.data
    pair = source or data.source_language, target or data.target_language
    known_sources, known_targets = [data.source_language], [data.target_language]
    if config.languages is not None:
        known_sources = [each.language for each in config.languages.sources]
        known_targets = [each.language for each in config.languages.targets]
    known = ("--source-language", pair[0], known_sources), ("--target-language", pair[1], known_targets)
    for flag, language, languages in known:
        if language not in languages:
            raise SettingsError(
                f"{flag} must be a language of the checkpoint: {', '.join(languages)}; got {language!r}"
            )
    if config.languages is not None and pair[0] == pair[1]:
        raise SettingsError(f"--target-language must differ from --source-language, got {pair[1]!r}")
    chosen = data.model_copy(update={"source_language": pair[0], "target_language": pair[1]})
    config = config.model_copy(update={"data": chosen})
    return replace(checkpoint, config=config, tokenizer=config.tokenizer_of_pair(checkpoint.tokenizer))


def _parts(checkpoint: Checkpoint, text: str) -> list[str]:
    """Return the parts of a normalised line that the model reads one by one, or none if the line is blank."""
    longest = checkpoint.config.max_source_tokens

    def fits(part: str) -> bool:
        return len(checkpoint.tokenizer.encode_source(part)) <= longest

    if not text or fits(text):
        return [text] if text else []
    return [text[begin:end] for begin, end in split(text, fits)]


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
    """Return the mean negative log-likelihood per target token, without label smoothing. Its exp is the perplexity."""
    total, tokens = torch.zeros((), dtype=torch.float64), 0
    for rows in plan_batches(pairs.lengths(), batch_tokens, seed=(0,)):
        batch = pairs.batch(rows.tolist())
        tokens += batch.tokens
        batch = batch.to(model.output.weight.device)
        total += smoothed_loss(model(*batch[:3]), batch.labels, 0.0).cpu()
    return float(total / tokens)


# What a validation measures: the loss of the whole text. BLEU and chrF of each pair of languages, and their means.


@dataclass(frozen=True, slots=True)
class Validation:
    """The scores of a checkpoint.

    loss: negative log-likelihood per target token of the whole text
    scores: of each pair of languages
    """

    loss: float
    scores: Mapping[LanguagePair, Scores]

    @property
    def figures(self) -> dict[str, float]:
        """Loss and perplexity, and the means of BLEU and chrF over the pairs of languages."""
        perplexity = math.exp(min(self.loss, 700.0))  # exp of more overflows a float
        bleu, chrf = (fmean(getattr(each, name) for each in self.scores.values()) for name in ("bleu", "chrf"))
        return {"loss": self.loss, "perplexity": perplexity, "bleu": bleu, "chrf": chrf}

    @property
    def record(self) -> dict[str, float | str]:
        """The figures, and the scores with their signatures; of several pairs each score as in bleu_en-de."""
        several = len(self.scores) > 1
        return self.figures | {
            f"{name}_{'-'.join(languages)}" if several else name: value
            for languages, scores in self.scores.items()
            for name, value in asdict(scores).items()
        }

    @property
    def numbers(self) -> dict[str, float]:
        """The record without the signatures."""
        return {name: value for name, value in self.record.items() if not isinstance(value, str)}

    @property
    def signatures(self) -> str:
        """What BLEU and chrF are; if pairs have different tokens for BLEU, those of each."""
        of_bleu: dict[str, list[str]] = {}
        for languages, scores in self.scores.items():
            of_bleu.setdefault(scores.bleu_signature, []).append(pair_name(languages))
        bleu, *others = of_bleu
        if others:
            bleu = ", ".join(f"{signature} ({', '.join(pairs)})" for signature, pairs in of_bleu.items())
        return f"BLEU is {bleu}, chrF {next(iter(self.scores.values())).chrf_signature}"


def validate(
    model: AnyModel,
    tokenizer: Tokenizer,
    others: Mapping[LanguagePair, Tokenizer],
    pairs: Sequence[Pair],
    config: Config,
) -> Validation:
    """Score a model on validation text; others: see `encode_pairs`."""
    settings, own = config.training, config.data.languages
    search, scores = SearchSettings(beam_size=settings.valid_beam_size), {}
    model.eval()
    for languages, found in by_languages(pairs, own).items():
        sources, references = sides(found[: settings.valid_sentences])
        translations = translate_texts(model, others.get(languages, tokenizer), sources, search)
        scores[languages] = score(translations, references, languages[1])
    loss = held_out_loss(model, encode_pairs(pairs, tokenizer, others), settings.batch_tokens)
    model.train()
    return Validation(loss, scores)
