"""The site builds without a warning, which covers its internal links and anchors, and loads nothing from elsewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.support.pages import DOCS
from tests.support.repository import ROOT

STRICT = ["--fresh-env", "--nitpicky", "--fail-on-warning", "--keep-going", "--quiet"]
LOADED = {
    "script": "src",
    "img": "src",
    "iframe": "src",
    "source": "src",
    "video": "src",
    "link": "href",
    "object": "data",
}


class Resources(HTMLParser):
    """Collects the addresses that a browser loads with a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        address = dict(attrs).get(LOADED.get(tag, ""))
        if address:
            self.found.append(address)


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", *STRICT, str(DOCS), str(folder)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    return folder


def test_every_page_is_built(site):
    pages = {path.relative_to(DOCS).with_suffix(".html") for path in DOCS.rglob("*.md")}
    assert pages <= {path.relative_to(site) for path in site.rglob("*.html")}


def test_no_page_loads_anything_from_another_host(site):
    wrong = []
    for path in sorted(site.rglob("*.html")):
        page = Resources()
        page.feed(path.read_text(encoding="utf-8"))
        wrong += [f"{path.name}: {each}" for each in page.found if re.match(r"(\w+:)?//", each)]
    for path in sorted(site.rglob("*.css")):
        loads = re.findall(r"(?:url\(|@import )\s*[\"']?((?:\w+:)?//[^\"')]+)", path.read_text(encoding="utf-8"))
        wrong += [f"{path.name}: {each}" for each in loads]
    assert wrong == []


def test_the_generated_parts_are_in_the_pages(site):
    for page, text in [
        ("how-to/serving.html", "max_queue_tokens"),
        ("how-to/metrics.html", "lingon_queue_depth"),
        ("how-to/runbook.html", "LingonNoneReady"),
        ("reference/cli.html", "--max-queue-tokens"),
        ("reference/proto.html", "TranslateStreamRequest"),
        ("reference/bundle-format.html", "candidate_log_probs"),
        ("reference/statuses.html", "MODEL_UNLOADED"),
        ("reference/python.html", "AsyncClient"),
        ("explanation/reliability.html", "metrics truth"),
        ("explanation/architecture.html", "lingon.serving"),
    ]:
        content = (site / page).read_text(encoding="utf-8")
        assert text in content, page
        assert "<!-- generated:" not in content, page
