"""Menus through the shipped models: each item has the translation of its own text, in its own place."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest

from lingon import Model
from tests.support.repository import ROOT

ITEMS = [
    *("Home", "About us", "Contact", "Help", "Download", "Settings", "Save", "Cancel", "Red house", "The old man"),
    *("Price", "Messages", "My account", "Open the door", "Search", "News", "Products", "Terms of use", "Language"),
]
MENUS = 60


@pytest.fixture(scope="module", params=["en-de", "en-fr"])
def translate(request: pytest.FixtureRequest) -> Iterator[Callable[..., list[str]]]:
    with Model(ROOT / "models" / request.param) as model:
        yield lambda texts, **options: [result.text for result in model.translate(texts, beam_size=1, **options)]


def test_each_item_of_a_menu_has_the_translation_of_its_own_text(translate: Callable[..., list[str]]):
    chance, pages, menus = random.Random(7), list[str](), list[tuple[list[str], Callable[[list[str]], str]]]()
    for number in range(MENUS):
        name, gap = ("a", "button", "span")[number % 3], ("", " ", "\n  ", " | ")[number // 3 % 4]

        def page(items: list[str], name: str = name, gap: str = gap) -> str:
            return f"<div>{gap.join(f'<{name} id={place}>{item}</{name}>' for place, item in enumerate(items))}</div>"

        menus.append((chance.sample(ITEMS, 3), page))
        pages.append(page(menus[-1][0]))
    alone = dict(zip(ITEMS, translate(ITEMS), strict=True))
    expected = [page([alone[item] for item in items]) for items, page in menus]
    assert translate(pages, format="html") == expected


def test_a_reading_stays_with_the_translation_of_its_word(translate: Callable[..., list[str]]):
    words = ["house", "car", "dog", "school"]
    pages = [f"<p>The <ruby>{word}<rp>(</rp><rt>xy</rt><rp>)</rp></ruby> is old.</p>" for word in words]
    alone = translate([f"The {word} is old." for word in words])
    for page, plain in zip(translate(pages, format="html"), alone, strict=True):
        base, _, reading = page.partition("<ruby>")[2].partition("<rp>")
        assert (
            page.replace("<rp>(</rp><rt>xy</rt><rp>)</rp>", "")
            == f"<p>{plain.replace(base, f'<ruby>{base}</ruby>')}</p>"
        )
        assert base.strip()
        assert reading.startswith("(</rp><rt>xy</rt><rp>)</rp></ruby>")
