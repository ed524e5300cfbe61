"""The languages of the page: those that can be chosen, detected, and swapped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

pytestmark = pytest.mark.foreign("chromium", "playwright")


def model(source: str, target: str) -> dict[str, str]:
    names = {"sourceLanguageCode": source, "targetLanguageCode": target}
    return {"name": f"{source}-{target}", "version": "1", "precision": "int8", **names}


@pytest.fixture
def page(browser: Any, served: tuple[str, str]) -> Iterator[Any]:
    page, problems = browser.new_page(base_url=served[0]), list[str]()
    page.on("pageerror", lambda error: problems.append(str(error)))
    yield page
    assert problems == []
    page.close()


def serve(page: Any, pairs: Sequence[tuple[str, str]], pivot: str = "") -> None:
    """Open the page of a server with such models, of which en-de translates."""
    reply = {"models": [model(*pair) for pair in pairs], "maxTexts": 8, "pivotLanguageCodes": [pivot] if pivot else []}
    page.route("**/v1/models", lambda route: route.fulfill(json=reply))
    page.goto("/")
    page.wait_for_selector("#target-language option", state="attached")


def finds(page: Any, source: str) -> None:
    reply = {"languageCode": source, "confidence": 0.9}
    page.route("**/v1/translate:source", lambda route: route.fulfill(json=reply))


def offered(page: Any, side: str) -> list[str]:
    found: list[str] = page.locator(f"#{side}-language option").all_inner_texts()
    return found


def test_only_pairs_that_a_model_translates_can_be_chosen(page: Any):
    serve(page, [("en", "de"), ("fr", "en")])
    found = {}
    for source in ("", "en", "fr"):
        page.select_option("#source-language", source)
        found[source] = offered(page, "target")
    assert found == {"": ["German", "English"], "en": ["German"], "fr": ["English"]}


def test_a_model_of_several_languages_translates_none_into_itself(page: Any):
    tags = ["en", "de", "fr"]
    many = {
        "name": "many",
        "version": "1",
        "precision": "int8",
        "sourceLanguageCodes": tags,
        "targetLanguageCodes": tags,
    }
    page.route("**/v1/models", lambda route: route.fulfill(json={"models": [many], "maxTexts": 8}))
    page.goto("/")
    page.wait_for_selector("#target-language option", state="attached")
    page.select_option("#source-language", "de")
    assert offered(page, "target") == ["English", "French"]


def test_pairs_that_two_models_translate_can_be_chosen_and_name_both(page: Any):
    serve(page, [("en", "de"), ("fr", "en")], pivot="en")
    page.select_option("#source-language", "fr")
    assert offered(page, "target") == ["English", "German"]
    page.select_option("#target-language", "de")
    page.wait_for_selector("#model:has-text('fr-en'):has-text('en-de')")


def test_a_single_source_language_is_not_detected(page: Any):
    serve(page, [("en", "de"), ("en", "fr")])
    assert offered(page, "source") == ["English"]


def test_the_language_of_a_text_is_detected_and_its_model_is_named(page: Any):
    serve(page, [("fr", "de"), ("en", "de")])
    finds(page, "en")
    page.fill("#source", "It is raining.")
    page.wait_for_selector('#live:text-is("Es regnet.")')
    assert page.inner_text("#detected") == "English detected"
    assert page.inner_text("#model") == "en-de 1 (int8)"
    assert '"sourceLanguageCode":"en"' in page.locator("#code-curl").text_content()


def test_a_text_in_the_target_language_is_not_translated(page: Any):
    serve(page, [("fr", "de"), ("en", "de")])
    finds(page, "de")
    page.fill("#source", "Das ist gut.")
    page.wait_for_selector("#state:text-is('The text is in German already.')")
    assert page.inner_text("#live") == ""


def test_a_text_that_no_model_translates_says_so(page: Any):
    serve(page, [("fr", "de"), ("en", "de")])
    reply = {"code": 3, "message": "no model translates from it"}
    page.route("**/v1/translate:source", lambda route: route.fulfill(status=400, json=reply))
    page.fill("#source", "Det är en mening.")
    page.wait_for_selector("#state:text-is('No model translates from it.')")
    assert page.inner_text("#live") == ""


def test_languages_change_places_and_the_translation_becomes_the_text(page: Any):
    serve(page, [("en", "de"), ("de", "en")])
    finds(page, "en")
    assert page.locator("#swap").is_disabled()
    page.select_option("#target-language", "de")
    page.fill("#source", "It is raining.")
    page.wait_for_selector('#live:text-is("Es regnet.")')
    page.click("#swap")
    assert page.input_value("#source") == "Es regnet."
    chosen = [page.input_value(f"#{side}-language") for side in ("source", "target")]
    assert chosen == ["de", "en"]


def test_languages_can_change_places_while_the_language_of_a_text_is_not_detected_yet(page: Any):
    serve(page, [("en", "de"), ("de", "en")])
    finds(page, "en")
    page.select_option("#target-language", "de")
    page.fill("#source", "It is raining.")
    page.wait_for_selector('#live:text-is("Es regnet.")')
    page.evaluate(
        """() => {
          document.getElementById("source").dispatchEvent(new Event("input"));
          document.getElementById("swap").click();
        }"""
    )
    assert [page.input_value(f"#{side}-language") for side in ("source", "target")] == ["de", "en"]


def test_without_a_model_for_the_way_back_languages_cannot_change_places(page: Any):
    serve(page, [("en", "de"), ("en", "fr")])
    assert page.locator("#swap").is_disabled()
