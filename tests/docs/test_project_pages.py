"""The pages of the project and its tools agree: checks, templates, README."""

from __future__ import annotations

import re

import pytest
import yaml

from lingon.serving.auth.charges import DETECT
from lingon.serving.engine.cost import DECODE, ENCODE, FORCE, RESTRICT, SAMPLE, SCORE
from tests.support.pages import PAGES, TOP_PAGES, blocks, runs
from tests.support.repository import ROOT

MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


def recipe(target: str) -> list[str]:
    """The commands of a target of the Makefile."""
    found = re.search(rf"^{target}:.*\n((?:\t.*\n)+)", MAKEFILE, re.MULTILINE)
    assert found
    return [line.strip().replace("$(BIN)", ".venv/bin") for line in found[1].splitlines()]


def test_pre_commit_runs_the_checks_of_the_makefile():
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    (repository,) = config["repos"]
    assert repository["repo"] == "local"
    assert [hook["entry"] for hook in repository["hooks"]] == recipe("checks")
    assert all(hook["always_run"] and not hook["pass_filenames"] for hook in repository["hooks"])


def test_make_test_runs_the_checks_and_every_test_once_and_measures_coverage():
    assert re.search(r"^tests-apart: checks$", MAKEFILE, re.MULTILINE)
    models, apart = (re.search(rf"^{name} := (.*)$", MAKEFILE, re.MULTILINE)[1].split() for name in ("MODELS", "APART"))
    assert all((ROOT / folder).exists() for folder in [*models, *apart])
    assert not set(models) & set(apart)
    targets = ["tests-with-servers", "tests-of-models", "tests-apart"]
    commands = [recipe(name)[0] for name in targets]
    selected = ["$(addprefix --ignore=,$(MODELS) $(APART))", "$(MODELS)", "$(APART)"]
    assert [command.partition("pytest $(COVERAGE) ")[2] for command in commands] == selected
    assert len({re.match(r"COVERAGE_FILE=(\.coverage\.\w+) ", command)[1] for command in commands}) == 3
    assert recipe("test")[0].split()[-3:] == targets
    assert recipe("test")[1:] == [".venv/bin/coverage combine --quiet", ".venv/bin/coverage report --format=total"]


def test_make_help_lists_every_target():
    targets = set(re.search(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)[1].split())
    assert {line.split()[2] for line in recipe("help")} | {"help"} == targets


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


def test_the_readme_is_short_and_its_commands_run():
    readme = ROOT / "README.md"
    assert len(readme.read_text(encoding="utf-8").splitlines()) <= 130
    assert sum(runs(block) for block in blocks(readme)) >= 3


def test_the_weights_of_a_quota_on_the_page_are_those_of_the_code():
    page = (ROOT / "docs" / "how-to" / "security.md").read_text(encoding="utf-8")
    table = page.split("| request | what a character counts |")[1].split("\n\n")[0]
    weights = [float(number) for number in re.findall(r"\d\.\d+", table)]
    sampled, aligned = ENCODE + DECODE + SAMPLE, ENCODE + SCORE
    restricted = [RESTRICT, RESTRICT + FORCE]
    expected = [ENCODE, DECODE, sampled, *restricted, aligned, aligned, DECODE, ENCODE, SCORE, DETECT]
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


def test_the_security_page_names_no_made_up_address():
    assert "@" not in (ROOT / "SECURITY.md").read_text(encoding="utf-8")
