"""The pages of the project and its tools agree: checks, templates, README."""

from __future__ import annotations

import os
import re
import shlex
import subprocess

import pytest
import yaml
from markdown_it import MarkdownIt

from lingon.serving.auth.charges import DETECT, LOOK_UP
from lingon.serving.engine.cost import DECODE, ENCODE, FORCE, RESTRICT, SAMPLE, SCORE
from tests.support.pages import PAGES, TOP_PAGES
from tests.support.repository import ROOT

# A make below another one, as in `make test`, takes its options and prints the folders that it enters.
OUTSIDE_MAKE = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


def dry_run(*targets: str) -> list[str]:
    """Return the commands that make would run, without those for files that are there."""
    command = ["make", "--dry-run", "--old-file=.venv/test.done", "--old-file=.venv/bin/pip", *targets]
    return subprocess.check_output(command, cwd=ROOT, env=OUTSIDE_MAKE, text=True).replace("\\\n", " ").splitlines()


def test_make_test_runs_the_checks_and_every_test_once():
    groups = [shlex.split(line) for line in dry_run("test") if " -m pytest " in line]
    left_out = [word.partition("=")[2] for words in groups for word in words if word.startswith("--ignore=")]
    named = [word for words in groups for word in words if word.startswith("tests/")]
    assert [words for words in groups if not {*words} & {*named}], "one group has all that no other names"
    assert sorted(left_out) == sorted(named)
    assert all((ROOT / path).exists() for path in named)
    assert set(dry_run("checks")) <= set(dry_run("test"))


def test_make_help_lists_every_target():
    targets = set(re.search(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)[1].split())
    listed = re.findall(
        r"^make (\S+) ", subprocess.check_output(["make", "help"], cwd=ROOT, env=OUTSIDE_MAKE, text=True), re.MULTILINE
    )
    assert {*listed, "help"} == targets


def test_the_commands_of_make_on_the_pages_are_targets():
    targets = set(re.search(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)[1].split())
    named = {name for page in PAGES for name in re.findall(r"`make ([\w-]+)", page.read_text(encoding="utf-8"))}
    assert named <= targets


@pytest.mark.parametrize(
    "template", sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml")), ids=lambda path: path.name
)
def test_an_issue_template_is_a_form(template):
    form = yaml.safe_load(template.read_text(encoding="utf-8"))
    if template.name != "config.yml":
        assert {"name", "description", "body"} <= set(form)
        assert all(field["type"] in ("textarea", "input") and field["attributes"]["label"] for field in form["body"])


def test_links_of_the_project_pages_lead_to_files():
    wrong = []
    for page in TOP_PAGES:
        text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        for link in re.findall(r"\]\(([^)#]+)[^)]*\)", text):
            if not link.startswith("https://") and not (page.parent / link).exists():
                wrong.append(f"{page.name}: {link}")
    assert wrong == []


def test_each_row_of_a_table_is_in_it_and_has_a_cell_for_each_column():
    """A blank line ends a table: the rows below it would be text."""
    wrong = []
    for page in PAGES:
        lines = page.read_text(encoding="utf-8").splitlines()
        for token in MarkdownIt().enable("table").parse("\n".join(lines)):
            if token.type in ("table_open", "paragraph_open"):
                first, last = token.map
                rows = {len(re.findall(r"(?<!\\)\|", line)) for line in lines[first:last] if line.startswith("|")}
                if rows and (token.type == "paragraph_open" or len(rows) > 1):
                    wrong.append(f"{page.name}:{first + 1}")
    assert wrong == []


def test_the_weights_of_a_quota_on_the_page_are_those_of_the_code():
    page = (ROOT / "docs" / "how-to" / "security.md").read_text(encoding="utf-8")
    table = page.split("| request | what a character counts |")[1].split("\n\n")[0]
    weights = [float(number) for number in re.findall(r"\d\.\d+", table)]
    sampled, aligned = ENCODE + DECODE + SAMPLE, ENCODE + SCORE
    restricted = [RESTRICT, RESTRICT + FORCE]
    expected = [ENCODE, DECODE, sampled, *restricted, aligned, aligned, DECODE, ENCODE, SCORE, DETECT, LOOK_UP]
    assert weights == pytest.approx(expected)


def test_the_architecture_page_and_the_guide_name_the_folders_of_the_repository():
    architecture = (ROOT / "docs" / "explanation" / "architecture.md").read_text(encoding="utf-8")
    table = architecture.split("| folder | content |")[1].split("\n\n")[0]
    links = {path.name for path in (ROOT / "lingon").iterdir() if path.is_symlink()}
    named = set(re.findall(r"^\| `(\w+)/`", table, re.MULTILINE))
    assert links <= named
    assert all((ROOT / name).is_dir() for name in named)
    linked = re.search(r"In the repository, (.*?) are folders", architecture, re.DOTALL)
    guide = re.search(
        r"Product code is in `lingon`, (.*?)\.", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), re.DOTALL
    )
    assert links == set(re.findall(r"`(\w+)`", linked[1])) == set(re.findall(r"`(\w+)`", guide[1]))
