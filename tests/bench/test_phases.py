"""The phases of a command are measured, and the model that is written for it translates as a trained one ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from lingon.bench.tools.copying_model import TINY, write_copying_model
from lingon.bench.tools.phases import measure
from lingon.bench.workloads import sample_file
from lingon.export.calibration import translate_once
from lingon.importers.pipeline import ImportSettings, read_source

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


@pytest.mark.parametrize("form", TINY)
def test_a_copying_model_ends_its_translations_about_where_its_sources_end(tmp_path: Path, form: str):
    texts = [sample_file(language).read_text(encoding="utf-8").splitlines() for language in ("en", "de")]
    write_copying_model(tmp_path / form, form, TINY[form], (texts[0], texts[1]))
    languages = (["en"], ["de"]) if form in ("m2m", "nllb") else None
    imported = read_source(tmp_path / form, ImportSettings(languages=languages), lambda line: None)
    tokenizer = imported.checkpoint.tokenizer
    found = translate_once(imported.checkpoint, texts[0][:20], {})
    assert all(best.finished for best in found)
    begin = len(tokenizer.languages.forced)  # both begin with a code, which is no part of the translation
    lengths = [len(tokenizer.encode_source(text)) - begin for text in texts[0][:20]]
    assert max(abs(len(best.tokens) + 1 - length) for best, length in zip(found, lengths, strict=True)) <= 3
