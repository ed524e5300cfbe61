"""The page: its files, and what a reader does with it in a browser."""

from __future__ import annotations

import gzip
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lingon.client.client import Client
from lingon.documents import SUFFIXES
from lingon.gateway.app import PAGE
from tests.support.foreign_clients import NODE_CLIENT
from tests.support.gateway import gateway
from tests.support.repository import ROOT

FOLDER = ROOT / "gateway" / "page"
MOST_BYTES = 60_000  # of the page, packed
TEXT = "I would like a cup of tea. Tom has never been to Boston."


async def test_the_files_of_the_page_allow_nothing_from_elsewhere():
    async with gateway() as http:
        replies = {path: await http.get(path) for path in PAGE if path != "/openapi.json"}
        description = await http.get("/openapi.json")
    for path, reply in replies.items():
        assert reply.status == 200
        assert "default-src 'none'" in reply.headers["content-security-policy"]
        assert not re.search(rb"https?://(?!www\.w3\.org/2000/svg)", reply.body), path
        assert not re.search(rb"<[^>]+ (style|on\w+)=|<style|<script>", reply.body), path
    assert "/v1/translate" in description.json["paths"]


async def test_the_kinds_of_files_that_can_be_chosen_are_those_that_are_read():
    async with gateway() as http:
        reply = await http.get("/")
    assert f'accept="{",".join(SUFFIXES)}"' in reply.body.decode()


def test_the_page_is_small():
    packed = {path.name: len(gzip.compress(path.read_bytes())) for path in FOLDER.rglob("*.*")}
    assert sum(packed.values()) < MOST_BYTES, packed


def test_the_description_of_the_api_is_that_of_the_protos():
    subprocess.run([sys.executable, ROOT / "scripts" / "openapi.py", "--check"], check=True)


async def test_without_a_page_there_is_none():
    async with gateway(http_page=False) as http:
        assert (await http.get("/")).status == 404


@pytest.fixture
def page(browser: Any, served: tuple[str, str]) -> Iterator[Any]:
    page, problems = browser.new_page(viewport={"width": 1200, "height": 900}), list[str]()
    asked: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    page.on("request", lambda request: asked.append(request.url))
    page.goto(served[0])
    page.fill("#source", TEXT)
    page.wait_for_selector("#sentences .sentence >> nth=1")
    yield page
    assert problems == []
    assert [url for url in asked if not url.startswith((served[0], "data:"))] == []
    page.close()


