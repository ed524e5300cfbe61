"""The session that all cases of a run share."""

from __future__ import annotations

import os

import pytest

from tests.reliability.context import Session
from tests.support.repository import FULL


@pytest.fixture(scope="session")
def session(tmp_path_factory: pytest.TempPathFactory) -> Session:
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    return Session(tmp_path_factory.mktemp("reliability"), quick=not FULL, tries=3 if FULL else 1)
