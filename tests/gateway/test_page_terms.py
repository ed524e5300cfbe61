"""The box of terms on the page: what is sent, and what became of each term in both texts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

pytestmark = pytest.mark.foreign("chromium", "playwright")

TEXT = "👍 My dog is old. The house is old, and Tom said that the house is small."
TERMS = "dog = Köter\nhouse = Gebäude\n\n = \nTom\nsmall=klein=winzig\n"


@pytest.fixture
def page(browser: Any, served: tuple[str, str]) -> Iterator[Any]:
    page, problems = browser.new_page(viewport={"width": 1200, "height": 900}), list[str]()
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto(served[0])
    page.click("#terms-view summary")
    page.fill("#source", TEXT)
    with page.expect_request("**/v1/translate:stream") as asked:
        page.fill("#terms", TERMS)
    page.asked = json.loads(asked.value.post_data)
    page.wait_for_selector("#outcomes li")
    yield page
    assert problems == []
    page.close()


def texts(page: Any, selector: str) -> list[str]:
    return page.eval_on_selector_all(selector, "found => found.map((each) => each.textContent)")


def test_each_line_is_a_term_and_one_without_a_translation_is_kept(page: Any):
    assert page.asked["terms"] == [
        {"source": "dog", "target": "Köter"},
        {"source": "house", "target": "Gebäude"},
        {"source": "Tom", "target": "Tom"},
        {"source": "small", "target": "klein=winzig"},
    ]
    page.click("#code summary")
    assert '"source":"dog"' in page.inner_text("#code-curl")


def test_each_place_of_a_term_has_a_line_with_its_outcome(page: Any):
    lines = [line.rsplit("\n")[0] for line in texts(page, "#outcomes .outcome")]
    assert lines == ["dog → Köter", "house → Gebäude", "Tom", "house → Gebäude", "small → klein=winzig"]
    assert texts(page, "#outcomes .quiet").count("kept as it is") == 1
    assert texts(page, ".missed") == texts(page, "#outcomes .warning") == []


def test_terms_are_marked_in_both_texts(page: Any):
    assert texts(page, "#source-marks mark") == ["dog", "house", "Tom", "house", "small"]
    assert texts(page, "#live mark") == ["Köter", "Gebäude", "Tom", "Gebäude", "klein=winzig"]
    assert page.text_content("#source-marks") == f"{TEXT}\n"


def test_a_term_that_is_missed_is_named_and_marked_in_the_text_alone(page: Any):
    def missing(route: Any) -> None:
        """Answer with the reply of the server, in which the term of "dog" is missed."""
        lines = route.fetch().text().splitlines()
        (place,) = (index for index, line in enumerate(lines) if line.startswith('data: {"done"'))
        reply = json.loads(lines[place].removeprefix("data: "))
        outcome = reply["done"]["result"]["terms"][0]
        del outcome["targetSpan"]
        outcome["means"] = "TERM_MEANS_MISSED"
        body = "\n".join([*lines[:place], f"data: {json.dumps(reply)}", "", ""])
        route.fulfill(content_type="text/event-stream", body=body)

    page.route("**/v1/translate:stream", missing)
    page.fill("#source", f"{TEXT} Well.")
    page.wait_for_selector("#outcomes .warning")
    assert texts(page, "#outcomes .warning") == ["missing"]
    assert texts(page, ".missed") == ["dog", "dog → Köter"]
    assert texts(page, "#live mark")[0] == "Gebäude"


def test_the_marks_are_where_the_field_has_the_words(page: Any):
    page.fill("#source", f"{TEXT}\n" * 30)
    page.wait_for_selector("#source-marks mark >> nth=100")
    page.eval_on_selector("#source", "each => each.scrollTo(0, 300)")
    page.wait_for_function("document.getElementById('source-marks').scrollTop === 300")
    boxes = page.evaluate(
        "['source', 'source-marks'].map((id) => document.getElementById(id)).map((each) =>"
        " [each.clientWidth, each.clientHeight, each.scrollHeight, getComputedStyle(each).font])"
    )
    assert boxes[0] == boxes[1]


def test_pointing_at_an_outcome_lights_the_term_in_both_texts(page: Any):
    page.locator(".outcome").nth(3).hover()
    assert texts(page, "mark.lit") == ["house", "Gebäude"]
    assert page.eval_on_selector_all("#live mark", "all => all.findIndex((each) => each.matches('.lit'))") == 3
    page.locator(".outcome").nth(0).focus()
    assert "dog" in texts(page, "mark.lit")


def test_the_translation_is_that_of_a_request_with_the_terms(page: Any, served: tuple[str, str]):
    request = {"texts": [TEXT], "terms": page.asked["terms"], "options": {"beamSize": 1}}
    reply = page.request.post(f"{served[0]}/v1/translate", data=request).json()
    assert page.text_content("#live") == reply["results"][0]["hypotheses"][0]["text"]


def test_without_terms_nothing_is_marked(page: Any):
    page.fill("#terms", "")
    page.wait_for_selector("#outcomes li", state="detached")
    assert texts(page, "mark") == []


def test_terms_that_the_server_refuses_are_named(page: Any):
    page.fill("#terms", "dog = Köter\ndog = Hund")
    page.wait_for_selector('#state.warning:has-text("dog")')
    assert texts(page, "mark") == []