@pytest.mark.foreign("chromium", "playwright")
class TestBrowser:
    def test_a_text_that_is_typed_is_translated_as_grpc_does(self, page: Any, served: tuple[str, str]):
        with Client(served[1]) as client:
            expected = client.translate(TEXT, beam_size=1).text
        assert page.inner_text("#live") == expected

    def test_pointing_at_a_word_lights_what_it_was_translated_from(self, page: Any):
        page.locator("#sentences button.word").get_by_text("Tasse").hover()
        assert page.eval_on_selector_all(".lit", "found => found.map((each) => each.textContent)") == ["cup", "Tasse"]

    def test_the_matrix_is_that_of_score(self, page: Any, served: tuple[str, str]):
        page.click("#attention summary")
        page.wait_for_selector("#matrix td[data-weight]")
        page.select_option("#matrix-head", label="2")
        shown = page.eval_on_selector_all("#matrix td[data-weight]", "all => all.map((each) => +each.dataset.weight)")
        from lingon import AttentionSelection

        sentence = page.locator("#sentences .row").nth(1).inner_text()
        selection = AttentionSelection(kinds=["cross"], layers=[1], heads=[1])
        with Client(served[1]) as client:
            (found,) = client.score([("I would like a cup of tea.", sentence)], attention=selection)
        expected = [weight for row in found.attention[0].weights for weight in row]
        assert shown == pytest.approx(expected, abs=1e-6)

    def test_another_word_is_chosen_and_the_rest_is_decoded_again(self, page: Any):
        page.locator("#sentences button.word").get_by_text("gern", exact=True).click()
        page.wait_for_selector("#menu button")
        other = page.locator("#menu button").nth(1)
        word = other.inner_text()
        other.click()
        page.wait_for_selector(f'#live:has-text("{word}")')
        assert page.inner_text("#live").startswith("Ich hätte")
        assert page.inner_text("#live").endswith("Tom war noch nie in Boston.")

    def test_the_keyboard_alone_is_enough(self, page: Any):
        page.locator("#sentences button.word").first.focus()
        page.keyboard.press("Enter")
        page.wait_for_selector("#menu button")
        page.keyboard.press("ArrowDown")
        page.keyboard.press("Escape")
        assert page.evaluate("document.activeElement.textContent") == "Ich"
        assert page.locator("#menu").is_hidden()

    def test_a_phone_needs_no_sideways_scrolling_and_colours_can_be_dark(self, page: Any):
        page.set_viewport_size({"width": 360, "height": 780})
        page.click("#attention summary")
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        before = page.evaluate("getComputedStyle(document.body).backgroundColor")
        page.click("#theme")
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") != before

    def test_a_new_text_cancels_the_translation_of_the_old_one(self, page: Any, served: tuple[str, str]):
        for count in range(5):
            page.fill("#source", f"{TEXT} " * (count + 1))
            page.wait_for_timeout(260)
        page.fill("#source", "It is raining.")
        page.wait_for_selector('#live:text-is("Es regnet.")')

    @pytest.mark.foreign("node")
    @pytest.mark.parametrize("scheme", ["light", "dark"])
    @pytest.mark.parametrize(("path", "view"), [("/", "text"), ("/", "files"), ("/docs", "")])
    def test_axe_finds_nothing_serious(self, browser: Any, served: tuple[str, str], path: str, view: str, scheme: str):
        context = browser.new_context(bypass_csp=True, color_scheme=scheme)
        page = context.new_page()
        page.goto(served[0] + path)
        if path == "/":
            page.check("[name=view][value=files]")
            page.set_input_files("#file", {"name": "a.txt", "mimeType": "text/plain", "buffer": b"It is raining."})
            page.wait_for_selector("#file-list a")
            page.check(f"[name=view][value={view}]")
        if view == "text":
            page.fill("#source", TEXT)
            page.wait_for_selector("#sentences .sentence >> nth=1")
            for summary in page.locator("summary").all():
                summary.click()
            page.wait_for_selector("#matrix td[data-weight]")
        elif path == "/docs":
            page.wait_for_selector("#schemas .operation")
        page.add_script_tag(path=NODE_CLIENT / "node_modules" / "axe-core" / "axe.min.js")
        found = page.evaluate("axe.run().then((result) => result.violations)")
        serious = [each for each in found if each["impact"] in ("serious", "critical")]
        assert [(each["id"], [node["html"][:200] for node in each["nodes"]][:3]) for each in serious] == []
        context.close()

    def test_the_reference_of_the_api_has_every_call(self, browser: Any, served: tuple[str, str]):
        page = browser.new_page()
        page.goto(f"{served[0]}/docs")
        page.wait_for_selector("#operations .operation")
        shown = page.eval_on_selector_all("#operations h2", "all => all.map((each) => each.textContent)")
        assert shown == [
            "POST /v1/translate",
            "POST /v1/translate:stream",
            "POST /v1/score",
            "GET /v1/models",
            "POST /v1/detect",
            "POST /v1/translate:document",
            "POST /v1/translate:source",
        ]
        page.close()


def test_a_server_without_the_option_imports_none_of_it(tmp_path: Path):
    script = (
        "import sys, lingon.serving.server, lingon.serving.settings, lingon.cli.main;"
        "print([name for name in sys.modules if name.startswith(('starlette', 'uvicorn', 'babel', 'lingon.gateway'))])"
    )
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout == "[]\n"
