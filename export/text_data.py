"""What a bundle knows about texts: words that stay, usual lengths, and the regression for the confidence."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from lingon.bundle.manifest import Confidence, LengthRange, ReliabilityBin, TextData
from lingon.bundle.names import CARD, PROFILES
from lingon.bundle.store import Bundle, all_versions, open_bundle, write_bundle
from lingon.errors import SettingsError
from lingon.export.gates_text import engine_search
from lingon.scoring import sentence_chrf
from lingon.serving.guard import FEATURES, GOOD, features, profile
from lingon.serving.runtime.onnx_runner import load_runner
from lingon.serving.runtime.runner import Runner
from lingon.text import Tokenizer, normalise

# Words that translate to themselves, mined from pairs: they stand for protected strings while a model translates.

MOST_WORDS = 12
LEAST_PAIRS_OF_WORD = 50  # with the word in the source: models lose rarer words in other sentences
LEAST_SHARE = 0.85  # of these pairs that have it in the target too

_WORD = re.compile(r"[^\W_]+")
_NORMAL = 1.96  # of a normal distribution: a bound of 95 %


class SelfTranslatingWord(NamedTuple):
    """A word of pairs, how many have it in the source, and how many of these have it in the target too."""

    word: str
    pairs: int
    same: int

    @property
    def surety(self) -> float:
        """The lower bound of the share of `same` in `pairs` (Wilson 1927): a rare word needs a higher share."""
        share, square = self.same / self.pairs, _NORMAL**2
        spread = _NORMAL * math.sqrt(share * (1 - share) / self.pairs + square / (4 * self.pairs**2))
        return (share + square / (2 * self.pairs) - spread) / (1 + square / self.pairs)


def self_translating_words(
    pairs: Iterable[tuple[str, str]], *, least_pairs: int = LEAST_PAIRS_OF_WORD
) -> list[SelfTranslatingWord]:
    """Return the words that most pairs with them have on both sides, the surest and most frequent first.

    A word has a capital letter or figures only, and at least three characters: other words that are the same in both
    languages are parts of their grammars. A pair counts once for each of its words.

    pairs: (source, target), such as those of training
    """
    sources, both = Counter[str](), Counter[str]()
    for source, target in pairs:
        words = {word for word in _WORD.findall(source) if _may_stand(word)}
        sources.update(words)
        both.update(words.intersection(_WORD.findall(target)))
    found = [SelfTranslatingWord(word, count, both[word]) for word, count in sources.items() if count >= least_pairs]
    found = [each for each in found if each.same >= LEAST_SHARE * each.pairs]
    return sorted(found, key=lambda each: (-each.surety * math.log(each.pairs), each.word))[:MOST_WORDS]


def _may_stand(word: str) -> bool:
    return len(word) > 2 and (word.isdecimal() or (word[0].isupper() and word[1:].islower()))


# The usual lengths of translations, from training pairs.

LEAST_PAIRS = 1000  # of a range: fewer pairs say nothing about one of 1,000
OUTSIDE = 0.001  # share of the pairs on each side of a range


def length_ranges(lengths: Sequence[tuple[int, int]]) -> tuple[LengthRange, ...]:
    """Return ranges of sources of up to 1, 2, 4, ... tokens. Short of pairs, one takes in the sources below it.

    lengths: source and target tokens of each pair, without end tokens
    """
    pairs = np.array([pair for pair in lengths if min(pair) > 0], float).reshape(-1, 2)
    source, ratio = pairs[:, 0], pairs[:, 1] / pairs[:, 0]
    bounds, begin, bound = [], 0.0, 1
    while len(source) and begin < source.max():
        found = ratio[(source > begin) & (source <= bound)]
        if (source > bound).sum() < LEAST_PAIRS:
            found, bound = ratio[source > begin], int(source.max())
        if len(found) >= LEAST_PAIRS or bound >= source.max():
            least, most = np.quantile(found, (OUTSIDE, 1 - OUTSIDE))
            bounds.append(LengthRange(bound, round(float(least), 4), round(float(most), 4)))
            begin = bound
        bound *= 2
    return tuple(bounds)


# Logistic regression, and what its probabilities are worth.

RIDGE = 1e-3  # of the weights of standardised features, for each example
ROUNDS = 50  # of Newton's method, which converges in about ten
BINS, FOLDS = 10, 5


def fit(features: np.ndarray, right: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the weight of each feature and last the bias, (features + 1).

    features: (examples, features); right: (examples) bool; weights: (examples), how much each example counts
    """
    mean, spread = features.mean(axis=0), features.std(axis=0) + 1e-9
    standard = _with_ones((features - mean) / spread)
    ridge = np.diag([RIDGE * weights.sum()] * features.shape[1] + [1e-6 * weights.sum()])
    found = np.zeros(standard.shape[1])
    for _ in range(ROUNDS):
        expected = _sigmoid(standard @ found)
        gradient = standard.T @ (weights * (expected - right)) + ridge @ found
        curvature = (standard * (weights * expected * (1 - expected))[:, None]).T @ standard + ridge
        step = np.linalg.solve(curvature, gradient)
        found = found - step
        if np.abs(step).max() < 1e-9:
            break
    scaled = found[:-1] / spread
    return np.append(scaled, found[-1] - scaled @ mean)


