"""The settings of a server: flags before environment (LINGON_...) before a TOML file before defaults."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from lingon.errors import SettingsError
from lingon.serving.engine.policy import EngineLimits

PREFIX = "LINGON_"
NOT_OURS = {
    "LINGON_CONFIG",
    "LINGON_SERVER",
    "LINGON_ADMIN",
    "LINGON_TLS",
    "LINGON_TLS_CA",
    "LINGON_TLS_CLIENT_CERTIFICATE",
    "LINGON_TLS_CLIENT_KEY",
    "LINGON_TLS_SERVER_NAME",
    "LINGON_API_KEY",
    "LINGON_API_KEY_FILE",
}
"""Variables that are no settings of a server: where its TOML file is; what clients call, trust and show."""

LOOPBACK = ("localhost", "127.0.0.1", "::1")

Port = Annotated[int, Field(ge=0, le=65_535)]
MOST_TEXTS = 10_000  # of one request
Positive = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
MOST_OF_GRPC = 2**31 - 1  # of what it counts: bytes, milliseconds
Age = Annotated[float, Field(ge=0, le=MOST_OF_GRPC // 1000)]  # in seconds


class Settings(BaseModel):
    """All that can be set of a server."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    models: Annotated[tuple[Path, ...], Field(min_length=1)] = (Path("models"),)  # bundles, or folders of them
    host: str = "127.0.0.1"
    port: Port = 50_051  # 0 takes a free one
    metrics_host: str = "127.0.0.1"
    metrics_port: Port = 9464
    device: Literal["auto", "cpu", "cuda"] = "auto"
    precision: str | None = None  # the bundle's best for the device
    engines: Positive | None = None  # running batches of a model side by side; without it several on the CPU
    threads: Positive | None = None  # of each engine; without it they share the cores that may be used
    shortlist: bool | None = None  # choose among the pieces that a source calls for; without it as the bundle says
    max_queue_texts: Positive = 1024  # sentences that wait, of one model
    max_queue_tokens: Positive = 65_536  # source tokens that wait
    max_rows: Positive = 64  # sentences times beam size that are decoded together, over all engines of a model
    max_batch_tokens: Positive = 1024  # of one run of the encoder, padding counted
    max_texts: Annotated[int, Field(ge=1, le=MOST_TEXTS)] = 256  # texts or pairs of one request
    max_message_bytes: Annotated[int, Field(ge=1024, le=MOST_OF_GRPC)] = 4 * 1024 * 1024  # of one request
    max_connection_age_seconds: Age = 0  # after which clients connect anew, so that load spreads; 0 is never
    drain_seconds: Seconds = 30  # for calls in flight to end after SIGTERM
    propagation_seconds: Seconds = 0  # between NOT_SERVING and refusing calls: what load balancers need to notice
    hang_seconds: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 10  # of one turn of an engine: then it hangs
    max_restarts: Annotated[int, Field(ge=0)] = 3  # of a model's engine within a minute; one more ends the server
    tls_certificate: Path | None = None  # PEM, the chain; read again whenever it changes
    tls_key: Path | None = None  # PEM
    tls_client_ca: Path | None = None  # PEM: clients need a certificate that it signed
    api_keys: Path | None = None  # TOML: hashes of keys, and what each may have; without it nobody is asked for one
    admin_host: str = "127.0.0.1"
    admin_port: Port | None = None  # where models are loaded, swapped and unloaded; without it nowhere
    traces: bool = False  # OpenTelemetry, sent where OTEL_EXPORTER_OTLP_ENDPOINT says
    failpoints: str = ""  # what goes wrong on purpose, see serving/runtime/failpoints.py; refused unless testing
    testing: bool = False  # nobody relies on this server
    reflection: bool = True
    log_format: Literal["console", "json"] = "console"
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.failpoints and not self.testing:
            raise ValueError("failpoints are for tests alone: a server that is relied on takes none")
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise ValueError("tls_certificate and tls_key go together")
        if self.tls_client_ca is not None and self.tls_certificate is None:
            raise ValueError("tls_client_ca needs tls_certificate and tls_key")
        if self.admin_port is not None and self.admin_host not in LOOPBACK and self.api_keys is None:
            raise ValueError("admin_host: without api_keys the admin port is for this machine alone (127.0.0.1)")
        return self

    @field_validator("models", mode="before")
    @classmethod
    def _comma_separated(cls, value: Any) -> Any:
        return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value

    def engine_limits(self) -> EngineLimits:
        """What the engines are told."""
        return EngineLimits(
            max_queue_texts=self.max_queue_texts,
            max_queue_tokens=self.max_queue_tokens,
            max_rows=self.max_rows,
            max_batch_tokens=self.max_batch_tokens,
        )


@dataclass(frozen=True, slots=True)
class Loaded:
    """Settings, and for each where its value came from."""

    settings: Settings
    origins: dict[str, str]


def load(flags: Mapping[str, Any], environment: Mapping[str, str], config: Path | None) -> Loaded:
    """The settings; what is None among flags was not given."""
    if config is None and "LINGON_CONFIG" in environment:
        config = Path(environment["LINGON_CONFIG"])
    values: dict[str, Any] = {}
    origins = dict.fromkeys(Settings.model_fields, "default")
    for name, value, origin in [*_from_file(config), *_from_environment(environment), *_from_flags(flags)]:
        values[name], origins[name] = value, origin
    try:
        return Loaded(Settings.model_validate(values), origins)
    except ValidationError as error:
        raise SettingsError("; ".join(_complaint(detail, origins) for detail in error.errors())) from None


Given = Iterable[tuple[str, Any, str]]
"""Name, value and origin of settings."""


def _from_file(config: Path | None) -> Given:
    if config is None:
        return
    try:
        content = tomllib.loads(config.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"{config}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{config}: not TOML ({error})") from None
    for name, value in content.items():
        _check_known(name, f"{config}: unknown setting {name}")
        yield name, value, str(config)


def _from_environment(environment: Mapping[str, str]) -> Given:
    for variable, value in environment.items():
        if variable.startswith(PREFIX) and variable not in NOT_OURS:
            name = variable.removeprefix(PREFIX).lower()
            _check_known(name, f"unknown environment variable {variable}", lambda near: PREFIX + near.upper())
            yield name, value, variable


def _from_flags(flags: Mapping[str, Any]) -> Given:
    for name, value in flags.items():
        if value is not None:
            yield name, value, f"--{name.replace('_', '-')}" if name != "models" else "arguments"


def _check_known(name: str, complaint: str, spelled: Any = str) -> None:
    if name not in Settings.model_fields:
        near = difflib.get_close_matches(name, Settings.model_fields, n=1)
        raise SettingsError(f"{complaint}; did you mean {spelled(near[0])}?" if near else complaint)


def _complaint(detail: Any, origins: Mapping[str, str]) -> str:
    if not detail["loc"]:
        return str(detail["ctx"]["error"])
    name = str(detail["loc"][0])
    return f"{name} (from {origins[name]}): {detail['msg'].lower()}, got {detail['input']!r}"
