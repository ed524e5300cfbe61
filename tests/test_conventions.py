"""Conventions of all folders: small files, commented settings, pinned versions, verbs that load, no silent skip."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path

import pytest
import torch
from packaging.requirements import Requirement

from lingon.training.config import (
    Config,
    Corpus,
    DataSettings,
    FilterSettings,
    TermSettings,
    TokenizerSettings,
    TrainingSettings,
    load_config,
)
from lingon.training.model_settings import TransformerSettings
from tests.support.repository import PACKAGES, ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
ENTRIES = [*entry_points(group="lingon.verbs"), *entry_points(group="lingon.translators")]
BLOCKS = {
    "data": DataSettings,
    "data.train": Corpus,
    "data.filters": FilterSettings,
    "tokenizer": TokenizerSettings,
    "model": TransformerSettings,
    "training": TrainingSettings,
}
IMPORTS_A_TEST = re.compile(
    r"^\s*(?:from|import) tests(?:\.(?!support|reliability)\w+|\.reliability\.test_\w+| import (?!support)\w+)",
    re.MULTILINE,
)
LOADS_CODE = {"pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}


def sources(*folders: str) -> list[Path]:
    found = (path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    return sorted(path for path in found if "_pb2" not in path.name)


def only_weights(keyword: ast.keyword) -> bool:
    """Whether an argument makes torch.load refuse all but tensors."""
    return keyword.arg == "weights_only" and isinstance(keyword.value, ast.Constant) and keyword.value.value is True


def loaders_of_code(path: Path) -> Iterator[str]:
    tree, safe = ast.parse(path.read_text(encoding="utf-8")), set()
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=func, keywords=keywords) if any(map(only_weights, keywords)):
                safe.add(func)
            case ast.Import(names):
                used = LOADS_CODE.intersection(name.name.partition(".")[0] for name in names)
            case ast.ImportFrom(module=str(module)):
                used = LOADS_CODE.intersection({module.partition(".")[0]})
            case ast.Attribute(value=ast.Name("torch"), attr="load") if node not in safe:
                used = {"torch.load"}
            case ast.keyword(arg="allow_pickle"):
                used = {"allow_pickle"}
            case _:
                continue
        yield from (f"{path.relative_to(ROOT)}: {name}" for name in used)


def test_a_file_in_c_plus_plus_has_lines_of_120_characters_at_most():
    files = [path for path in (ROOT / "kernels").rglob("*") if path.suffix in (".cpp", ".h")]
    texts = {path.relative_to(ROOT): path.read_text(encoding="utf-8").splitlines() for path in files}
    assert texts
    wide = [
        f"{path}:{place}" for path, lines in texts.items() for place, line in enumerate(lines, 1) if len(line) > 120
    ]
    assert wide == []


def test_a_test_imports_no_other_test():
    """Shared helpers are in tests/support, and those of cases in tests/reliability."""
    imports = {
        f"{path.relative_to(ROOT)}: {found}"
        for path in sources("tests")
        for found in IMPORTS_A_TEST.findall(path.read_text(encoding="utf-8"))
    }
    assert imports == set()


def test_no_file_is_loaded_in_a_way_that_could_run_its_code():
    assert [line for path in sources(*PACKAGES, "kernels", "scripts") for line in loaders_of_code(path)] == []


@pytest.mark.parametrize("config", sorted((ROOT / "configs").rglob("*.toml")), ids=lambda path: path.name)
def test_a_shipped_config_is_valid(config):
    assert load_config(config)


def commented_keys(config: Path) -> dict[str, set[str]]:
    """The keys of each block that have a comment, or whose block has one; keys that are commented out count too."""
    keys: dict[str, set[str]] = {}
    block, explained = "", False
    for line in config.read_text(encoding="utf-8").splitlines():
        if header := re.match(r"(?:# )?\[+([\w.]+)\]+\s*(#.*)?$", line):
            block, explained = header[1], header[2] is not None
        elif (key := re.match(r"(?:# )?(\w+) = (.*)", line)) and (explained or "#" in key[2]):
            keys.setdefault(block, set()).add(key[1])
    return keys


def test_the_example_config_explains_every_setting():
    keys = commented_keys(ROOT / "configs" / "en-de.toml")
    wanted = {block: set(settings.model_fields) for block, settings in BLOCKS.items()}
    wanted["data"] -= {"train", "valid", "filters", "terms"}
    wanted["data.terms"] = set(TermSettings.model_fields)
    wanted["training"] -= {"stage"}
    assert {block: names - keys.get(block, set()) for block, names in wanted.items()} == {
        block: set() for block in wanted
    }
    blocks = {block for block in BLOCKS if "." not in block}
    assert set(Config.model_fields) == blocks | {"origin", "languages"}  # of imported models, and of several languages


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_every_entry_point_is_callable(entry):
    assert callable(entry.load())


def test_the_gpu_extra_is_the_serve_extra_on_another_runtime():
    assert EXTRAS["gpu"][0].startswith("onnxruntime-gpu[cuda,cudnn]")
    assert EXTRAS["serve"][0].startswith("onnxruntime>")
    assert EXTRAS["gpu"][1:] == EXTRAS["serve"][1:]


def test_every_requirement_is_pinned_within_its_bounds():
    text = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    pins = dict(re.findall(r"^([\w.-]+)==([\w.]+)$", text, re.MULTILINE))
    assert len(pins) == sum(1 for line in text.splitlines() if line and not line.startswith("#"))
    versions = {name.lower().replace("_", "-"): version for name, version in pins.items()}
    for text in [*PROJECT["dependencies"], *(line for lines in EXTRAS.values() for line in lines)]:
        requirement = Requirement(text)
        if requirement.name != "lingon":
            assert requirement.specifier.contains(versions[requirement.name]), text


def test_the_base_install_requires_the_grpcio_of_the_generated_code():
    code = (ROOT / "lingon/translation/v1/translation_pb2_grpc.py").read_text(encoding="utf-8")
    generated = re.search(r"GRPC_GENERATED_VERSION = '([\d.]+)'", code)
    assert generated
    assert f"grpcio>={generated[1]}" in PROJECT["dependencies"]


def test_the_readme_names_every_verb_and_every_extra():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    verbs = {verb for verb in PROJECT["entry-points"]["lingon.verbs"] if f"lingon {verb}" not in readme}
    extras = {extra for extra in EXTRAS if not re.search(rf"\[[\w,]*\b{extra}\b[\w,]*\]", readme)}
    assert (verbs, extras) == (set(), set())


SKIPPING = """
import pytest
{}
def test_something(): {}
"""


OUTCOMES = [
    ("", "pass", "PASSED"),
    ("", "pytest.skip('too hard')", "FAILED"),
    ("@pytest.mark.skip('too hard')", "pass", "ERROR"),
    ("@pytest.mark.skipif(True, reason='wrong system')", "pass", "ERROR"),
    ("pytest.importorskip('a_library_not_installed')", "pass", "ERROR"),
    ("@pytest.mark.peer", "pytest.skip('the engine is too old')", "SKIPPED"),
]


@pytest.fixture(scope="module")
def summary(tmp_path_factory) -> str:
    """The summary of a run of pytest with a file for each of the outcomes, which has its number."""
    folder = tmp_path_factory.mktemp("skipping")
    shutil.copy(ROOT / "tests" / "conftest.py", folder)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n    peer: needs a peer\n")
    for number, (head, body, _) in enumerate(OUTCOMES):
        (folder / f"test_{number}.py").write_text(SKIPPING.format(head, body))
    options = ["-p", "no:cacheprovider", "--continue-on-collection-errors", "-rA", "--no-fold-skipped"]
    command = [sys.executable, "-m", "pytest", *options, "--rootdir", folder, folder]
    answer = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return answer.stdout.partition("short test summary info")[2]


@pytest.mark.parametrize(("number", "outcome"), list(enumerate(outcome for *_, outcome in OUTCOMES)))
def test_a_skip_fails_unless_the_mark_of_the_test_allows_it(summary, number, outcome):
    assert re.findall(rf"^(\w+) .*\btest_{number}\.py", summary, re.MULTILINE) == [outcome]


def test_matrix_products_of_the_tests_use_one_thread():
    """With more, tests of small models take many times as long if the cores are busy."""
    assert torch.get_num_threads() == 1
