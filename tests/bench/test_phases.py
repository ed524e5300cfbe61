"""The phases of a command are measured, and the model that is written for it translates as a trained one ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from lingon.bench.tools.copying_model import TINY, write_copying_model
from lingon.bench.tools.phases import measure
from lingon.bench.workloads import sample_file
from lingon.importers.pipeline import ImportSettings, read_source
from lingon.training.search import SearchSettings, translate

HOLDER = """
import sys
held = bytearray(b"1" * int(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


def test_the_phases_of_a_command_have_the_memory_of_all_its_processes():
    program = (
        "import subprocess, sys\n"
        "begin = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE)\n"
        f"both = [subprocess.Popen([sys.executable, '-c', {HOLDER!r}, str(size)], **begin) for size in (60e6, 80e6)]\n"
        "[each.stdout.readline() for each in both]\n"
        "print('both hold', flush=True)\n"
        "sum(number * number for number in range(10**6))\n"
        "[each.communicate() for each in both]\n"
    ).replace("str(size)", "str(int(size))")
    first, last = measure([sys.executable, "-c", program])
    assert (first["line"], last["line"]) == ("both hold", "(end)")
    assert last["anonymous_mb"] >= 140
    assert last["resident_mb"] >= last["anonymous_mb"]
    assert last["cpu_s"] >= first["cpu_s"]
    with pytest.raises(subprocess.CalledProcessError) as raised:
        measure([sys.executable, "-c", "print('a reason'); raise SystemExit(3)"])
    assert (raised.value.returncode, raised.value.output) == (3, "a reason")


def test_a_copying_model_ends_its_translations_about_where_its_sources_end(tmp_path: Path):
    texts = [sample_file(language).read_text(encoding="utf-8").splitlines() for language in ("en", "de")]
    write_copying_model(tmp_path / "opus", TINY, (texts[0], texts[1]))
    imported = read_source(tmp_path / "opus", ImportSettings(), lambda line: None)
    sources = [imported.checkpoint.tokenizer.encode_source(text) for text in texts[0][:20]]
    found = [best for best, *_ in translate(imported.checkpoint.model, sources, SearchSettings())]
    assert all(best.finished for best in found)
    longer = [len(best.tokens) + 1 - len(source) for best, source in zip(found, sources, strict=True)]
    assert max(map(abs, longer)) <= 3
