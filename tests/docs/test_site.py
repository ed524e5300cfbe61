"""The site builds without a warning, which covers its internal links and anchors, and loads nothing from elsewhere."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from docs.generators.diagram import REQUEST, boxes, svg
from docs.generators.imports import imports, layers
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
        ("explanation/architecture.html", 'class="architecture"'),
    ]:
        content = (site / page).read_text(encoding="utf-8")
        assert text in content, page
        assert "<!-- generated:" not in content, page


@pytest.mark.parametrize("container", ["lingon", "lingon.serving"])
def test_the_diagram_shows_every_package_and_every_import_goes_down(container):
    tops = {name: box.top for box in boxes(container, 0, 100) for name in box.names}
    assert set(tops) == {name for layer in layers(container) for name in layer}
    assert {(start, end) for start, end in imports(container) if tops[start] > tops[end]} == set()
    assert all(name in svg() for name in tops)


def test_each_step_of_a_request_can_reach_the_next():
    edges = imports("lingon.serving")
    assert set(REQUEST) <= {name for edge in edges for name in edge}
    assert all((start, end) in edges for start, end in itertools.pairwise(REQUEST[3:]))


def test_every_line_of_the_diagram_has_room_in_its_box():
    """A letter of 13 pixels is 7 wide at most on average."""
    for left, top, width, height, text in re.findall(
        r'<rect x="(\S+)" y="(\S+)" width="(\S+)" height="(\S+)" rx="4"/>((?:\n<text x.*)+)', svg()
    ):
        lines = re.findall(r'x="(\S+)" y="(\S+)">(.*)</text>', text)
        assert 7 * max(len(line) for _, _, line in lines) <= float(width), lines
        assert all(float(top) < float(y) < float(top) + float(height) for _, y, _ in lines), lines
        assert all(float(x) == float(left) + float(width) / 2 for x, _, _ in lines)
