"""The options of `lingon bench serve`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from lingon.cli.options.groups import OptionGroup


class EngineKind(StrEnum):
    """What decodes in Lingon's server."""

    ONNX = "onnx"
    NULL = "null"


Model = Annotated[Path, typer.Argument(help="Bundle: models/NAME or models/NAME/VERSION.")]


@dataclass(frozen=True, kw_only=True, slots=True)
class LingonServer(OptionGroup):
    """How Lingon's server is started."""

    precision: Annotated[
        str | None, typer.Option(help="Precision of Lingon's server (default: the server's choice).")
    ] = None
    engines: Annotated[
        int | None, typer.Option(min=1, help="Engines of Lingon's server (default: the server's choice).")
    ] = None
    threads: Annotated[
        int | None,
        typer.Option(min=1, help="Threads of each engine of Lingon's server (default: the server's choice)."),
    ] = None
    device: Annotated[str, typer.Option(help="Device of Lingon's server: auto, cpu or cuda.")] = "cpu"

    def flags(self) -> dict[str, Any]:
        """The values by the names of the flags of `lingon serve`."""
        return {
            "device": self.device,
            "precision": self.precision,
            "engines": self.engines,
            "threads": self.threads,
        }


Engine = Annotated[
    EngineKind, typer.Option(help="null: measure what a request costs without decoding, beside a bare gRPC echo.")
]
Server = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT", help="Measure a running server. Default: Lingon's server is started."),
]
WithPeer = Annotated[bool, typer.Option("--peer/--no-peer", help="Also measure CTranslate2 with a gRPC server.")]
Data = Annotated[
    Path | None,
    typer.Option(help="Folder with tatoeba.en-de.test.en.gz (default: the repository's 500 test sentences)."),
]


@dataclass(frozen=True, kw_only=True, slots=True)
class Load(OptionGroup):
    """The load that is offered, and what is asked of the answers."""

    beam_size: Annotated[
        list[int] | None, typer.Option(min=1, help="Beam size; may be repeated (default: 1 and 4).")
    ] = None
    clients: Annotated[
        list[int] | None,
        typer.Option(
            min=1,
            help="Measure only the latency with so many clients that wait; may be repeated (default: the loads below).",
        ),
    ] = None
    seconds: Annotated[float, typer.Option(min=0.1, help="Measured seconds of a load point.")] = 10.0
    warm_up: Annotated[float, typer.Option(min=0, help="Seconds of the same load before the measured ones.")] = 2.0
    step: Annotated[float, typer.Option(min=1.01, help="Factor between two loads near saturation.")] = 1.12
    rounds: Annotated[int, typer.Option(min=1, help="Starts of each server, and rounds with a single client.")] = 5
    objective_ms: Annotated[
        float, typer.Option(min=1, help="Objective: milliseconds that the 99th percentile of latency may have.")
    ] = 500.0
    timeout: Annotated[float, typer.Option(min=0.1, help="Deadline of a request in seconds.")] = 5.0
    seed: Annotated[int, typer.Option(min=0, help="Seed of the arrival times and of the order of sentences.")] = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Cores(OptionGroup):
    """The cores of servers and load."""

    server_core: Annotated[int | None, typer.Option(help="Core of the servers (default: the first).")] = None
    client_core: Annotated[int | None, typer.Option(help="Core of the load generator (default: the last).")] = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Peer(OptionGroup):
    """How CTranslate2 is served."""

    peer_precision: Annotated[str, typer.Option(help="Precision of CTranslate2: fp32 or int8.")] = "int8"
    peer_workers: Annotated[int, typer.Option(min=1, help="Batches that CTranslate2 translates at the same time.")] = 2
    peer_threads: Annotated[int, typer.Option(min=1, help="Threads of each worker of CTranslate2.")] = 1
    peer_batch: Annotated[
        int | None, typer.Option(min=1, help="Sentences in a batch of CTranslate2, at most (default: 16).")
    ] = None
    peer_wait_ms: Annotated[
        float | None, typer.Option(min=0, help="Milliseconds that CTranslate2 waits for a full batch (default: 0).")
    ] = None

    def flags(self) -> dict[str, Any]:
        """The values by the names of the flags of the server for CTranslate2."""
        return {
            "precision": self.peer_precision,
            "workers": self.peer_workers,
            "threads": self.peer_threads,
            "max_batch": self.peer_batch,
            "max_wait_ms": self.peer_wait_ms,
        }


Quick = Annotated[bool, typer.Option("--quick", help="Try it out: one short round; some 2 minutes on 2 cores.")]
