"""Legal requests that cost a server much, as the bytes that a caller sends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lingon.text import Tokenizer
from lingon.translation.v1 import translation_pb2 as pb

SERVICE = "/lingon.translation.v1.TranslationService"
PAIRS = 64  # texts or pairs of one request


@dataclass(frozen=True, slots=True)
class Attack:
    """One request; body: the serialised message, made once, so that sending it costs this process little."""

    name: str
    method: str
    body: bytes

    @property
    def path(self) -> str:
        """The path of the method in HTTP/2."""
        return f"{SERVICE}/{self.method}"


def translate(name: str, texts: Sequence[str], **options: Any) -> Attack:
    """A Translate; options: those of DecodingOptions."""
    request = pb.TranslateRequest(texts=texts, options=pb.DecodingOptions(**options))
    return Attack(name, "Translate", request.SerializeToString())


def split(name: str, texts: Sequence[str]) -> Attack:
    """A Translate whose texts the server splits."""
    return translate(name, texts, beam_size=1, long_text=pb.LONG_TEXT_POLICY_SPLIT)


def tiny_sentences(characters: int, texts: int = 1) -> Attack:
    """A Translate that splits texts of so many characters in all into a sentence for every two of them."""
    each = characters // texts
    return split(f"{characters / 1e6:.3g} MB in tiny sentences", [("! " * (each // 2 + 1))[:each]] * texts)


def marked_texts(texts: int = 256) -> Attack:
    """A Translate of texts that are one letter with 1,800 combining marks, whose order NFC has to sort out."""
    return translate(f"{texts} texts of combining marks", ["a" + "\u0301\u0323" * 900] * texts, beam_size=1)


def empty_pairs(pairs: int = 2_000_000) -> Attack:
    """A Score of empty pairs, two bytes each."""
    return Attack(f"{pairs / 1e6:g} million empty pairs", "Score", b"\x0a\x00" * pairs)


def score(name: str, pairs: Sequence[tuple[str, str]], *, alignment: bool = False) -> Attack:
    """A Score of pairs of source and target."""
    made = [pb.ScorePair(source=source, target=target) for source, target in pairs]
    return Attack(name, "Score", pb.ScoreRequest(pairs=made, return_alignment=alignment).SerializeToString())


def target_text(tokenizer: Tokenizer, word: str, tokens: int) -> str:
    """The longest text of one repeated word that has at most so many target tokens."""
    count = tokens
    while len(tokenizer.encode_target(" ".join([word] * count))) > tokens:
        count -= 1
    return " ".join([word] * count)


def dear_requests(short: Sequence[str], long: Sequence[str], target: str) -> list[Attack]:
    """One attack of each kind, for the cases about fairness.

    short, long: source texts, at least PAIRS each; target: a target text as long as the model takes
    """
    few, many = list(short[:PAIRS]), list(long[:PAIRS])
    sampling = pb.SamplingOptions(temperature=1.0, seed=1)
    return [
        translate("64 short texts", few, beam_size=1),
        translate("64 short texts, sampled", few, beam_size=1, sampling=sampling),
        translate("64 long texts", many, beam_size=1),
        score("Score of 64 pairs", [("a", target)] * PAIRS),
        translate("beam 8 with alignment", many, beam_size=8, num_hypotheses=8, return_alignment=True),
        split("a book to split", [" ".join(short[place % len(short)] for place in range(250))]),
        translate("256 empty texts", [""] * 256),
    ]
