"""The script for a machine with a card, run on this machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support.repository import ROOT

SCRIPT = ROOT / "scripts" / "on_card.sh"


def on_card(
    *arguments: str | Path, script: Path = SCRIPT, seconds: float = 200, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run the script with this Python and these variables, for so many seconds at most."""
    environment = {**os.environ, "PYTHON": sys.executable, **variables}
    return subprocess.run([script, *arguments], env=environment, capture_output=True, text=True, timeout=seconds)
