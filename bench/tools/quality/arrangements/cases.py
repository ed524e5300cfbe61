"""The arrangements: texts with a string, alone or among words, with elements and punctuation around it."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lingon.segments.protection.find import find_protected

OPENING, CLOSING = "\ue000\ue002", "\ue001\ue003"
"""What stands for the start and the end tags of two kinds of elements."""

FRAMES: Sequence[tuple[str, str]] = (
    ("Please send ", " to the office."),
    ("Hello ", ", how are you?"),
    ("You have ", " new files."),
    ("Tom wants to see ", " tomorrow."),
    ("The teacher wrote ", " on the board."),
    ("Do you want to delete ", "?"),
    ("I think that ", " is very good."),
    ("My brother bought ", " last week."),
    ("We can find ", " in the garden."),
    ("There is no ", " in this house."),
    ("Open the door and take ", " with you."),
    ("When he saw ", ", he was happy."),
)
"""What comes before and after a string in a sentence."""

WORDS = ("house", "friend", "water", "good morning", "my dog", "the new book", "a cup of tea", "Boston")

ARRANGEMENTS: Mapping[str, str] = {
    "alone": "A",
    "in a sentence": "<A>",
    "at the begin": "A is in the garden.",
    "at the end": "Tom lives in A.",
    "twice": "Tom gave A to A yesterday.",
    "two": "<A and B>",
    "two beside each other": "<A B>",
    "in a tag": "<[A]>",
    "in a tag at the begin": "[A] is in the garden.",
    "in a tag at the end": "Tom lives in [A].",
    "in a tag at the end, with the full stop": "Tom lives in [A.]",
    "in a tag with words": "<[the W A]>",
    "in a tag before words": "<[A W]> Come here.",
    "in two tags": "<[{A}]>",
    "in a tag in a tag with words": "<[the W {A}]>",
    "each in a tag": "<[A] and {B}>",
    "both in a tag": "<[A and B]>",
    "twice, in other tags": "Tom gave [A] to {A} yesterday.",
    "one in a tag": "<[A] and B>",
    "beside a tag": "<[W] A>",
    "between tags": "<[W] A {W}>",
    "touches the tag of a word": "<[W]-A>",
    "in a tag that touches a word": "<[A]-W>",
    "in a tag around the sentence": "[<A>]",
    "in a tag over two sentences": "[<A> Tom is here.] He is {happy}.",
    "before a comma": "<A, my W,>",
    "in a tag before a comma": "<[A], my W,>",
    "in a tag before a mark": "Come here, [A]!",
    "in quotation marks": '<"A">',
    "in a tag in quotation marks": '<"[A]">',
    "in quotation marks in a tag": '<["A"]>',
    "in a tag in single quotation marks": "<'[A]'>",
    "in brackets": "<the W (A)>",
    "in a tag in brackets": "<the W ([A])>",
    "in brackets in a tag": "<the W [(A)]>",
    "after a colon": "The W: A",
    "in a tag after a colon": "The W: [A]",
    "after a dash": "<the W – A –>",
}
"""Texts by their names. A, B: the strings; W: some words; <...>: in a frame; [...], {...}: elements."""


@dataclass(frozen=True, slots=True)
class Case:
    """A text with strings that are kept, and characters of OPENING and CLOSING, which stand for tags.

    strings: those in it, each once
    """

    text: str
    strings: tuple[str, ...]

    @property
    def is_tagged(self) -> bool:
        """Whether it has tags."""
        return any(opening in self.text for opening in OPENING)


def case_of(arrangement: str, strings: Sequence[str], rng: random.Random) -> Case:
    """Return a text in which two strings are in an arrangement; words and frame are random."""
    form = ARRANGEMENTS[arrangement]
    frame = rng.choice(FRAMES)
    meaning = {"A": strings[0], "B": strings[1], **dict(zip("<>[{]}", (*frame, *OPENING, *CLOSING), strict=True))}
    text = "".join(rng.choice(WORDS) if each == "W" else meaning.get(each, each) for each in form)
    used = [string for name, string in zip("AB", strings, strict=True) if name in form]
    return Case(text, tuple(dict.fromkeys(used)))


def are_found(case: Case) -> bool:
    """Whether all strings of a case are kept in its text: what touches some of them makes them other strings."""
    text = without_tags(case.text)
    kept = [text[begin:end] for begin, end, _ in find_protected(text)]
    return all(text.count(string) <= sum(each.count(string) for each in kept) for string in case.strings)


def without_tags(text: str) -> str:
    """Return a text without the characters that stand for tags."""
    return text.translate(dict.fromkeys(map(ord, OPENING + CLOSING)))
