"""The report that an export prints."""

from __future__ import annotations

from pathlib import Path

import pytest

from lingon.bundle import PASSED, Precision
from lingon.export.report import print_report
from tests.support.echo_engine import bundle


@pytest.mark.parametrize(("bleu", "warned"), [(0.134, True), (4.99, True), (35.0, False)])
def test_a_model_that_hardly_translates_is_exported_with_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], bleu: float, warned: bool
) -> None:
    report = {"quality": {"sentences": 9, "bleu": bleu, "fp32_bleu": bleu}}
    written = bundle(tmp_path, precisions={"int8": Precision("CPUExecutionProvider", PASSED, (), report)})
    print_report(written)
    printed, told = capsys.readouterr()
    assert printed.splitlines() == [
        "en-de/1: parity",
        "int8 on CPU: gate passed",
        f"  quality: sentences 9, bleu {bleu:.3g}, fp32 bleu {bleu:.3g}",
        f"written: {written.folder}",
    ]
    assert told.startswith(f"lingon: warning: BLEU is {bleu:.2f}, below 5: ") if warned else told == ""
