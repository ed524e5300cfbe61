"""Where a command does its work: options of the verbs bulk and prepare."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

import typer

from lingon.cli.options import OptionGroup
from lingon.errors import SettingsError

MOST_WORKERS = 1, 1000  # bounds of the workers on Ray


class EngineChoice(StrEnum):
    """Where the work is done."""

    LOCAL = "local"
    RAY = "ray"


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineOptions(OptionGroup):
    """Where the work is done."""

    engine: Annotated[EngineChoice, typer.Option(help="This machine, or workers of a Ray cluster.")] = (
        EngineChoice.LOCAL
    )
    address: Annotated[
        str | None,
        typer.Option(
            help="Address of the Ray cluster, or auto.", show_default="$RAY_ADDRESS, else a cluster of its own"
        ),
    ] = None
    workers: Annotated[
        str | None,
        typer.Option(
            metavar="N|LO..HI",
            help="Processes of this machine, or workers on Ray, of which more than LO begin as the cluster grows.",
            show_default="one for each core; on Ray 1..1000",
        ),
    ] = None

    def bounds(self) -> tuple[int, int] | None:
        """Return the smallest and the largest number of workers, None for those that this machine takes by itself.

        Raises SettingsError for options that do not belong together.
        """
        local = self.engine is EngineChoice.LOCAL
        if local and self.address:
            raise SettingsError("--address needs --engine ray")
        if not self.workers:
            return None if local else MOST_WORKERS
        low, high = _bounds(self.workers)
        if local and low != high:
            raise SettingsError(f"--workers must be one number without --engine ray, got {self.workers}")
        return low, high


def _bounds(workers: str) -> tuple[int, int]:
    low, _, high = workers.partition("..")
    try:
        bounds = int(low), int(high or low)
    except ValueError:
        raise SettingsError(f"--workers must be a number or LO..HI such as 4..64, got {workers}") from None
    if not 1 <= bounds[0] <= bounds[1]:
        raise SettingsError(f"--workers must be at least 1, and HI at least LO, got {workers}")
    return bounds
