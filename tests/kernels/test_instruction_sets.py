"""Every instruction set computes the same bits as the portable code, and runs on every processor of this kind."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support import native_operators as native
from tests.support.repository import ROOT

pytestmark = pytest.mark.native

DIGEST = "from tests.support.native_operators import print_outputs; print_outputs()"


def test_every_instruction_set_gives_the_bits_of_the_portable_one() -> None:
    sets = native.instruction_sets()
    assert "portable" in sets
    expected = native.in_process("portable", DIGEST)
    assert len(expected) > 1000
    for name in sets:
        assert native.in_process(name, DIGEST) == expected, name


def test_a_name_without_kernels_is_no_instruction_set() -> None:
    ask = "from lingon.serving.runtime.device import kernels_missing; print(kernels_missing())"
    assert b"LINGON_KERNELS is sse, and this processor has no native operators" in native.in_process("sse", ask)


def test_the_library_reads_its_variable_once() -> None:
    code = (
        "import os; from tests.support.native_operators import *; import numpy as np\n"
        "given = [np.ones((1, 2), np.int64), np.ones(1, np.int64)]; session = session_of('Tokens', given)\n"
        "os.environ['LINGON_KERNELS'] = 'sse'\n"
        "print(run('Candidates', np.ones((1, 3), np.float32), np.array([1]))[0])"
    )
    found = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=True)
    assert found.stdout.strip() == b"[[0]]"
