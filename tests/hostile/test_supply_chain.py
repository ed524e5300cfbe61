"""No file that is loaded can run code, the server imports no torch, and every required package is pinned."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import TypeGuard

import pytest
from packaging.requirements import Requirement

from lingon.bundle.names import SHORTLIST, WEIGHTS
from lingon.serving.runtime import card
from lingon.serving.runtime.device import LIBRARY
from lingon.serving.runtime.shortlist import Shortlist
from tests.support.repository import PACKAGES, ROOT
from tests.support.shipped_model import bundle

LOADS_CODE = {
    "pickle",
    "_pickle",
    "cPickle",
    "cloudpickle",
    "dill",
    "jsonpickle",
    "joblib",
    "marshal",
    "shelve",
    "yaml",
}
YAML = ("yaml", "yaml._yaml", "yaml.error", "yaml.reader", "yaml.resolver")
READS_YAML = {
    *("safe_load", "SafeLoader", "CSafeLoader", "parse", "Resolver", "Mark", "Node", "ScalarNode"),
    *("Event", "NodeEvent", "AliasEvent", "ScalarEvent", "MappingStartEvent", "SequenceStartEvent"),
    *("CollectionEndEvent", "YAMLError", "MarkedYAMLError", "ReaderError"),
}  # which build no objects
RUNS_CODE = {"eval", "exec", "compile", "__import__", "execfile"}
DANGEROUS = {
    ("torch", "load"),
    ("torch", "jit"),
    ("torch", "package"),
    ("os", "system"),
    ("os", "popen"),
    ("runpy", "run_path"),
}


TENSORS_ALONE = "torch.load(weights_only=True)"  # an import reads foreign checkpoints, and this form builds no objects
READS_TENSORS = "importers/files/pickles.py"
WITH_OPERATORS = "serving/runtime/card.py", "serving/runtime/sessions.py"  # of the package, not of a bundle
OWN_OPERATORS = [f"{path}: register_custom_ops_library" for path in WITH_OPERATORS]
SAFE = {"torch.load", "weights_only=True"}


def found_in(source: str) -> Iterator[str]:
    """The names in a source file that could run code from data."""
    tree = ast.parse(source)
    restricted = [node for node in ast.walk(tree) if reads_tensors_alone(node)]
    yield from [TENSORS_ALONE] * len(restricted)
    harmless = {id(part) for node in restricted for part in (node.func, *node.keywords) if ast.unparse(part) in SAFE}
    for node in ast.walk(tree):
        if id(node) in harmless:
            continue
        match node:
            case ast.Import(names):
                yield from LOADS_CODE.intersection(name.name.partition(".")[0] for name in names)
            case ast.ImportFrom(module=str(module), names=names) if (
                module in YAML and {name.name for name in names} <= READS_YAML
            ):
                continue
            case ast.ImportFrom(module=str(module), names=names):
                yield from LOADS_CODE.intersection({module.partition(".")[0]})
                yield from (f"{module}.{name.name}" for name in names if (module, name.name) in DANGEROUS)
            case ast.Call(func=ast.Name(name)) if name in RUNS_CODE:
                yield name
            case ast.Attribute(value=ast.Name(owner), attr=attr) if (owner, attr) in DANGEROUS:
                yield f"{owner}.{attr}"
            case ast.Attribute(attr="register_custom_ops_library"):
                yield "register_custom_ops_library"
            case ast.keyword(arg="allow_pickle" | "weights_only" | "trust_remote_code" as name):
                yield name
            case ast.keyword(arg="shell", value=ast.Constant(value=True)):
                yield "shell=True"


def reads_tensors_alone(node: ast.AST) -> TypeGuard[ast.Call]:
    """Whether a node is a call of torch.load that says weights_only=True itself."""
    return (
        isinstance(node, ast.Call)
        and ast.unparse(node.func) == "torch.load"
        and any(each.arg == "weights_only" and ast.unparse(each.value) == "True" for each in node.keywords)
    )


BAD = [
    "import pickle",
    "import a, dill.source",
    "from marshal import loads",
    "import yaml",
    "from yaml import load",
    "from yaml import safe_load, FullLoader",
    "from yaml.loader import UnsafeLoader",
    "from yaml.resolver import Resolver, load",
    "torch.load(path)",
    "torch.load(path, weights_only=True)",
    "torch.load(path, weights_only=False)",
    "torch.load(path, weights_only=trusted)",
    "from torch import load",
    "np.load(path, allow_pickle=True)",
    "def f():\n    return eval('1')",
    "exec(text)",
    "compile(text, '', 'exec')",
    "__import__(name)",
    "os.system('ls')",
    "subprocess.run('ls', shell=True)",
    "AutoModel.from_pretrained(name, trust_remote_code=True)",
    "options.register_custom_ops_library(path)",
]


@pytest.mark.parametrize("source", BAD)
def test_a_call_that_could_run_code_is_found(source: str):
    assert list(found_in(source))


def test_harmless_code_is_not_reported():
    lines = ["import json, re", "from yaml import safe_load", "np.load(path)", "re.compile('x')", "model.eval()"]
    lines += ["model.compile()", "subprocess.run(['ls'])"]
    assert list(found_in("\n".join(lines))) == []


@pytest.mark.parametrize("folder", [*PACKAGES, "scripts", "deploy"])
def test_no_product_code_could_run_code_from_data(folder: str):
    wrong = []
    for path in sorted((ROOT / folder).rglob("*.py")):
        wrong += [f"{path.relative_to(ROOT)}: {each}" for each in found_in(path.read_text(encoding="utf-8"))]
    permitted = [f"{READS_TENSORS}: {TENSORS_ALONE}", *OWN_OPERATORS]
    assert wrong == [each for each in permitted if each.startswith(f"{folder}/")]


@pytest.mark.parametrize(("path", "library"), list(zip(WITH_OPERATORS, (card.LIBRARY, LIBRARY), strict=True)))
def test_the_only_libraries_of_operators_are_those_of_the_package(path: str, library: Path):
    source = (ROOT / path).read_text(encoding="utf-8")
    assert source.count("register_custom_ops_library(str(LIBRARY))") == source.count("register_custom_ops_library") == 1
    assert library.parent == ROOT / "lingon" / "serving" / "runtime"


def test_a_bundle_holds_no_pickle():
    for name in bundle().manifest.checksums:
        content = bundle().read(name)
        if not name.startswith(f"{WEIGHTS}/"):  # a file of numbers may start with any byte
            assert not re.match(rb"\x80[\x02-\x05]", content), name
        assert b"__reduce__" not in content, name
    vocabularies = bundle().manifest.source_vocab, bundle().manifest.target_vocab
    read = Shortlist.from_bytes(bundle().read(SHORTLIST), bundle().folder / SHORTLIST, *vocabularies)
    assert {array.dtype.kind for array in (read.always, read.offsets, read.pieces)} == {"i"}


HEAVY = ["torch", "onnx", "onnxscript", "safetensors", "pickletools", "lingon.training", "lingon.export"]
SERVING = f"""
import sys
import lingon.serving.cli, lingon.serving.server, lingon.serving.in_process, lingon.serving.doctor
print([name for name in {HEAVY} if name in sys.modules])
"""


def test_the_server_runs_without_torch():
    ran = subprocess.run([sys.executable, "-c", SERVING], cwd=ROOT, capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def needed(name: str, extras: frozenset[str], seen: set[tuple[str, str]]) -> Iterator[str]:
    """The installed packages that a package requires, directly or through others."""
    try:
        wanted = metadata.requires(name) or []
    except metadata.PackageNotFoundError:
        return
    for text in wanted:
        requirement = Requirement(text)
        for extra in ("", *sorted(extras)):
            if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
                key = (requirement.name.lower().replace("_", "-"), ",".join(sorted(requirement.extras)))
                if key not in seen:
                    seen.add(key)
                    yield key[0]
                    yield from needed(requirement.name, frozenset(requirement.extras), seen)


OF_CUDA = ("cuda-", "nvidia-", "triton")  # which a build of torch for CUDA requires, most in one version


@pytest.mark.parametrize("extra", ["serve", "export", "dev"])
def test_every_package_that_an_extra_requires_is_pinned(extra: str):
    text = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    pins = {name.lower().replace("_", "-") for name in re.findall(r"^([\w.-]+)==[\w.]+$", text, re.MULTILINE)}
    brought = set(needed("lingon", frozenset({extra}), set())) - {"lingon"}
    assert len(brought) > 5
    assert {name for name in brought if not name.startswith(OF_CUDA)} - pins == set()


def test_the_build_requirements_are_pinned():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert all("==" in each for each in project["build-system"]["requires"])
