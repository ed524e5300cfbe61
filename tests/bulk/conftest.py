"""A translator with the shipped model, and text to translate."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lingon.bulk.translating import Translate
from tests.support.bulk import translator


@pytest.fixture(scope="session")
def translate() -> Iterator[Translate]:
    with translator() as opened:
        yield opened
