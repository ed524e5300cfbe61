"""Run a verb of the `lingon` command from a checkout that is not installed: `python scripts/run_verb.py VERB ...`.

The installed command finds its verbs in the metadata of the package; here they come from pyproject.toml.
"""

import sys
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

from lingon.cli.main import main

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
VERBS = PROJECT["entry-points"]["lingon.verbs"]

if __name__ == "__main__":
    sys.exit(main(entries=[EntryPoint(name, value, "lingon.verbs") for name, value in VERBS.items()]))
