"""Pairs as users write them, made from a corpus: small letters, no full stop, capitals, addresses, two sentences.

    python scripts/user_forms.py --output FOLDER SET.SOURCE.gz SET.TARGET.gz [SOURCE TARGET ...]

Training text is edited text, so that a model trained on it alone fails on a chat line without a capital or a full stop.
This script writes FOLDER/forms.source and FOLDER/forms.target: one changed pair for every eighth pair of the corpora.
Both sides change alike, so that the translation of a line in capitals is in capitals. The change of a pair depends
on its number alone: the same corpora give the same text.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Iterator
from pathlib import Path

from lingon.files import read_parallel

EVERY = 8  # pairs of the corpora for a changed one
END = ".!?"
SITES = ("example.com", "example.org/news", "www.example.net/a?id=7", "mail@example.com", "github.com/example/project")

Pair = tuple[str, str]
Form = Callable[[Pair, Pair, random.Random], Pair]


def without_end(pair: Pair, _following: Pair, _random: random.Random) -> Pair:
    """Return the pair without the punctuation at its end."""
    return pair[0].rstrip(END), pair[1].rstrip(END)


def in_small_letters(pair: Pair, _following: Pair, _random: random.Random) -> Pair:
    """Return the source in small letters and without the punctuation at its end, and the proper target."""
    return pair[0].lower().rstrip(END), pair[1].rstrip(END)


def small_start(pair: Pair, _following: Pair, _random: random.Random) -> Pair:
    """Return the source with a small first letter, and the proper target."""
    return pair[0][:1].lower() + pair[0][1:], pair[1]


def in_capitals(pair: Pair, _following: Pair, _random: random.Random) -> Pair:
    """Return both sides in capitals."""
    return pair[0].upper(), pair[1].upper()


def with_address(pair: Pair, _following: Pair, choice: random.Random) -> Pair:
    """Return both sides followed by the same address of a page or of a person."""
    site = choice.choice(SITES)
    site = f"https://{site}" if "@" not in site and choice.random() < 0.5 else site
    return f"{pair[0]} {site}", f"{pair[1]} {site}"


def in_quotes(pair: Pair, _following: Pair, _random: random.Random) -> Pair:
    """Return both sides in quotes."""
    return f'"{pair[0]}"', f'"{pair[1]}"'


def two_sentences(pair: Pair, following: Pair, _random: random.Random) -> Pair:
    """Return the pair and the next one as one text, if the first is a sentence."""
    if not (pair[0].endswith(tuple(END)) and pair[1].endswith(tuple(END))):
        return pair
    return f"{pair[0]} {following[0]}", f"{pair[1]} {following[1]}"


# The last form is there more than once: most texts of users are longer than the sentences of the corpora.
FORMS: tuple[Form, ...] = (
    without_end,
    in_small_letters,
    small_start,
    in_capitals,
    with_address,
    in_quotes,
    two_sentences,
    two_sentences,
    two_sentences,
)


def changed(pairs: list[Pair]) -> Iterator[Pair]:
    """Yield one changed pair for every EVERY pairs, in their order."""
    for number in range(0, len(pairs) - 1, EVERY):
        choice = random.Random(number)
        yield choice.choice(FORMS)(pairs[number], pairs[number + 1], choice)


def main() -> None:
    """Write the changed pairs of the corpora that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--output", type=Path, required=True, help="folder for forms.source and forms.target")
    parser.add_argument("files", nargs="+", type=Path, help="source and target of each corpus in turn")
    arguments = parser.parse_args()
    if len(arguments.files) % 2:
        parser.error(f"files must be pairs of source and target, got {len(arguments.files)}")
    corpora = zip(arguments.files[::2], arguments.files[1::2], strict=True)
    pairs = [pair for source, target in corpora for pair in read_parallel(source, target)]
    arguments.output.mkdir(parents=True, exist_ok=True)
    sources, targets = zip(*changed(pairs), strict=True)
    for name, lines in (("source", sources), ("target", targets)):
        (arguments.output / f"forms.{name}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


if __name__ == "__main__":
    main()
