"""The page where something is unusual: a server that fails, a long text, a browser with less, a narrow screen."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytestmark = pytest.mark.foreign("chromium", "playwright")

TEXT = "I would like a cup of tea."


@pytest.fixture
def blank(browser: Any, served: tuple[str, str]) -> Iterator[Any]:
    """The page, on which nothing has been translated."""
    page, problems = browser.new_page(base_url=served[0], viewport={"width": 360, "height": 780}), list[str]()
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto("/")
    page.wait_for_selector("#target-language option", state="attached")
    yield page
    assert problems == []
    page.close()


@pytest.fixture
def page(blank: Any) -> Any:
    """The page with a translation."""
    blank.fill("#source", TEXT)
    blank.wait_for_selector("#sentences .sentence")
    return blank


def refuse(page: Any, path: str, status: int, message: str, **headers: str) -> None:
    page.route(f"**/v1/{path}", lambda route: route.fulfill(status=status, json={"message": message}, headers=headers))


class TestErrors:
    def test_a_server_that_does_not_answer_at_first_is_tried_again(self, blank: Any):
        blank.route("**/v1/models", lambda route: route.abort())
        blank.reload()
        blank.wait_for_selector("#state:has-text('does not answer')")
        blank.unroute("**/v1/models")
        blank.wait_for_selector("#target-language option", state="attached")

    def test_a_missing_key_is_asked_for(self, blank: Any):
        refuse(blank, "models", 401, "an API key is needed: send it as metadata")
        blank.reload()
        blank.wait_for_selector("#key-field:visible")
        assert blank.inner_text("#state") == "This server needs an API key."

    def test_a_refused_text_does_not_stand_beside_the_translation_of_another_one(self, page: Any):
        refuse(page, "translate:stream", 400, "the text is refused")
        page.fill("#source", "Another text.")
        page.wait_for_selector("#state:has-text('The text is refused.')")
        assert page.inner_text("#live") == ""
        assert page.locator("#words").is_hidden()

    def test_a_request_over_a_quota_is_sent_again_when_the_server_says(self, page: Any):
        refuse(page, "translate:stream", 429, "the quota is used up", **{"retry-after": "1"})
        page.fill("#source", "It is raining.")
        page.wait_for_selector("#state:has-text('The page tries again.')")
        page.unroute("**/v1/translate:stream")
        page.wait_for_selector('#live:text-is("Es regnet.")')

    def test_links_that_a_quota_refuses_are_not_missing_silently(self, page: Any):
        refuse(page, "score", 429, "the quota is used up")
        page.fill("#source", "It is raining.")
        page.wait_for_selector("#state:has-text('The quota is used up.')")

    def test_a_stream_that_ends_early_is_asked_for_again(self, page: Any):
        page.route(
            "**/v1/translate:stream", lambda route: route.fulfill(status=200, body="", content_type="text/event-stream")
        )
        page.fill("#source", "It is raining.")
        page.wait_for_selector("#state:has-text('does not answer')")
        page.unroute("**/v1/translate:stream")
        page.wait_for_selector('#live:text-is("Es regnet.")')

    @pytest.mark.parametrize("button", ["#best", "#sentences button.word"])
    def test_an_error_of_a_button_is_that_of_the_server_not_of_the_browser(self, page: Any, button: str):
        page.route("**/v1/translate", lambda route: route.abort())
        page.locator(button).first.click()
        page.wait_for_selector("body:has-text('server does not answer')")
        assert "Failed to fetch" not in page.inner_text("body")


class TestTexts:
    def test_a_text_of_more_sentences_than_a_request_takes_has_its_links(self, blank: Any):
        blank.fill("#source", "It is raining. " * 300)
        blank.wait_for_selector("#sentences .sentence >> nth=299", timeout=120_000)
        blank.locator("#sentences .sentence").last.locator("button.word").first.focus()
        assert blank.locator(".lit").count() >= 2
        assert blank.inner_text("#state") == ""

    def test_a_paste_that_is_cut_is_reported(self, blank: Any):
        blank.focus("#source")
        blank.keyboard.insert_text("x" * 20_001)
        assert blank.inner_text("#count") == "20,000 characters"
        assert "left out" in blank.inner_text("#full")

    def test_the_error_of_a_long_text_is_on_the_screen(self, blank: Any):
        blank.set_viewport_size({"width": 1200, "height": 800})
        refuse(blank, "translate:stream", 400, "the text is refused")
        blank.fill("#source", "It is raining. " * 300)
        blank.wait_for_selector("#state:has-text('The text is refused.')")
        place = blank.locator("#state").bounding_box()
        assert 0 <= place["y"] <= 800

    def test_a_long_translation_has_most_of_the_screen_at_most_as_its_text_has(self, blank: Any):
        blank.set_viewport_size({"width": 1200, "height": 800})
        blank.fill("#source", "It is raining. " * 200)
        blank.wait_for_selector("#sentences .sentence >> nth=199", timeout=120_000)
        assert [blank.locator(name).bounding_box()["height"] for name in ("#source", "#live")] == [560, 560]

    def test_markup_in_a_text_stays_text(self, blank: Any):
        blank.fill("#source", "<img src=x onerror=alert(1)> I like <b>tea</b>.")
        blank.wait_for_selector("#sentences .sentence")
        assert blank.locator("main img, main b").count() == 0

    def test_a_long_word_widens_nothing(self, blank: Any):
        blank.fill("#source", "a" * 300)
        blank.wait_for_selector("#sentences .sentence")
        assert blank.evaluate("document.documentElement.scrollWidth") == 360

    def test_an_empty_text_leaves_nothing_of_the_last_one(self, page: Any):
        page.click("#attention summary")
        page.wait_for_selector("#matrix td[data-weight]")
        page.fill("#source", "")
        page.wait_for_selector("#matrix-state:has-text('There is no translation.')")
        assert page.locator("#matrix td").count() == 0
        assert page.locator("#copy").is_disabled()

    def test_texts_say_their_language_and_run_in_its_direction(self, page: Any):
        assert [page.get_attribute(name, "lang") for name in ("#source", "#live")] == ["en", "de"]
        page.fill("#source", "שלום")
        assert page.evaluate("getComputedStyle(document.getElementById('source')).direction") == "rtl"


class TestBrowsers:
    def test_copy_works_over_plain_http(self, page: Any):
        page.evaluate("Object.defineProperty(navigator, 'clipboard', {value: undefined})")
        page.click("#copy")
        page.wait_for_selector("#state:has-text('Copied')")
        page.fill("#source", "")
        page.keyboard.press("Control+V")
        assert page.input_value("#source") == "Ich hätte gern eine Tasse Tee."

    def test_the_chosen_colours_hold_on_every_page(self, page: Any):
        page.click("#theme")
        page.goto("/docs")
        assert page.get_attribute("#theme", "aria-pressed") == "true"
        assert page.get_attribute("html", "data-theme") == "dark"

    def test_colours_of_the_system_hide_neither_attention_nor_links(self, page: Any):
        page.emulate_media(forced_colors="active")
        page.click("#attention summary")
        page.wait_for_selector("#matrix td[data-weight]")
        colour = "(each) => getComputedStyle(each).backgroundColor"
        assert len({cell.evaluate(colour) for cell in page.locator("#matrix td[data-weight]").all()}) > 4
        word = page.locator("#sentences button.word").first
        before = word.evaluate(colour)
        word.focus()
        assert word.evaluate(colour) != before

    def test_tab_leaves_the_menu_and_closes_it(self, page: Any):
        page.locator("#sentences button.word").first.press("Enter")
        page.wait_for_selector("#menu button")
        page.keyboard.press("Tab")
        assert page.locator("#menu").is_hidden()
        assert page.evaluate("document.activeElement.textContent") == "hätte"

    def test_behind_a_proxy_that_adds_a_path_the_code_has_it_too(self, blank: Any):
        blank.route(
            "**/mt/**", lambda route: route.fulfill(response=route.fetch(url=route.request.url.replace("/mt/", "/")))
        )
        blank.goto("/mt/")
        blank.fill("#source", TEXT)
        blank.wait_for_selector("#sentences .sentence")
        code = blank.locator("#code code").all_text_contents()
        assert len(code) == 3
        assert all("/mt/v1/translate" in each for each in code)


class TestReference:
    def test_a_phone_needs_no_sideways_scrolling(self, blank: Any):
        blank.goto("/docs")
        blank.wait_for_selector("#schemas .operation")
        assert blank.evaluate("document.documentElement.scrollWidth") == 360

    def test_a_link_leads_to_its_message(self, blank: Any):
        blank.goto("/docs#GuardPolicy")
        blank.wait_for_selector("#schemas .operation")
        assert -1 < blank.evaluate("document.getElementById('GuardPolicy').getBoundingClientRect().top") < 780

    def test_the_values_of_an_enumeration_are_listed_with_their_meaning(self, blank: Any):
        blank.goto("/docs")
        assert "GUARD_POLICY_WARN\nThe result has a warning for each suspicion." in blank.inner_text("#GuardPolicy")

    def test_a_reference_that_does_not_arrive_is_an_error(self, blank: Any):
        blank.route("**/openapi.json", lambda route: route.abort())
        blank.goto("/docs")
        blank.wait_for_selector("#description:has-text('does not answer')")
