"""The parity report as a table."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.table import Table

from lingon.bundle import Bundle
from lingon.cli.output import print_message
from lingon.quality import poor_quality


def print_report(bundle: Bundle) -> None:
    """Print the results of the gate of every precision."""
    table = Table(
        "precision", "runs on", "gate", "check", "found", title=f"{bundle.label}: parity", title_justify="left"
    )
    for name, precision in bundle.manifest.precisions.items():
        provider = precision.provider.removesuffix("ExecutionProvider")
        for check, found in precision.report.items():
            table.add_row(name, provider, precision.gate, check, _figures(found))
    # A file or a pipe has no width that the table must fit.
    console = Console(width=None if sys.stdout.isatty() else 160)
    console.print(table)
    console.print(f"written: {bundle.folder}", soft_wrap=True)
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
