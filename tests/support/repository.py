"""The folder of the repository, and the folders of its product code."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("lingon", "training", "export", "importers", "serving", "gateway", "bulk", "bench")
"""Folders of product code. All but the first are installed as subpackages of `lingon`, which holds links to them."""
