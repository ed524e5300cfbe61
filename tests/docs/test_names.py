"""What the pages name exists: commands, options, variables, metrics, modules, files, error messages."""

from __future__ import annotations

import ast
import functools
import importlib.util
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from docs.generators.reference import commands, metric_names
from lingon.serving.observability.metrics import reasons
from tests.support.pages import DOCS, PAGES, blocks
from tests.support.repository import PACKAGES, ROOT

FOLDERS = (*PACKAGES, "kernels", "configs", "deploy", "docs", "models", "protos", "scripts", "tests")
OTHER_OPTIONS = {"--profile"}  # of docker compose
TEXTS = {page.relative_to(ROOT).as_posix(): page.read_text(encoding="utf-8") for page in PAGES}


@functools.cache
def known_options() -> dict[str, set[str]]:
    """The options of every command."""
    return {
        name: {"--help", *(flag for each in command.params for flag in [*each.opts, *each.secondary_opts])}
        for name, command in commands().items()
    }


@functools.cache
def strings() -> tuple[str, ...]:
    """The pieces of text in the product code, such as the words of an error message between its values."""
    found = []
    for path in sorted(path for folder in PACKAGES for path in (ROOT / folder).rglob("*.py")):
        nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        documentation = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
        texts = (node for node in nodes if isinstance(node, ast.Constant) and id(node) not in documentation)
        found += [node.value for node in texts if isinstance(node.value, str)]
    return tuple(found)


def commands_of(page: Path) -> Iterator[str]:
    """The commands of a page that begin with `lingon`: lines of shell blocks, and inline code."""
    for block in blocks(page):
        if block.language == "bash":
            for line in block.text.replace("\\\n", " ").splitlines():
                yield from re.findall(r"(?:^|[ /])lingon (\w.*)", line.partition("  #")[0])
    yield from re.findall(r"`lingon ([a-z][^`\n]*)`", page.read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", TEXTS)
def test_commands_and_their_options_exist(page):
    wrong = []
    for command in commands_of(ROOT / page):
        words = command.split()
        group = " ".join(words[:2])
        verb = group if f"lingon {group}" in known_options() else words[0]
        used = {word.partition("=")[0] for word in words if re.match(r"--[a-z]", word)}
        if f"lingon {verb}" not in known_options() or used - known_options()[f"lingon {verb}"]:
            wrong.append(command)
    assert wrong == []


@pytest.mark.parametrize("page", TEXTS)
def test_options_in_the_text_exist(page):
    used = set(re.findall(r"`(--[a-z][a-z-]+)", re.sub(r"```.*?```", "", TEXTS[page], flags=re.DOTALL)))
    assert used - set().union(*known_options().values()) - OTHER_OPTIONS == set()


@pytest.mark.parametrize("page", TEXTS)
def test_variables_and_metrics_exist(page):
    used = set(re.findall(r"\bLINGON_[A-Z_]+[A-Z]\b", TEXTS[page]))
    assert {name for name in used if not _in_repository(name)} == set()
    named = set(re.findall(r"\blingon_[a-z_]+\b", TEXTS[page]))
    assert named - metric_names() == set()


@functools.cache
def _in_repository(name: str) -> bool:
    command = ["grep", "-rqwF", "--include=*.py", "--include=*.y*ml", "--include=.env.example", name, *FOLDERS]
    setting = name.removeprefix("LINGON_").lower()
    in_code = subprocess.run(command, cwd=ROOT, check=False).returncode == 0
    return in_code or setting in _settings()


@functools.cache
def _settings() -> set[str]:
    from lingon.serving.settings import Settings

    return set(Settings.model_fields)


@pytest.mark.parametrize("page", TEXTS)
def test_files_and_modules_exist(page):
    files = set(re.findall(rf"`((?:{'|'.join(FOLDERS)})/[\w./-]*\w)/?`", TEXTS[page]))
    assert {name for name in files if not (ROOT / name).exists() and not re.search("[A-Z]{4}|numbers", name)} == set()
    modules = set(re.findall(r"`(lingon(?:\.[a-z_]+)+)`", TEXTS[page]))
    assert {name for name in modules if importlib.util.find_spec(name) is None} == set()


def test_reasons_in_the_text_of_the_pages_exist():
    used = {name for text in TEXTS.values() for name in re.findall(r"reason `([A-Z_]+)`", text)}
    assert used - set(reasons()) == set()


def test_the_messages_of_the_troubleshooting_page_are_those_of_the_code():
    """A heading is a message; `...` stands for what varies."""
    text = (DOCS / "how-to" / "troubleshooting.md").read_text(encoding="utf-8")
    messages = re.findall(r"^### `(.+)`$", text, re.MULTILINE)
    assert len(messages) > 10
    pieces = {piece.strip() for message in messages for piece in message.split("...") if len(piece.strip()) > 3}
    assert {piece for piece in pieces if not any(piece in each for each in strings())} == set()
