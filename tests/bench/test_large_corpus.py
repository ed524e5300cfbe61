"""The measurement of large corpora: the text that it makes up, and what it finds out about a command."""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from lingon.bench.tools.large_corpus import CHARACTERS, EOLE_STEP, made_up, run, write_corpus
from lingon.errors import LingonError

SETS = [
    [("Tom lives in Boston.", "Tom wohnt in Boston."), ("It rains.", "Es regnet."), ("Come in!", "Herein!")],
    [("Press the button.", "Drücken Sie den Knopf."), ("Save the file.", "Speichern Sie die Datei.")],
]


def test_a_made_up_pair_joins_the_same_pairs_of_one_set_on_both_sides() -> None:
    for source, target in made_up(SETS, 200, seed=1):
        sentences = _sentences(source)
        (translated,) = [dict(pairs) for pairs in SETS if sentences[0] in dict(pairs)]
        assert len(sentences) >= 2
        assert len("".join(sentences)) >= CHARACTERS > len("".join(sentences[:-1]))
        assert target == " ".join(translated[each] for each in sentences)


def _sentences(text: str) -> list[str]:
    return re.split(r"(?<=[.!]) ", text)


def test_the_same_seed_makes_up_the_same_text_and_another_one_other_text() -> None:
    first, same, other = (list(made_up(SETS, 50, seed)) for seed in (1, 1, 2))
    assert first == same != other


def test_a_corpus_has_its_names_only_once_it_is_complete(tmp_path: Path) -> None:
    source, target = tmp_path / "text.en.zst", tmp_path / "text.de.zst"
    pairs = [("Tom sleeps.", "Tom schläft."), ("It rains.", "Es regnet.")]

    def cut() -> Iterator[tuple[str, str]]:
        yield pairs[0]
        raise OSError("no space")

    with pytest.raises(OSError, match="no space"):
        write_corpus(cut(), source, target)
    assert not source.exists()
    assert not target.exists()
    write_corpus(iter(pairs), source, target)
    for path, side in ((source, 0), (target, 1)):
        with pa.input_stream(str(path)) as file:
            assert file.read().decode().splitlines() == [pair[side] for pair in pairs]


CHILD = "import time; held = bytearray(150_000_000); held[::4096] = b'x' * len(held[::4096]); time.sleep(3)"
PARENT = f"""
import subprocess, sys
print("begins", flush=True)
subprocess.run([sys.executable, "-c", {CHILD!r}])
open(sys.argv[1] + "/made", "wb").write(bytes(2_000_000))
print("ends", flush=True)
"""


def test_memory_and_time_of_a_command_are_those_of_all_its_processes(tmp_path: Path) -> None:
    needs = run([sys.executable, "-c", PARENT, tmp_path], tmp_path)
    assert [line for _, line in needs.lines] == ["begins", "ends"]
    assert all(first <= second for (first, _), (second, _) in itertools.pairwise(needs.lines))
    assert needs.until("^begins") < needs.until("^ends") <= needs.seconds
    assert 150 < needs.peak_mb < 600
    assert needs.cpu_seconds > 0
    with pytest.raises(LingonError, match="no line like 'step 1'; its last one: ends"):
        needs.until("step 1")


def test_a_command_that_fails_is_named_with_its_last_line(tmp_path: Path) -> None:
    with pytest.raises(LingonError, match="ended with 3: no such corpus"):
        run([sys.executable, "-c", "import sys; print('no such corpus'); sys.exit(3)"], tmp_path)


def test_an_update_of_eole_is_read_with_its_target_tokens() -> None:
    line = "[2026-11-29 18:33:31,650 INFO] Step  7/   60; acc: 0.0; ppl: 640.77; sents:     258; bsz: 3541/4019/258; "
    found = re.search(EOLE_STEP, f"{line}1045/1187 tok/s;      3 sec;")
    assert found is not None
    assert found.groups() == ("7", "4019")
