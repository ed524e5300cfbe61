"""The verb verify. It imports ONNX Runtime only when it runs, and never PyTorch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lingon.export.options import PAIR

if TYPE_CHECKING:
    from lingon.export.verification.checks import CheckResult


def verify(
    bundle: Annotated[Path, typer.Argument(help="models/NAME/VERSION, or models/NAME for the highest version.")],
    device: Annotated[
        str, typer.Option(metavar="auto|cpu|cuda", help="Device to check on, as of lingon serve.")
    ] = "auto",
    precision: Annotated[
        str | None,
        typer.Option(
            help="Precision to check, such as fp32, fp16 or int8.", show_default="the bundle's best for the device"
        ),
    ] = None,
    gate_data: Annotated[
        tuple[Path, Path] | None,
        typer.Option(
            metavar=PAIR,
            help="Source and target file of sentences to translate; needs lingon[train] for BLEU.",
            show_default="the golden sentences of the bundle",
        ),
    ] = None,
    languages: Annotated[
        str | None,
        typer.Option(
            metavar="SOURCE:TARGET",
            help="Pair of the sentences, as en:de, of a bundle of several languages.",
            show_default="that of the first golden sentence, else the first pair of the bundle",
        ),
    ] = None,
    sentences: Annotated[
        int,
        typer.Option(
            min=1,
            help="Number of sentences for BLEU and chrF, whose bounds are for 2,500; the other checks use at most 500.",
        ),
    ] = 2500,
    publish: Annotated[
        bool,
        typer.Option(
            "--publish",
            help="If all checks pass, write the next version, whose manifest has the report and gate passed.",
        ),
    ] = False,
) -> None:
    """Check a bundle on the device that will serve it, against its own fp32 graphs; exit code 1 if a check fails."""
    from lingon.extras import name_missing_extra
    from lingon.lines import check_files

    if gate_data is not None:
        check_files(gate_data)
        with name_missing_extra("lingon verify --gate-data", ["train"]):
            import sacrebleu  # noqa: F401  # a missing package is found before the checks, which take minutes
    from lingon.bundle import open_bundle
    from lingon.errors import ParityError
    from lingon.export.verification.checks import check_known, verify_bundle
    from lingon.export.verification.publication import next_version, publish_verified
    from lingon.export.verification.text import pair_of, read_gate_data
    from lingon.serving.runtime.device import choose_device
    from lingon.text import printable

    opened = open_bundle(bundle)
    choice = choose_device(opened, device, precision)
    check_known(opened, choice.precision)
    pair = pair_of(opened, languages)
    target = next_version(opened) if publish else None
    pairs = read_gate_data(*gate_data) if gate_data else None
    found = verify_bundle(opened, choice, pairs, sentences, lambda line: typer.echo(printable(line), err=True), pair)
    what = f"{opened.label}: {choice.precision} on {choice.provider.removesuffix('ExecutionProvider')}"
    what += f", {' to '.join(pair)}" if pair else ""
    _print_table(what, found.rows)
    if found.failed:
        raise ParityError(f"{what}: {len(found.failed)} of {len(found.rows)} checks failed: {'; '.join(found.failed)}")
    if target is not None:
        report = {**found.report, **({"languages": ":".join(pair)} if pair else {})}
        typer.echo(f"written: {publish_verified(opened, choice, report, target).folder}")


def _print_table(title: str, rows: list[CheckResult]) -> None:
    """Print check, result and bound of every row, with lines on a terminal only."""
    from rich.box import HEAVY_HEAD
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from lingon.text import printable

    console = Console(soft_wrap=True, highlight=False)
    lines = HEAVY_HEAD if console.is_terminal else None
    table = Table(title=title, title_justify="left", title_style="bold", box=lines)
    for column in ("check", "", "result", "bound"):
        table.add_column(column, overflow="fold")
    for row in rows:
        cells = row.check, "passed" if row.passed else "FAILED", row.result, row.bound
        table.add_row(*(escape(printable(cell)) for cell in cells))
    console.print(table)
