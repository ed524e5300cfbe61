"""The parity report as a table."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from lingon.bundle import Bundle


def print_report(bundle: Bundle) -> None:
    """Print what the gate of every precision found."""
    table = Table(title=f"{bundle.label}: parity", title_justify="left")
    for column in ("precision", "provider", "gate", "check", "figure"):
        table.add_column(column)
    for name, precision in bundle.manifest.precisions.items():
        for check, figures in precision.report.items():
            shown = (
                figures
                if not isinstance(figures, dict)
                else ", ".join(f"{key} {_short(value)}" for key, value in figures.items())
            )
            table.add_row(name, precision.provider, precision.gate, check, str(shown))
    console = Console(soft_wrap=True)
    console.print(table)
    console.print(f"written: {bundle.folder}")


def _short(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    return str(len(value)) if isinstance(value, list | tuple) else str(value)
