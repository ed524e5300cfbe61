"""The page translates while one types: what is agreed stays as it is, the rest is grey."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

pytestmark = pytest.mark.foreign("chromium", "playwright")

TYPED = "I would like a cup of tea. Tom has never been to Boston before."
AGREED = "all => all.filter((each) => !each.classList.contains('tentative')).map((each) => each.textContent).join('')"


@pytest.fixture
def page(browser: Any, served: tuple[str, str]) -> Iterator[Any]:
    page, problems = browser.new_page(viewport={"width": 1200, "height": 600}), list[str]()
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    page.goto(served[0])
    page.wait_for_selector("#target-language option", state="attached")
    page.check("[name=view][value=live]")
    yield page
    assert problems == []
    page.close()


def agreed(page: Any) -> str:
    return str(page.eval_on_selector_all("#heard span", AGREED))


def test_text_that_is_agreed_stays_while_more_is_typed(page: Any):
    seen = []
    for word in TYPED.split():
        page.locator("#spoken").press_sequentially(f"{word} ")
        seen.append(agreed(page))
    page.locator("#heard").filter(has_text="Boston").wait_for()
    seen.append(agreed(page))
    assert all(later.startswith(before) for before, later in pairwise(seen))


def test_a_revision_of_a_complete_sentence_begins_the_text_again(page: Any):
    page.fill("#spoken", "It is raining. Tom is here. ")
    page.locator("#heard").filter(has_text="Es regnet.").wait_for()
    page.fill("#spoken", "It is snowing. Tom is here. ")
    page.locator("#heard").filter(has_not_text="regnet").wait_for()
    page.locator("#heard").filter(has_text="Tom").wait_for()
    assert "regnet" not in page.inner_text("#heard")


def test_a_word_that_is_too_long_for_the_server_is_translated(page: Any):
    page.fill("#spoken", f"See https://example.com/{'x' * 120} now. It is raining. ")
    page.locator("#heard").filter(has_text="Es regnet.").wait_for()
    assert "xxx" in page.inner_text("#heard")


def test_leaving_the_view_ends_the_speaker_and_the_text_is_translated_when_one_comes_back(page: Any):
    page.fill("#spoken", "It is raining. ")
    page.locator("#heard").filter(has_text="Es regnet").wait_for()
    page.check("[name=view][value=text]")
    assert page.text_content("#heard") == ""
    page.check("[name=view][value=live]")
    page.locator("#heard").filter(has_text="Es regnet").wait_for()
