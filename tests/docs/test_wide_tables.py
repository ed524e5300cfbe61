"""Wide tables of the site: what may break over lines, so that a table is no wider than its page."""

from __future__ import annotations

import re

from docs.generators.chaos import hostile
from docs.generators.settings import settings

MOST_LETTERS = 30  # of a piece that cannot break, in tables of four to six columns


def longest(table: str) -> str:
    """The longest piece of a table that has no place for a line break."""
    return max(re.split(r"<wbr>|[\s|/-]+", table), key=len)


def test_the_table_of_settings_fits_its_page():
    assert len(longest(settings())) <= MOST_LETTERS + len("``")


def test_the_table_of_hostile_callers_fits_its_page():
    lines = [re.sub(r"\|[-|]+\|", "", line) for line in hostile().splitlines()]
    assert len(longest("\n".join(lines))) <= 20


def test_a_figure_that_is_not_known_is_said_to_be_unknown():
    assert "nan" not in re.findall(r"\w+", hostile())
