"""An open load below and above the capacity, with random deadlines, cancels and SIGTERM, as in `make chaos`."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.case import run
from chaos.context import Session
from chaos.cpu_pinning import CpuPinning
from chaos.selection import all_cases, chosen
from chaos.verdict.checks import FAIL
from tests.support.repository import ROOT
from tests.support.scale import FULL


@pytest.mark.timeout(900)
def test_each_request_of_a_mixed_load_has_one_end_and_the_translation_of_its_text_alone(tmp_path: Path):
    session = Session(ROOT / "models" / "en-de", tmp_path, not FULL, CpuPinning.choose(), lambda _: None, tries=1)
    (case,) = chosen(all_cases(), ["mixed_load"])
    row = run(case, session)
    assert row.verdict != FAIL, row.found
    assert row.checks
