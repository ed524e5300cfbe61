"""An import takes little more memory than the files of the model."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.foreign_models import save_opus_mt

BOUND = 1.3  # times the file of the tensors
SPARE = 40 * 2**20  # bytes, of a dictionary of 60,000 pieces among others

PROGRAM = """
import re, sys, threading
from pathlib import Path
import torch
from lingon.importers import pipeline

def taken():
    return int(re.search(r"RssAnon:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) * 1024

def watch():
    while not done.wait(0.002):
        found.append(taken())

(torch.ones(64, 64) @ torch.ones(64, 64)).sum()
done, found, before = threading.Event(), [0], taken()
watcher = threading.Thread(target=watch)
watcher.start()
imported = pipeline.read_source(Path(sys.argv[1]), pipeline.ImportSettings(), lambda line: None)
done.set()
watcher.join()
print(max(*found, taken()) - before)
"""


def test_an_import_takes_little_more_memory_than_the_file(tmp_path: Path) -> None:
    """Drawing weights that are replaced, or a copy of the table, would take as much again."""
    folder = save_opus_mt(tmp_path / "opus", unused=60_000, d_model=384)
    size = (folder / "model.safetensors").stat().st_size
    assert size > 80 * 2**20
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(folder)], capture_output=True, text=True, check=True)
    assert int(done.stdout) < BOUND * size + SPARE
