"""The terminal of the quickstart prints what a terminal prints today."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from scripts.terminal import PAGE, read_blocks, terminal, with_blocks


def test_the_commands_after_the_installation_print_what_the_page_has():
    install, *blocks = read_blocks(PAGE.read_text(encoding="utf-8"))
    assert any("pip install" in each.command for each in install), "the first block, which takes minutes"
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    own = {name: value for name, value in os.environ.items() if not name.startswith("LINGON_")}
    with terminal({**own, "PATH": path, "OMP_NUM_THREADS": "1"}) as opened:
        typed = [[opened.type(each.command) for each in block] for block in blocks]
    assert typed == blocks, "python -m scripts.terminal writes what is printed now into the page"


def test_a_page_is_written_as_it_is_read():
    page = PAGE.read_text(encoding="utf-8")
    assert with_blocks(page, read_blocks(page)) == page