def predict(model: np.ndarray, features: np.ndarray) -> np.ndarray:
    """Return the probability of each example, (examples)."""
    return _sigmoid(_with_ones(features) @ model)


def cross_predicted(features: np.ndarray, right: np.ndarray, weights: np.ndarray, group: np.ndarray) -> np.ndarray:
    """Return the probability of each example by a model that was fitted to the others.

    group: (examples). Examples of one group, such as translations of one sentence, are left out together
    """
    found = np.zeros(len(right))
    for fold in range(FOLDS):
        held = group % FOLDS == fold
        found[held] = predict(fit(features[~held], right[~held], weights[~held]), features[held])
    return found


def auroc(scores: np.ndarray, right: np.ndarray) -> float:
    """Return the probability that an example that is right scores higher than one that is not; 0.5 without both."""
    count = int(right.sum())
    if not 0 < count < len(right):
        return 0.5
    order = np.argsort(scores, kind="stable")
    values, ranks = scores[order], np.empty(len(scores))
    begins = np.flatnonzero(np.r_[True, values[1:] != values[:-1]])
    ends = np.r_[begins[1:], len(values)]
    ranks[order] = np.repeat((begins + ends + 1) / 2, ends - begins)  # equal scores share their mean rank
    return float((ranks[right].sum() - count * (count + 1) / 2) / (count * (len(right) - count)))


def reliability(confidence: np.ndarray, right: np.ndarray) -> tuple[ReliabilityBin, ...]:
    """Return bins of equal width of the confidence, without empty ones."""
    position = np.minimum((confidence * BINS).astype(int), BINS - 1)
    chosen = [position == each for each in range(BINS)]
    return tuple(
        ReliabilityBin(int(these.sum()), rounded(float(confidence[these].mean())), rounded(float(right[these].mean())))
        for these in chosen
        if these.any()
    )


def calibration_error(bins: tuple[ReliabilityBin, ...]) -> float:
    """Return the expected calibration error (Naeini et al. 2015): the mean of |confidence - share right|."""
    total = sum(each.sentences for each in bins)
    return sum(each.sentences * abs(each.confidence - each.right) for each in bins) / total


def rounded(value: float) -> float:
    """Return a number as a manifest has it, with six significant digits."""
    return float(f"{value:.6g}")


def _sigmoid(value: np.ndarray) -> np.ndarray:
    found: np.ndarray = 1 / (1 + np.exp(-np.clip(value, -700, 700)))
    return found


def _with_ones(features: np.ndarray) -> np.ndarray:
    return np.column_stack([features, np.ones(len(features))])


# The text data of a bundle: from its training text, and from its own translations of held-out text.

LEAST_SENTENCES = 200  # of held-out text: fewer do not determine the regression
MOST_SENTENCES = 2500  # of held-out text of each kind: more make it no surer
MOST_PAIRS = 200_000  # of the training text, evenly spaced
OTHER_WEIGHT = 0.25  # of held-out text of other kinds; that of the bundle's own kind has 1
BELOW_LOW = 0.01  # share of the held-out text of the bundle's own kind that has LOW_CONFIDENCE

Pairs = Sequence[tuple[str, str]]
Log = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class TranslationSearch:
    """The graphs of a bundle, and how it searches. Greedy search is measured too."""

    runner: Runner
    tokenizer: Tokenizer
    beam_size: int
    length_penalty: float


@dataclass(frozen=True, slots=True)
class _Examples:
    """Translations: features (examples, features), whether each is right, and the number of its sentence."""

    features: np.ndarray
    right: np.ndarray
    sentence: np.ndarray


