"""The verb `inspect`: prints the content of a bundle and verifies its checksums."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

if TYPE_CHECKING:
    from lingon.bundle.manifest import Manifest
    from lingon.bundle.store import Bundle

MOST_NAMED = 5  # files that an error names; the list above it has all
FileState = Literal["ok", "altered", "missing", "not listed"]


def inspect(
    bundle: Annotated[
        Path, typer.Argument(help="Path of the bundle: models/NAME/VERSION, or models/NAME for the highest version.")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object. Default: tables.")] = False,
) -> None:
    """Print the content of a bundle and verify the checksum of every file; exit code 1 if one does not match."""
    from lingon.bundle.store import find_model, open_bundle
    from lingon.errors import BundleError, first_of

    opened = open_bundle(find_model(bundle))
    files = file_table(opened)
    damaged = [f"{file['name']} ({file['state']})" for file in files if file["state"] != "ok"]
    if as_json:
        _print_json(opened, files, intact=not damaged)
    else:
        _print_tables(opened, files)
    if damaged:
        raise BundleError(f"{opened.folder}: not as published: {first_of(damaged, MOST_NAMED)}")


def file_table(bundle: Bundle) -> list[dict[str, Any]]:
    """Name, bytes and state of every file that the manifest lists or the folder holds, sorted by name."""
    from lingon.bundle.names import MANIFEST

    present = {path.relative_to(bundle.folder).as_posix(): path for path in bundle.folder.rglob("*") if _is_file(path)}
    names = sorted({*bundle.manifest.checksums, *present} - {MANIFEST})
    return [
        {"name": name, "bytes": present[name].lstat().st_size if name in present else 0, "state": _state(bundle, name)}
        for name in names
    ]


def _is_file(path: Path) -> bool:
    return path.is_symlink() or not path.is_dir()


def _state(bundle: Bundle, name: str) -> FileState:
    from lingon.errors import BundleError

    if name not in bundle.manifest.checksums:
        return "not listed"
    if not (bundle.folder / name).is_file():
        return "missing"
    try:
        bundle.read(name)
    except BundleError:
        return "altered"
    return "ok"


def _print_json(bundle: Bundle, files: list[dict[str, Any]], intact: bool) -> None:
    import json

    manifest = json.loads(bundle.manifest.to_bytes())
    values = {
        "bundle": bundle.label,
        "folder": str(bundle.folder),
        "manifest_sha256": bundle.manifest_digest,
        "intact": intact,
        "files": files,
        "manifest": manifest,
    }
    typer.echo(json.dumps(values, ensure_ascii=False))


def _print_tables(bundle: Bundle, files: list[dict[str, Any]]) -> None:
    from lingon.bundle.store import trusted_line
    from lingon.cli.output import print_table

    typer.echo(trusted_line(bundle))  # not in a table, which folds it in a narrow terminal
    manifest = bundle.manifest
    print_table(bundle.label, None, _facts(manifest))
    print_table("precisions", ("name", "size", "provider", "gate"), _precisions(manifest, files))
    for name, precision in manifest.precisions.items():
        report = [(check, _figures(figures)) for check, figures in precision.report.items()]
        if report:
            print_table(f"parity of {name}", None, report)
    sizes = [(file["name"], _size(file["bytes"]), file["state"]) for file in files]
    print_table("files", ("name", "size", "checksum"), sizes)
    rows = [(state.name, state.kind, " x ".join(map(str, state.shape))) for state in manifest.states]
    print_table("decoder states", ("name", "kind", "shape"), rows)


def _facts(manifest: Manifest) -> list[tuple[str, str]]:
    limits, defaults = manifest.limits, manifest.defaults
    return [
        ("format", str(manifest.format)),
        ("created", manifest.created),
        ("languages", str(manifest.languages or f"{manifest.source_language} to {manifest.target_language}")),
        ("architecture", manifest.architecture),
        ("vocabulary", f"{manifest.source_vocab} source pieces, {manifest.target_vocab} target pieces"),
        ("special ids", ", ".join(f"{name} {value}" for name, value in manifest.special_ids.items())),
        ("longest text", f"{limits.max_source_tokens} tokens"),
        (
            "longest translation",
            f"{limits.output_factor:g} x source + {limits.output_extra} tokens, {limits.max_target_tokens} at most",
        ),
        ("beam size", f"{defaults.beam_size}, at most {limits.max_beam_size}"),
        ("hypotheses", str(defaults.num_hypotheses)),
        ("length penalty", f"{defaults.length_penalty:g}"),
        ("candidates", str(manifest.candidates)),
        ("alignment", _alignment(manifest)),
    ]


def _alignment(manifest: Manifest) -> str:
    if not manifest.alignment.heads:
        return "none"
    return f"layer {manifest.alignment.layer}, heads {', '.join(map(str, manifest.alignment.heads))}, from 0"


def _precisions(manifest: Manifest, files: list[dict[str, Any]]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for name, precision in manifest.precisions.items():
        weights = {f"weights/{file}" for file in precision.weights}
        own = (file for file in files if file["name"].startswith(f"{name}/") or file["name"] in weights)
        size = sum(file["bytes"] for file in own)
        rows.append((name, _size(size), precision.provider, precision.gate))
    return rows


def _figures(value: Any) -> str:
    """Return the figures of a report in one line; of a list with more than two entries, the length."""
    if isinstance(value, dict):
        return ", ".join(f"{name} {_figures(entry)}" for name, entry in value.items())
    if isinstance(value, list | tuple):
        return " ".join(map(str, value)) if 0 < len(value) <= 2 else str(len(value))
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _size(count: int) -> str:
    for unit, bytes_of_one in (("MB", 1e6), ("kB", 1e3)):
        if count >= bytes_of_one:
            return f"{count / bytes_of_one:.2f} {unit}"
    return f"{count} B"
