"""The commands and the code of every page do what the page says, in the order of the page."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.pages import DOCS, PAGES, CodeBlock, blocks, runs, tokens, where
from tests.support.repository import ROOT

LANGUAGES = {"bash", "console", "python", "text", "toml", "json", "yaml", "{eval-rst}", "{toctree}"}
REASONS = {
    "needs Docker",
    "needs Kubernetes",
    "needs a cluster",
    "needs a network",
    "needs an object store",
    "needs files of your own",
    "takes minutes",
}
WITH_COMMANDS = [page for page in PAGES if any(runs(block) for block in blocks(page))]


def named(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", WITH_COMMANDS, ids=named)
def test_the_commands_of_a_page_run_in_their_order(page, follow_page):
    follow_page(page)


def test_every_block_has_a_language_that_says_whether_it_runs():
    wrong = [where(block) for page in PAGES for block in blocks(page) if block.language not in LANGUAGES]
    assert wrong == []


def test_each_block_that_is_not_run_says_why():
    skipped: list[CodeBlock] = [block for page in PAGES for block in blocks(page) if block.mark == "not run"]
    assert {block.argument for block in skipped} <= REASONS


def test_code_of_the_site_is_in_fences_so_that_it_has_a_language():
    indented = [named(page) for page in DOCS.rglob("*.md") for token in tokens(page) if token.type == "code_block"]
    assert indented == []