def text_data(training: Pairs, tokenizer: Tokenizer) -> tuple[TextData, bytes]:
    """Return what training pairs tell about the texts of a model, and the content of PROFILES.

    training: what the model was trained on, or text of that kind. Of few pairs there are only words, and no profiles
    """
    words = tuple(each.word for each in self_translating_words(training))
    if len(training) < LEAST_PAIRS:
        return TextData(words), b""
    chosen = _spaced(training, MOST_PAIRS)
    profiles = profile(source for source, _ in chosen) + profile(target for _, target in chosen)
    return TextData(words, length_ranges(_lengths(tokenizer, chosen))), profiles


def fit_confidence(search: TranslationSearch, own: Pairs, other: Pairs, log: Log) -> Confidence:
    """Return the confidence of a bundle, fitted to its translations of text that it was not trained on.

    own, other: text of the kind that the bundle is for, and of other kinds, which may be empty
    Raises SettingsError if there are too few sentences of the own kind.
    """
    found = _examples(search, _spaced(own, MOST_SENTENCES), sorted({1, search.beam_size}))
    count = len(set(found.sentence.tolist()))
    if count < LEAST_SENTENCES:
        raise SettingsError(
            f"the confidence needs {LEAST_SENTENCES} held-out sentences that the model reads, got {count}"
        )
    right = found.right.mean()
    log(f"confidence: {len(found.right):,} translations of held-out text, {right:.1%} with a chrF of {GOOD} or more")
    if not found.right.any() or found.right.all():
        raise SettingsError(
            f"the confidence needs translations below and above a chrF of {GOOD}, got {right:.0%} above"
        )
    confidence, area, error = _fitted(found, _examples(search, _spaced(other, MOST_SENTENCES), [1]))
    log(f"confidence: AUROC {area:.3f}, calibration error {error:.3f} by cross-validation")
    return confidence


def _fitted(own: _Examples, other: _Examples) -> tuple[Confidence, float, float]:
    """Return the confidence, and its AUROC and calibration error on text of the own kind."""
    share = OTHER_WEIGHT * len(own.right) / max(len(other.right), 1)
    weights = np.concatenate([np.ones(len(own.right)), np.full(len(other.right), share)])
    measured = np.concatenate([own.features, other.features])
    right = np.concatenate([own.right, other.right])
    sentence = np.concatenate([own.sentence, other.sentence])
    crossed = cross_predicted(measured, right, weights, sentence)[: len(own.right)]
    *factors, bias = fit(measured, right, weights).tolist()
    bins = reliability(crossed, own.right)
    low = rounded(float(np.quantile(crossed, BELOW_LOW)))
    found = Confidence(rounded(bias), dict(zip(FEATURES, map(rounded, factors), strict=True)), low, bins)
    return found, auroc(crossed, own.right), calibration_error(bins)


def _examples(search: TranslationSearch, pairs: Pairs, beam_sizes: Sequence[int]) -> _Examples:
    """Translate the sources that the model can read, with each beam size."""
    runner, tokenizer = search.runner, search.tokenizer
    encoded = [(tuple(tokenizer.encode_source(source)), source, target) for source, target in pairs]
    readable = [
        each for each in encoded if tokenizer.unframed(each[0]) and len(each[0]) <= runner.limits.max_source_tokens
    ]
    readable.sort(key=lambda each: len(each[0]))
    measured, right = [], []
    for beam_size in beam_sizes:
        found = engine_search(runner, [ids for ids, _, _ in readable], beam_size, search.length_penalty)
        for (ids, source, target), (best, *_) in zip(readable, found, strict=True):
            text = tokenizer.decode(best.tokens).strip()
            measured.append(features(source, text, tokenizer.unframed(ids), best.log_probs))
            right.append(sentence_chrf(text, target) >= GOOD)
    sentence = np.tile(np.arange(len(readable)), len(beam_sizes))
    return _Examples(np.array(measured).reshape(-1, len(FEATURES)), np.array(right, bool), sentence)


