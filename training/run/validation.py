"""What a validation measures: the loss of the whole text; BLEU and chrF of each pair of languages, and their means."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean

from lingon.scoring import Scores, score
from lingon.text import Tokenizer
from lingon.training.config import Config, LanguagePair, pair_name
from lingon.training.data.batches import encode_pairs
from lingon.training.data.corpus import Pair, by_languages, sides
from lingon.training.evaluation import held_out_loss, translate_texts
from lingon.training.models.interface import AnyModel
from lingon.training.search import SearchSettings


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
