"""Write the metadata of the package, so that Python finds the commands of a checkout that is not installed.

    python scripts/metadata.py FOLDER

FOLDER is then a part of PYTHONPATH, as is the checkout. An installed package has the same metadata.
"""

import sys
import tomllib
from pathlib import Path

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def write(folder: Path) -> None:
    """Write the name, the version and the entry points below a folder."""
    metadata = folder / f"{PROJECT['name']}-{PROJECT['version']}.dist-info"
    metadata.mkdir(parents=True, exist_ok=True)
    head = f"Metadata-Version: 2.1\nName: {PROJECT['name']}\nVersion: {PROJECT['version']}\n"
    (metadata / "METADATA").write_text(head, encoding="utf-8")
    lines = []
    for group, entries in PROJECT["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in entries.items()), ""]
    (metadata / "entry_points.txt").write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
