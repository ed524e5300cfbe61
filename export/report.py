"""The parity report of an export as lines."""

from __future__ import annotations

import typer

from lingon.bundle import Bundle
from lingon.cli.lines.output import print_message
from lingon.quality import poor_quality


def print_report(bundle: Bundle) -> None:
    """Print the results of the gate of every precision: a line for each check, which a terminal of any width shows."""
    typer.echo(f"{bundle.label}: parity")
    for name, precision in bundle.manifest.precisions.items():
        typer.echo(f"{name} on {precision.provider.removesuffix('ExecutionProvider')}: gate {precision.gate}")
        for check, found in precision.report.items():
            typer.echo(f"  {check}: {_figures(found)}")
    typer.echo(f"written: {bundle.folder}")
    if poor := poor_quality(bundle.manifest.measured_bleu()):
        print_message(f"warning: {poor}")


def _figures(found: object) -> str:
    if not isinstance(found, dict):
        return str(found)
    return ", ".join(f"{name.replace('_', ' ')} {_short(value)}" for name, value in found.items())


def _short(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    return str(len(value)) if isinstance(value, list | tuple) else str(value)
