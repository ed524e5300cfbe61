"""The verbs of `serving`: serve, doctor. Nothing heavy is imported before a verb runs."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from lingon.serving.settings import Loaded

Models = Annotated[list[Path] | None, typer.Argument(help="models/NAME, models/NAME/VERSION or a folder of models.")]


def serve(
    models: Models = None,
    config: Annotated[Path | None, typer.Option(help="TOML file with any of these settings.")] = None,
    host: Annotated[str | None, typer.Option(help="Address of the gRPC port.")] = None,
    port: Annotated[int | None, typer.Option(help="gRPC port; 0 takes a free one.")] = None,
    metrics_host: Annotated[str | None, typer.Option(help="Address of the metrics port.")] = None,
    metrics_port: Annotated[int | None, typer.Option(help="Port of /metrics and /healthz.")] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu or cuda.")] = None,
    precision: Annotated[str | None, typer.Option(help="fp32, fp16, ...: one that the bundles have.")] = None,
    engines: Annotated[int | None, typer.Option(help="Batches of a model that run side by side.")] = None,
    threads: Annotated[int | None, typer.Option(help="Cores that each of them computes on.")] = None,
    shortlist: Annotated[
        bool | None, typer.Option(help="Choose among the pieces that a source calls for, unless a request says.")
    ] = None,
    max_queue_texts: Annotated[int | None, typer.Option(help="Sentences that may wait.")] = None,
    max_queue_tokens: Annotated[int | None, typer.Option(help="Source tokens that may wait.")] = None,
    max_rows: Annotated[int | None, typer.Option(help="Sentences times beam size decoded together.")] = None,
    max_batch_tokens: Annotated[int | None, typer.Option(help="Tokens of one encoder run.")] = None,
    max_texts: Annotated[int | None, typer.Option(help="Texts of one request, 10,000 at most.")] = None,
    max_message_bytes: Annotated[int | None, typer.Option(help="Bytes of one request.")] = None,
    max_connection_age_seconds: Annotated[float | None, typer.Option(help="0 is for ever.")] = None,
    drain_seconds: Annotated[float | None, typer.Option(help="For calls in flight to end after SIGTERM.")] = None,
    propagation_seconds: Annotated[float | None, typer.Option(help="From NOT_SERVING to refusing calls.")] = None,
    hang_seconds: Annotated[float | None, typer.Option(help="A turn of an engine that takes longer hangs.")] = None,
    max_restarts: Annotated[int | None, typer.Option(help="Of an engine within a minute.")] = None,
    tls_certificate: Annotated[Path | None, typer.Option(help="PEM file; with --tls-key the port speaks TLS.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="PEM file.")] = None,
    tls_client_ca: Annotated[Path | None, typer.Option(help="PEM file; clients need a certificate it signed.")] = None,
    api_keys: Annotated[Path | None, typer.Option(help="TOML file of keys, see lingon keys: calls need one.")] = None,
    admin_host: Annotated[str | None, typer.Option(help="Address of the admin port.")] = None,
    admin_port: Annotated[int | None, typer.Option(help="Port of lingon models; without it there is none.")] = None,
    traces: Annotated[bool | None, typer.Option(help="Send OpenTelemetry traces.")] = None,
    reflection: Annotated[bool | None, typer.Option(help="Offer gRPC reflection.")] = None,
    log_format: Annotated[str | None, typer.Option(help="console or json.")] = None,
    log_level: Annotated[str | None, typer.Option(help="debug, info, warning or error.")] = None,
) -> None:
    """Serve models over gRPC; settings also come from LINGON_NAME variables and a TOML file."""
    flags = {name: value for name, value in locals().items() if name != "config"}
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # errors are told once, by us
    _hear_sigterm()
    from lingon.serving.observability.logs import configure
    from lingon.serving.server import serve as run
    from lingon.serving.settings import load

    loaded = load(flags, os.environ, config)
    configure(loaded.settings.log_format, loaded.settings.log_level)
    _tell(loaded)
    raise typer.Exit(run(loaded.settings, typer.echo))


def _tell(loaded: Loaded) -> None:
    """Log every setting and where it came from."""
    import logging

    from lingon.serving.observability.logs import event

    for name, origin in loaded.origins.items():
        value = getattr(loaded.settings, name)
        shown = ",".join(map(str, value)) if isinstance(value, tuple) else value
        event(logging.getLogger("lingon"), logging.INFO, "setting", name=name, value=shown, origin=origin)


def _hear_sigterm() -> None:
    """Process 1 is spared a SIGTERM that it does not handle. The server does, once all is imported and it runs."""
    if os.getpid() == 1:
        signal.signal(signal.SIGTERM, lambda *_: os._exit(0))


def doctor(
    models: Models = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Tell what works on this machine, what does not, and why; exit code 1 if a model cannot be served."""
    from lingon.serving.doctor import examine, report

    findings = examine(models or [Path("models")])
    if as_json:
        import json

        print(json.dumps(findings, indent=2))
    else:
        print(report(findings))
    raise typer.Exit(0 if findings["can_serve"] else 1)
