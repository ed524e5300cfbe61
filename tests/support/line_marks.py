"""Line coverage on Python 3.11: a plugin of pytest that puts a mark into the code of Lingon before each statement.

Python 3.11 calls the tracer of coverage.py for each line of every library, which adds half to the time of the tests.
Python 3.12 has `sys.monitoring` for that purpose, and the tests do without this plugin.

    COVERAGE_FILE=.coverage.models python -m pytest -p tests.support.line_marks --no-cov tests/export

A clause of `except` or `case` counts as executed only if it matches. The tracer counts it if it is tried.
"""

from __future__ import annotations

import ast
import os
import sys
import tomllib
from collections.abc import Iterator, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

import pytest
from coverage import CoverageData

PACKAGE = Path(__file__).parents[2] / "lingon"
GENERATED = "_pb2.py", "_pb2_grpc.py"  # as `omit` in pyproject.toml
MARKS = "__line_marks__"
"""The variable of a module that holds its marks."""

Marks = bytearray
"""A byte for each line of a file, 1 if it was executed."""


def marked(source: bytes, path: str) -> CodeType:
    """Return the code of a file that sets a mark for each line on which a statement begins."""
    tree = ast.parse(source, path)
    for node in list(ast.walk(tree)):
        for field in ("body", "orelse", "finalbody"):
            block = getattr(node, field, None)
            if isinstance(block, list):  # the body of a lambda is an expression
                first = _first(node, block) if field == "body" else 0
                lines = _lines_before(node, block[:first]) if field == "body" else []
                marks = [_mark(line, block[0]) for line in lines]
                block[:] = [*block[:first], *marks, *(each for old in block[first:] for each in _with_marks(old))]
    return compile(tree, path, "exec", dont_inherit=True)


def _first(node: ast.AST, block: Sequence[ast.stmt]) -> int:
    """Return the place of the first mark: behind the docstring and the imports from __future__."""
    place = 0
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        place = int(ast.get_docstring(node, clean=False) is not None)
    while place < len(block) and isinstance(found := block[place], ast.ImportFrom) and found.module == "__future__":
        place += 1
    return place


def _lines_before(node: ast.AST, unmarked: Sequence[ast.stmt]) -> list[int]:
    """Return the lines of a body that have their marks at its begin: a clause, and statements without a mark."""
    if isinstance(node, ast.ExceptHandler):
        return [node.lineno]
    if isinstance(node, ast.match_case):
        return [node.pattern.lineno]
    return [each.lineno for each in unmarked if isinstance(node, ast.Module | ast.ClassDef)]


def _with_marks(statement: ast.stmt) -> Iterator[ast.stmt]:
    decorators: list[ast.expr] = getattr(statement, "decorator_list", [])
    for line in dict.fromkeys([*(each.lineno for each in decorators), statement.lineno]):
        yield _mark(line, statement)
    yield statement


def _mark(line: int, place: ast.stmt) -> ast.stmt:
    target = ast.Subscript(ast.Name(MARKS, ast.Load()), ast.Constant(line), ast.Store())
    return ast.fix_missing_locations(ast.copy_location(ast.Assign([target], ast.Constant(1)), place))


class MarkedLoader(SourceFileLoader):
    """Loads a module with marks. It reads no file of bytecode, because bytecode has no marks."""

    def __init__(self, name: str, path: str, marks: Marks) -> None:
        super().__init__(name, path)
        self._marks = marks

    def get_code(self, fullname: str) -> CodeType:
        return marked(self.get_data(self.path), self.path)

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__[MARKS] = self._marks
        super().exec_module(module)


class LineMarks(MetaPathFinder):
    """Finds the modules of Lingon, and writes which of their lines were executed when the tests end."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self._data = Path(os.environ.get("COVERAGE_FILE", ".coverage")).absolute()
        self._files: dict[str, Marks] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] != PACKAGE.name:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and isinstance(spec.loader, SourceFileLoader) and not spec.loader.path.endswith(GENERATED):
            file = Path(spec.loader.path).resolve()
            marks = self._files.setdefault(str(file), bytearray(file.read_bytes().count(b"\n") + 2))
            spec.loader = MarkedLoader(spec.loader.name, spec.loader.path, marks)
        return spec

    def pytest_sessionfinish(self) -> None:
        if os.getpid() != self._process:  # a fork that a test made
            return
        data = CoverageData(str(self._data))
        data.erase()
        data.add_lines({file: [line for line, seen in enumerate(marks) if seen] for file, marks in self._files.items()})
        data.touch_files(_files())  # no line of a file that no test has loaded is executed
        data.write()


def _files() -> Iterator[str]:
    """Yield the files of `source_pkgs` in pyproject.toml, as coverage.py does."""
    project = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text(encoding="utf-8"))
    for package in project["tool"]["coverage"]["run"]["source_pkgs"]:
        for folder, _, names in os.walk(PACKAGE.parent / package.replace(".", "/")):
            if "__init__.py" in names:
                found = (name for name in names if name.endswith(".py") and not name.endswith(GENERATED))
                yield from (str(Path(folder, name).resolve()) for name in found)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Set the marks before the first module of Lingon is imported, by tests/conftest.py."""
    assert PACKAGE.name not in sys.modules
    marks = LineMarks()
    sys.meta_path.insert(0, marks)
    early_config.pluginmanager.register(marks)
