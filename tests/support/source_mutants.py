"""Modules with one mistake: the source of a module, edited in one place and executed under another name."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType


@dataclass(frozen=True, slots=True)
class SourceMutant:
    """A mistake in a formula.

    module: below lingon.training.models
    after: text before the place of the mistake, such as the head of a class; the first `right` after it is edited
    """

    module: str
    after: str
    right: str
    wrong: str

    def __str__(self) -> str:
        return f"{self.module}, {self.after}: {self.wrong}"

    def load(self) -> ModuleType:
        """Return the module with the mistake; the module itself stays as it is."""
        original = importlib.import_module(f"lingon.training.models.{self.module}")
        source = Path(str(original.__file__)).read_text(encoding="utf-8")
        head, found, rest = source.partition(self.after)
        assert found, f"{self.module} has no {self.after!r}"
        assert self.right in rest, f"{self.module} has no {self.right!r} after {self.after!r}"
        edited = ModuleType(f"mutant_of_{self.module}")
        exec(compile(head + found + rest.replace(self.right, self.wrong, 1), str(self), "exec"), edited.__dict__)
        return edited
