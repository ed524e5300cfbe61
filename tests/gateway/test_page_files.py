"""Files on the page: chosen or dropped, translated one after the other, and saved."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.documents import docx, files_of, paragraph, run

pytestmark = pytest.mark.foreign("chromium", "playwright")

TEXT, GERMAN = b"It is raining.\n", b"Es regnet.\n"
DOCX = docx(paragraph(run("It is "), run("raining", "<w:b/>"), run(".")))


@pytest.fixture
def page(browser: Any, served: tuple[str, str]) -> Iterator[Any]:
    page, problems = browser.new_page(viewport={"width": 360, "height": 780}, accept_downloads=True), list[str]()
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto(served[0])
    page.wait_for_selector("#target-language option", state="attached")
    page.check("[name=view][value=files]")
    yield page
    assert problems == []
    page.close()


def put(page: Any, *files: tuple[str, bytes]) -> None:
    page.set_input_files(
        "#file", [{"name": name, "mimeType": "application/octet-stream", "buffer": content} for name, content in files]
    )


def saved(page: Any, name: str) -> bytes:
    with page.expect_download() as found:
        page.get_by_role("link", name=name, exact=True).click()
    assert found.value.suggested_filename == name
    return Path(found.value.path()).read_bytes()


def test_files_come_back_translated_under_a_name_with_the_language(page: Any):
    put(page, ("a.txt", TEXT), ("Grüße 1.docx", DOCX))
    assert saved(page, "a.de.txt") == GERMAN
    content = files_of(saved(page, "Grüße 1.de.docx"))["word/document.xml"]
    assert "regnet" in str(content)
    assert page.evaluate("document.documentElement.scrollWidth") == 360


def test_a_dropped_file_is_translated(page: Any):
    made = page.evaluate_handle(
        """() => {
          const found = new DataTransfer();
          found.items.add(new File(["It is raining."], "dropped.txt"));
          return found;
        }"""
    )
    page.dispatch_event("#drop", "drop", {"dataTransfer": made})
    assert saved(page, "dropped.de.txt") == GERMAN.strip()


def test_a_file_that_is_not_translated_says_why_and_the_next_one_is(page: Any):
    put(page, ("a.docx", b"PK"), ("b.pdf", b"%PDF"), ("c.txt", TEXT))
    assert saved(page, "c.de.txt") == GERMAN
    first, second = page.locator("#file-list .warning").all_inner_texts()
    assert first.startswith("The file is no archive of its kind")
    assert second.startswith("A file must end in .txt")


def test_a_file_above_the_bound_is_an_error_that_names_it(page: Any):
    put(page, ("large.txt", b"x" * (17 << 20)))
    page.wait_for_selector("#file-list .warning:has-text('may have 16,777,216 bytes at most')")


def test_a_refused_file_is_sent_again_when_the_server_may_take_it(page: Any):
    path = "**/v1/translate:document"
    full = {"message": "there is no place", "code": 14}
    page.route(path, lambda route: route.fulfill(status=503, json=full, headers={"retry-after": "1"}))
    put(page, ("a.txt", TEXT))
    page.wait_for_selector("#file-list .warning:has-text('There is no place. The page tries again.')")
    page.unroute(path)
    assert saved(page, "a.de.txt") == GERMAN


def test_a_file_that_is_removed_is_not_sent(page: Any):
    path, sent = "**/v1/translate:document", list[str]()
    page.route(path, lambda route: sent.append(route.request.url))  # which gets no reply
    put(page, ("a.txt", TEXT), ("b.txt", TEXT), ("c.txt", TEXT))
    page.get_by_role("button", name="Remove b.txt").click()
    page.wait_for_function("() => document.querySelector('#file-list').innerText.includes('Translating')")
    page.unroute(path)
    page.get_by_role("button", name="Remove a.txt").click()
    assert saved(page, "c.de.txt") == GERMAN
    assert len(sent) == 1
    assert page.locator("#file-list li").count() == 1


def test_the_text_keeps_its_place_while_files_are_shown(page: Any):
    page.check("[name=view][value=text]")
    page.fill("#source", "It is raining.")
    page.wait_for_selector("#sentences .sentence")
    page.check("[name=view][value=files]")
    assert page.locator("#source").is_hidden()
    page.check("[name=view][value=text]")
    assert page.inner_text("#live") == "Es regnet."
