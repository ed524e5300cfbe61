"""Greedy and beam search under the rules of requests: slow, and without any code of `lingon.serving`."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from lingon.text import BOS, EOS, FORBIDDEN, UNK
from lingon.training.models.transformer import Transformer
from tests.support.naive_rules import is_valid, naive_permits
from tests.support.random_models import random_model


@dataclass(frozen=True, kw_only=True)
class NaiveRules:
    """The rules of a request as it gives them."""

    forbidden: tuple[str, ...] = ()
    min_tokens: int = 0
    no_repeat_ngram: int = 0
    repetition_penalty: float = 1.0


@dataclass(frozen=True)
class Naive:
    """A hypothesis: tokens without the end token, log-probability, and whether it ended."""

    tokens: tuple[int, ...]
    total: float
    finished: bool


@functools.cache
def logits_after(seed: int, source: tuple[int, ...], tokens: tuple[int, ...]) -> np.ndarray:
    """Return the logits, (vocab), of the token after these, computed from the beginning."""
    model: Transformer = random_model(seed)
    with torch.inference_mode():
        logits = model(torch.tensor([source]), torch.tensor([len(source)]), torch.tensor([[BOS, *tokens]]))[0, -1]
    found: np.ndarray = logits.double().numpy().copy()
    found[list(FORBIDDEN)] = -3e4
    return found


@dataclass(frozen=True)
class NaiveSearch:
    """The search of one source. bound: tokens of a translation with its prefix, the end token counted."""

    pieces: object
    rules: NaiveRules
    logits: Callable[[tuple[int, ...]], np.ndarray]
    bound: int
    prefix: tuple[int, ...] = ()

    def greedy(self) -> Naive:
        found = Naive(self.prefix, 0.0, False)
        while not found.finished and len(found.tokens) < self.bound:
            found = max(self.continuations(found), key=lambda each: each.total)
        return found

    def beam(self, size: int, count: int, penalty: float, ended: int | None = None) -> list[Naive]:
        """Return the hypotheses of a beam search.

        ended: the hypotheses that the search ends with under a length penalty; default: size
        """
        enough = count if penalty == 0 else max(ended or size, count)
        live, complete = [Naive(self.prefix, 0.0, False)], list[Naive]()
        while live and len(live[0].tokens) < self.bound:
            ranked = [each for parent in live for each in self.continuations(parent)]
            ranked.sort(key=lambda each: -each.total)
            complete += [each for each in ranked[:size] if each.finished]
            live = [each for each in ranked if not each.finished][:size]
            if live and len(complete) >= enough:
                worst = self.best(complete, enough, penalty)[-1]
                if self.score(worst, penalty) >= self.score(live[0], penalty):
                    return self.best(complete, count, penalty)
        return self.best(complete + live, count, penalty)

    def score(self, found: Naive, penalty: float) -> float:
        return found.total / max(len(found.tokens) - len(self.prefix) + found.finished, 1) ** penalty

    def best(self, found: Sequence[Naive], count: int, penalty: float) -> list[Naive]:
        return sorted(found, key=lambda each: -self.score(each, penalty))[:count]

    def continuations(self, found: Naive) -> list[Naive]:
        """Return all permitted continuations, or the end token alone if there is none."""
        logits = self.logits(found.tokens).copy()
        for token in set(found.tokens):
            value = logits[token]
            penalty = self.rules.repetition_penalty
            logits[token] = value / penalty if value > 0 else value * penalty
        log_probs = logits - logits.max()
        log_probs -= math.log(np.exp(log_probs).sum())

        def child(token: int) -> Naive:
            tokens = found.tokens if token == EOS else (*found.tokens, token)
            return Naive(tokens, found.total + float(log_probs[token]), token == EOS)

        permitted = [token for token in (EOS, *range(UNK + 1, len(logits))) if self.permits(found.tokens, token)]
        return [child(token) for token in permitted or [EOS]]

    def permits(self, tokens: tuple[int, ...], token: int) -> bool:
        generated, remaining = len(tokens) - len(self.prefix), self.bound - len(tokens)
        if token == EOS:
            return is_valid(self.pieces, tokens) and (generated + 1 >= self.rules.min_tokens or remaining == 1)
        if not naive_permits(self.pieces, [*tokens, token], self.rules.forbidden, remaining - 1):
            return False
        size = self.rules.no_repeat_ngram
        grams = [tuple((*tokens, token)[at : at + size]) for at in range(len(tokens) + 2 - size)]
        return size == 0 or not is_valid(self.pieces, tokens) or grams.count(grams[-1] if grams else ()) <= 1
