"""The tables of the attention systems in the documentation, made of results."""

from __future__ import annotations

import json
from pathlib import Path

from docs.generators.results import NONE_YET, lengths, systems

ROW = {
    "corpus": "multi30k",
    "set": "test2016",
    "system": "rnnsearch",
    "bleu": 30.25,
    "chrf": 55.5,
    "parameters": 3_520_128,
    "fastest_tokens_per_second": 2900,
    "decoding_tokens_per_second": 6400.4,
    "aer": 0.4,
    "training_steps": 1200,
    "training_target_tokens": 1_950_000,
}
LENGTH = {"system": "rnnsearch", "trained_up_to": 15, "words": [1, 10], "texts": 3, "bleu": 12.34}


def write(folder: Path, date: str, **changes: object) -> None:
    found = {"machine": "a machine", "rows": [{**ROW, **changes}], "lengths": [LENGTH], "left_out": []}
    (folder / f"{date}-attention.json").write_text(json.dumps(found))


def test_without_results_the_page_says_so(tmp_path: Path) -> None:
    (tmp_path / "2026-01-01-attention-cost.json").write_text("{}")
    assert (systems(tmp_path), lengths(tmp_path)) == (NONE_YET, "")


def test_the_tables_are_those_of_the_newest_results(tmp_path: Path) -> None:
    write(tmp_path, "2026-01-01", bleu=1.0)
    write(tmp_path, "2026-02-01", aer=None)
    text = systems(tmp_path)
    assert "| rnnsearch | 30.2 | 55.5 | 3,520,128 | 2,900 | 6,400 | - |" in text
    assert "`multi30k`, test2016, after 1,200 updates on 1,950,000 target tokens:" in text
    assert "2026-02-01-bleu-by-length.svg" in lengths(tmp_path)
    assert "| rnnsearch | 15 words | 12.3 |" in lengths(tmp_path)
