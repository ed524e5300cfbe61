"""Generate the gRPC code and its type stubs from protos/ into the packages of the same paths. --check only compares."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROTOS = ROOT / "protos"
PLUGINS = Path(sys.executable).parent
OUTPUTS = ("--python_out=", "--grpc_python_out=", "--mypy_out=quiet:", "--mypy_grpc_out=quiet:")


def generate(folder: Path) -> list[Path]:
    """Write the code of every proto file of Lingon below a folder, and return the paths of the files in it.

    The package googleapis-common-protos has the code of google/rpc, whose proto file is there for other languages.
    """
    protos = [path.relative_to(PROTOS) for path in sorted((PROTOS / "lingon").rglob("*.proto"))]
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{PROTOS}"]
    command += [f"--plugin={PLUGINS / name}" for name in ("protoc-gen-mypy", "protoc-gen-mypy_grpc")]
    command += [f"{output}{folder}" for output in OUTPUTS]
    subprocess.run([*command, *map(str, protos)], check=True)
    made = (path for proto in protos for path in sorted((folder / proto.parent).glob(f"{proto.stem}_pb2*")))
    return [path.relative_to(folder) for path in made]


def stale() -> list[Path]:
    """Return the generated files of the repository that differ from new ones."""
    with tempfile.TemporaryDirectory() as name:
        fresh = Path(name)
        return [path for path in generate(fresh) if _text(ROOT / path) != _text(fresh / path)]


def _text(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


def main() -> int:
    """Return 1 if --check finds an outdated file."""
    if sys.argv[1:] != ["--check"]:
        print(*generate(ROOT), sep="\n")
        return 0
    names = ", ".join(map(str, stale()))
    if names:
        print(f"differs from what protos/ gives: {names}; run: make stubs", file=sys.stderr)
    return 1 if names else 0


if __name__ == "__main__":
    sys.exit(main())
