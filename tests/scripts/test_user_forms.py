"""Pairs as users write them: how many there are, that both sides change alike, and that they come out the same."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from scripts import user_forms

SCRIPT = Path(user_forms.__file__)
PAIR, NEXT = ("I live in Boston.", "Ich wohne in Boston."), ("Why?", "Warum?")


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        (user_forms.without_end, ("I live in Boston", "Ich wohne in Boston")),
        (user_forms.in_small_letters, ("i live in boston", "Ich wohne in Boston")),
        (user_forms.small_start, ("i live in Boston.", "Ich wohne in Boston.")),
        (user_forms.in_capitals, ("I LIVE IN BOSTON.", "ICH WOHNE IN BOSTON.")),
        (user_forms.in_quotes, ('"I live in Boston."', '"Ich wohne in Boston."')),
        (user_forms.two_sentences, ("I live in Boston. Why?", "Ich wohne in Boston. Warum?")),
    ],
)
def test_a_form_changes_both_sides_alike(form: user_forms.Form, expected: user_forms.Pair) -> None:
    assert form(PAIR, NEXT, random.Random(0)) == expected


@pytest.mark.parametrize("seed", range(8))
def test_both_sides_have_the_same_address(seed: int) -> None:
    source, target = user_forms.with_address(PAIR, NEXT, random.Random(seed))
    assert source.removeprefix(PAIR[0]) == target.removeprefix(PAIR[1])
    assert source.removeprefix(PAIR[0]).strip().removeprefix("https://") in user_forms.SITES


def test_a_heading_is_not_joined_to_the_next_sentence() -> None:
    assert user_forms.two_sentences(("Boston", "Boston"), NEXT, random.Random(0)) == ("Boston", "Boston")


def test_the_same_corpora_give_one_changed_pair_for_every_eight_each_time(tmp_path: Path) -> None:
    for side, word in (("en", "house"), ("de", "Haus")):
        (tmp_path / side).write_text("".join(f"{word} {number}.\n" for number in range(100)))
    files = [str(tmp_path / "en"), str(tmp_path / "de")]
    for output in ("first", "second"):
        command = [sys.executable, str(SCRIPT), "--output", str(tmp_path / output), *files]
        subprocess.run(command, check=True)
    written = {side: (tmp_path / "first" / f"forms.{side}").read_text() for side in ("source", "target")}
    assert [len(text.splitlines()) for text in written.values()] == [13, 13]
    for side, text in written.items():
        assert (tmp_path / "second" / f"forms.{side}").read_text() == text


def test_a_source_without_a_target_is_refused(tmp_path: Path) -> None:
    found = subprocess.run(
        [sys.executable, str(SCRIPT), "--output", str(tmp_path / "out"), "only"], capture_output=True, text=True
    )
    assert found.returncode == 2
    assert "got 1" in found.stderr
    assert not (tmp_path / "out").exists()