def _spaced(pairs: Pairs, most: int) -> Pairs:
    """Return at most so many pairs, evenly spaced."""
    return pairs[:: -(-len(pairs) // most)] if pairs else pairs


def _lengths(tokenizer: Tokenizer, pairs: Pairs) -> list[tuple[int, int]]:
    sources = tokenizer.source.encode([source for source, _ in pairs])
    targets = tokenizer.target.encode([target for _, target in pairs])
    return [(len(source), len(target)) for source, target in zip(sources, targets, strict=True)]


# The section of a model card about text data.

TITLES = ("## Words that translate to themselves", "## Confidence")
_SECTION = re.compile(rf"^(?:{'|'.join(map(re.escape, TITLES))})\n.*?(?=^## |\Z)", re.MULTILINE | re.DOTALL)


def card_section(text: TextData) -> str:
    """Return what a model card says about text data."""
    words, confidence = TITLES
    section = f"""{words}

They stand for placeholders, URLs and other strings that a translation keeps: {", ".join(text.words) or "none"}.
"""
    if text.confidence is not None:
        section += f"\n{confidence}\n\n{_reliability(text.confidence)}"
    return section


def without_section(card: str) -> str:
    """Return a model card without what it says about text data."""
    return _SECTION.sub("", card)


def _reliability(confidence: Confidence) -> str:
    bins = confidence.reliability
    rows = (f"| {each.sentences:,} | {each.confidence:.3f} | {each.right:.3f} |" for each in bins)
    return f"""A server states for each sentence the probability that its translation has a chrF of {GOOD} or more. On
held-out text of the kind of the training text, by cross-validation, the expected calibration error is
{calibration_error(bins):.3f}. Below {confidence.low:.3f} a translation has the warning LOW_CONFIDENCE.

| translations | mean confidence | share with chrF >= {GOOD} |
|---|---|---|
{chr(10).join(rows)}
"""


# The text data of a bundle that was exported without it, or is calibrated again.


@dataclass(frozen=True, slots=True)
class CalibrationText:
    """Pairs of source and target.

    training: what the model was trained on, or text of that kind
    held_out: text that it was not trained on, of the kind that the bundle is for. Without it the confidence stays
    other: held-out text of other kinds, so that the confidence is low where the model is not at home
    """

    training: Pairs
    held_out: Pairs = ()
    other: Pairs = ()

    @classmethod
    def of(
        cls,
        training: Iterable[tuple[str, str]],
        held_out: Iterable[tuple[str, str]] = (),
        other: Iterable[tuple[str, str]] = (),
    ) -> CalibrationText:
        """Return the pairs as a model gets them, without those that have an empty side."""
        return cls(_normalised(training), _normalised(held_out), _normalised(other))


def add_text_data(path: Path, text: CalibrationText, log: Callable[[str], None] = lambda line: None) -> Bundle:
    """Write the next version of a bundle, with text data and otherwise the same files, and return it.

    path: a bundle, or the folder of its versions, of which the highest is read

    Raises BundleError if the bundle is damaged, and SettingsError if it serves several languages, is not in the folder
    of a version, or there is too little text.
    """
    bundle = open_bundle(path)
    manifest, folder = bundle.manifest, bundle.folder.resolve().parent
    _check_bundle(bundle)
    if len(text.training) < LEAST_PAIRS:
        raise SettingsError(
            f"the training text must have {LEAST_PAIRS:,} pairs of sentences or more, has {len(text.training):,}"
        )
    bundle.verify()
    tokenizer = bundle.tokenizer()
    found, profiles = text_data(text.training, tokenizer)
    if manifest.text is not None:
        found = replace(found, confidence=manifest.text.confidence)
    if text.held_out:
        defaults, runner = manifest.defaults, load_runner(bundle, "fp32", threads=0)
        search = TranslationSearch(runner, tokenizer, defaults.beam_size, defaults.length_penalty)
        found = replace(found, confidence=fit_confidence(search, text.held_out, text.other, log))
    files = {name: bundle.read(name) for name in manifest.checksums if name != PROFILES}
    version = max(all_versions(folder)) + 1
    files[PROFILES] = profiles
    files[CARD] = _card(files[CARD].decode(), version, found).encode()
    return write_bundle(folder / str(version), replace(manifest, version=version, text=found), files)


def _check_bundle(bundle: Bundle) -> None:
    """Raise SettingsError if there can be no next version of a bundle, or none with text data."""
    manifest, name = bundle.manifest, bundle.folder.resolve().name
    if manifest.languages is not None:
        raise SettingsError(
            f"{bundle.folder}: serves several languages, but text data is of one pair; a bundle of one pair can have it"
        )
    if not re.fullmatch(r"[1-9]\d*", name):
        raise SettingsError(
            f"{bundle.folder}: its name must be a number, the version, got {name!r}; name models/NAME/VERSION, or "
            f"models/NAME for the highest version"
        )


def _card(card: str, version: int, text: TextData) -> str:
    card = without_section(re.sub(r"(?<=, version )\d+", str(version), card, count=1))
    return f"{card.rstrip()}\n\n{card_section(text)}"


def _normalised(pairs: Iterable[tuple[str, str]]) -> Pairs:
    every = ((normalise(source), normalise(target)) for source, target in pairs)
    return [pair for pair in every if all(pair)]
