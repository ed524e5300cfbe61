"""The options of translations and scores, as both clients take them, and which attention to ask for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypedDict

from lingon.alignment import KINDS, AttentionKind
from lingon.client.results import AttentionMatrix, Piece
from lingon.errors import SettingsError
from lingon.memories.segment import Segment
from lingon.terms.term import Term
from lingon.translation.v1 import translation_pb2 as pb

_NAMES = {number: kind for kind, number in KINDS.items()}


@dataclass(frozen=True, kw_only=True, slots=True)
class AttentionSelection:
    """Which attention matrices `score` returns: by default all that the model has.

    kinds: encoder, decoder (self-attention of either) or cross. None is all that the model has
    layers, heads: from 0. None is all
    mean_of_heads: return the mean of the heads of each layer, instead of each head
    alignment: return the one matrix of cross-attention from which alignments are made. No other field may be set then
    """

    kinds: Sequence[AttentionKind] = ()
    layers: Sequence[int] = ()
    heads: Sequence[int] = ()
    mean_of_heads: bool = False
    alignment: bool = False

    def __post_init__(self) -> None:
        for kind in self.kinds:
            if kind not in KINDS:
                raise SettingsError(f"kinds must be of {', '.join(KINDS)}, got {kind!r}")

    def fields(self) -> dict[str, Any]:
        """Return the fields of the message."""
        return {
            "kinds": [KINDS[kind] for kind in self.kinds],
            "layers": self.layers,
            "heads": self.heads,
            "mean_of_heads": self.mean_of_heads,
            "alignment": self.alignment,
        }


def read_matrices(messages: Iterable[pb.AttentionMatrix]) -> tuple[AttentionMatrix, ...]:
    """Return the matrices of a result, without those of a kind that this client does not know."""
    return tuple(
        AttentionMatrix(
            _NAMES[message.kind],
            message.layer,
            message.head if message.HasField("head") else None,
            tuple(_rows(message)),
        )
        for message in messages
        if message.kind in _NAMES
    )


def read_pieces(messages: Iterable[pb.Piece]) -> tuple[Piece, ...]:
    """Return the tokens of a text."""
    return tuple(Piece(message.piece, (message.span.begin, message.span.end)) for message in messages)


def _rows(message: pb.AttentionMatrix) -> Iterable[tuple[float, ...]]:
    weights, columns = tuple(message.weights), message.columns
    return (weights[row * columns : (row + 1) * columns] for row in range(message.rows))


DEFAULT_LONG_TEXT = "split"  # the clients' default; the default of the wire is to refuse
LONG_TEXT = {"refuse": pb.LONG_TEXT_POLICY_REFUSE, "split": pb.LONG_TEXT_POLICY_SPLIT}
FORMATS = {name: pb.TextFormat.Value(f"TEXT_FORMAT_{name.upper()}") for name in ("plain", "html", "xml", "pieces")}
GUARDS = {name: pb.GuardPolicy.Value(f"GUARD_POLICY_{name.upper()}") for name in ("off", "warn", "retry", "refuse")}
SPLIT_SENTENCES = {
    name: pb.SentenceSplitting.Value(f"SENTENCE_SPLITTING_{name.upper()}") for name in ("on", "nonewlines", "off")
}

POLICIES = {
    name: pb.LivePolicy.Value(f"LIVE_POLICY_{name.upper()}")
    for name in ("local_agreement", "wait_k", "alignment", "sentences")
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Sampling:
    """Random draws of tokens instead of a search for the likeliest. None means the default of the server.

    temperature: divides the logits; above 0
    top_k: draw from this many of the likeliest tokens; 0 means all
    top_p: draw from the smallest set of likeliest tokens that has this probability
    seed: the same seed gives the same translation of the same text at the same index of the list
    """

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    seed: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryOptions:
    """Which earlier translations a server looks for, and what it does with them. None means the default.

    memories: names of translation memories that the server keeps for the caller
    segments: those of a memory of the caller itself that the texts may need, at most 1,000; they are looked up first
    min_score: lowest score of a match, 50 to 100; 100 is an exact match. Default: 70
    max_matches: largest number of matches for a sentence in the result. Default: 1
    always_translate: translate also where a sentence has an exact match, so that matches are only shown
    use_fuzzy: let a fuzzy match guide the translation
    """

    memories: Sequence[str] = ()
    segments: Sequence[Segment] = ()
    min_score: int | None = None
    max_matches: int | None = None
    always_translate: bool = False
    use_fuzzy: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.memories, str):
            raise SettingsError("memories must be a list of names, got a str")

    def fields(self) -> dict[str, Any]:
        """Return the fields of the message."""
        return {
            "memories": list(self.memories),
            "segments": [each.message() for each in self.segments],
            "min_score": self.min_score,
            "max_matches": self.max_matches,
            "always_translate": self.always_translate,
            "use_fuzzy": self.use_fuzzy,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class SecondOptions:
    """Which sentences the second translator of a server may see, if it has one. None means the bound of the server.

    never: no sentence of the call is sent there
    below: sentences with a confidence below this are sent, 0 to 1, at most the bound of the server
    sentences: the most sentences of a request that are sent, at most the bound of the server
    """

    never: bool = False
    below: float | None = None
    sentences: int | None = None

    def fields(self) -> dict[str, Any]:
        """Return the fields of the message."""
        return {"never": self.never, "below": self.below, "sentences": self.sentences}


@dataclass(frozen=True, kw_only=True, slots=True)
class SecondServer:
    """A server with a large model that a model in this process asks about its doubtful sentences.

    url: of an API like OpenAI's, such as http://127.0.0.1:8000/v1. It gets the text of these sentences, the sentences
        around them and their terms
    model: its name there
    key_file: has the key that is sent as a bearer token; None sends none
    below: sentences with a confidence below this are sent, 0 to 1, and those that the guard suspects
    sentences: of one call that are sent at most
    characters: that a sentence has at least to be sent for its confidence
    timeout: seconds for a sentence; then the translation of the model stays
    concurrency: sentences that are open there at once
    hourly: sentences in an hour; None is any number
    """

    url: str
    model: str
    key_file: str | Path | None = None
    below: float = 0.5
    sentences: int = 16
    characters: int = 0
    timeout: float = 5.0
    concurrency: int = 8
    hourly: int | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.below <= 1:
            raise SettingsError(f"below must be 0 to 1, got {self.below:g}")
        if not 0 < self.timeout < float("inf"):
            raise SettingsError(f"timeout must be above 0, got {self.timeout:g}")
        for name, least in (("sentences", 1), ("characters", 0), ("concurrency", 1), ("hourly", 1)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise SettingsError(f"{name} must be at least {least}, got {value}")


class TranslateOptions(TypedDict, total=False):
    """How texts are translated. An option that is missing or None has the default of the model or the one below.

    split_sentences: "on" translates each sentence alone, and each line. "nonewlines" is for wrapped text, in which a
    single line break is a space and blank lines separate paragraphs. "off" gives the model each text as it is. All
    white space between sentences is kept.
    format: "html" and "xml" translate the text of elements. All else stays as it is, and tags inside a sentence are
    placed in its translation. "pieces" is for texts that you have cut into pieces of the vocabulary yourself, with
    blanks between them: the model reads these, target_prefix is in pieces too, and so are translations.
    guard: what the server does about translations that are empty, loop, or have the wrong language or length: nothing,
    a warning, a second try, or an error in place of the translation.
    terms: how words and phrases are translated, or targets by their sources; see lingon.Term. Any number of them: make
    a lingon.TermList of a long list, and give it to each call.
    """

    model: str | None  # "name" or "name/version"; needed if the languages fit several models of the server
    source: str | None  # language of the texts, a BCP-47 tag; "auto" detects that of each text, and needs target
    same_language: bool | None  # with "auto": the texts are in one, those beside a text tell it too; default: False
    target: str | None  # language of the translations, a BCP-47 tag
    beam_size: int | None  # 1 is greedy search
    num_hypotheses: int | None  # translations of each text, at most beam_size; sampled, the most beams of the model
    length_penalty: float | None  # score = log-probability / length ** length_penalty
    max_output_tokens: int | None  # of each translation; the model has a bound of its own
    sampling: Sampling | None  # None: search for the likeliest translation
    target_prefix: str | Sequence[str] | None  # how every translation begins, or a list with one for each text
    return_tokens: bool | None  # default: False
    return_alignment: bool | None  # default: False
    long_text: Literal["refuse", "split"] | None  # a text longer than the model reads; default: split
    split_sentences: Literal["on", "nonewlines", "off"] | None  # default: on; markup: nonewlines; forced_words: off
    return_sentences: bool | None  # default: False
    format: Literal["plain", "html", "xml", "pieces"] | None  # how texts are written; default: plain
    ignore_tags: Sequence[str] | None  # names of elements of markup that stay as they are, with what is in them
    splitting_tags: Sequence[str] | None  # names of further elements at which texts are split
    non_splitting_tags: Sequence[str] | None  # names of elements that belong to the sentence around them
    translate_attributes: Sequence[str] | None  # names of attributes of markup whose values are translated, such as alt
    keep: Sequence[str] | None  # strings that every translation keeps as they are
    protect: bool | None  # keep URLs, placeholders and other strings that are not language; default: True
    terms: Sequence[Term] | Mapping[str, str] | None  # what words are translated to; see TextResult.terms
    glossaries: Sequence[str] | None  # names of glossaries that the server keeps, the first one goes first
    memory: MemoryOptions | None  # None: no earlier translations
    second: SecondOptions | None  # None: as the server is set
    localise_numbers: bool | None  # write numbers with the separators of the target language; default: False
    lower_capitals: bool | None  # translate a sentence in capitals in lower case, and raise it again; default: True
    guard: Literal["off", "warn", "retry", "refuse"] | None  # default: retry if greedy, else warn
    shortlist: bool | None  # restrict the target vocabulary to pieces that fit the source, which is faster
    min_output_tokens: int | None  # of each translation, the end token included; default: 0
    no_repeat_ngram_size: int | None  # a run of so many tokens does not appear twice; default: 0, no such rule
    repetition_penalty: float | None  # above 1, tokens that the translation has become less likely; default: 1
    forbidden_words: Sequence[str] | None  # words or phrases that are in no translation
    forced_words: Sequence[str] | None  # words or phrases that every translation has
    patience: float | None  # beam search ends with beam_size * patience translations; default: 1
    coverage_penalty: float | None  # lowers the score of a translation that leaves source tokens out; default: 0
    prefix_bias: float | None  # below 1, target_prefix is likelier, but does not have to hold; default: 1
    alternatives: int | None  # complete this many of the likeliest tokens after target_prefix; default: 0, none
    min_alternative_probability: float | None  # no alternatives with less likely tokens; default: 0
    timeout: float | None  # seconds for each request to the server, retries included


class ScoreOptions(TypedDict, total=False):
    """How pairs are scored. See TranslateOptions."""

    model: str | None
    source: str | None  # language of the sources, a BCP-47 tag
    target: str | None
    return_alignment: bool | None
    attention: AttentionSelection | None  # None: no attention matrices
    format: Literal["plain", "pieces"] | None  # how both texts are written; default: plain
    timeout: float | None


class LiveOptions(TypedDict, total=False):
    """How a speaker is translated. None means the default.

    policy says when a part of a translation is agreed. All agree on everything at the end of a sentence and at a pause.

    - local_agreement: what the translations of the last lag_words updates begin with alike, 3 by default
    - wait_k: as many words as the source has, less lag_words, 5 by default
    - alignment: up to the first word that looks at one of the last lag_words source words, 3 by default. Needs a model
      with attention
    - sentences: whole sentences alone
    """

    model: str | None  # "name" or "name/version"; needed if the languages fit several models of the server
    source: str | None  # language of the words, a BCP-47 tag; not "auto"
    target: str | None  # language of the translation, a BCP-47 tag
    policy: Literal["local_agreement", "wait_k", "alignment", "sentences"] | None  # default: local_agreement
    lag_words: int | None  # 1 to 20, see above
    pause_ms: int | None  # milliseconds after which words without a successor are a pause; default: 3000
    agreed_only: bool | None  # no tentative text, which is less work; default: False
    terms: Sequence[Term] | Mapping[str, str] | None  # with the policy sentences: what words are translated to
    glossaries: Sequence[str] | None  # with the policy sentences: names of glossaries that the server keeps
    timeout: float | None  # seconds until the server is ready for words, retries included; what follows has no limit
