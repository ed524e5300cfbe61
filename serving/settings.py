"""The settings of a server, and where they are read from.

`Settings` is the only source of names, types, bounds, defaults and descriptions. The options of `lingon serve` and the
documentation are generated from it. Flags override variables (LINGON_NAME), then a TOML file, then defaults.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from lingon.errors import SettingsError
from lingon.serving.engine.limits import EngineLimits
from lingon.serving.second.chat import endpoint_of

PREFIX = "LINGON_"
FIXED = {
    "http_max_call_seconds": "120 seconds",
    "http_max_connections": "4,096 connections",
    "max_call_seconds": "600 seconds",
    "max_calls": "2,048 calls",
    "max_connection_idle_seconds": "900 seconds",
    "max_connections": "8,192 connections",
    "max_receive_seconds": "30 seconds",
    "max_restarts": "3 restarts within a minute",
}
"""Settings of earlier versions that are fixed now, with their values."""

TEST_HOOKS = frozenset({"failpoints", "testing"})
"""Settings for tests, without a flag and without documentation."""

LOOPBACK = ("localhost", "127.0.0.1", "::1")
MAX_TEXTS = 10_000  # texts; upper bound of max_texts
SLOW_BYTES = 128 << 20  # bytes of the requests of all calls that arrive slowly
HELD_BYTES = 64 << 20  # bytes of the large requests of all open calls
HTTP_BYTES = 64 << 20  # bytes of the bodies of all open HTTP requests, and as many of all connections
HTTP_CONNECTIONS = 4096  # connections to the HTTP port; an address has half at most unless it is a trusted proxy
DOCUMENT_PROCESSES = 2  # processes that read or write documents
DOCUMENT_BYTES = 192 << 20  # bytes of memory of such a process for a document
GLOSSARY_BYTES = 256 << 20  # bytes of the glossaries that are kept in memory because they were used last
GRPC_MAX = 2**31 - 1  # bytes or milliseconds; gRPC counts both in 32 bits
LANGUAGE_TAG = re.compile(r"[A-Za-z]{2,8}([-_][A-Za-z0-9]{1,8})*")
LIMITS = EngineLimits()  # the source of five defaults

Port = Annotated[int, Field(ge=0, le=65_535)]
Positive = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
CertificateName = Annotated[str, Field(pattern=r"^(\*\.)?[^*,]+$")]
Duration = Annotated[float, Field(gt=0, allow_inf_nan=False)]  # seconds
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Age = Annotated[float, Field(ge=0, le=GRPC_MAX // 1000)]  # seconds
HttpApi = Literal["lingon", "deepl", "libretranslate", "google", "openai"]


class Settings(BaseModel):
    """All settings of a server."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    models: Annotated[tuple[Path, ...], Field(min_length=1)] = Field(
        (Path("models"),),
        description="Models to serve: names of models in the folder of models, paths of bundles (models/NAME/VERSION), "
        "of models (models/NAME; the highest version that is whole is served) or of folders of models. The variable "
        "separates them by commas.",
    )
    host: str = Field("127.0.0.1", description="Address that the gRPC port listens on; 0.0.0.0 is every IPv4 address.")
    port: Port = Field(50_051, description="TCP port of the gRPC service; 0 takes a free port.")
    metrics_host: str = Field("127.0.0.1", description="Address that the metrics port listens on.")
    metrics_port: Port = Field(9464, description="TCP port of /metrics and /healthz (HTTP); 0 takes a free port.")
    device: Literal["auto", "cpu", "cuda"] = Field(
        "auto", description="Device to compute on. auto takes a usable GPU, else the CPU; cuda fails without a GPU."
    )
    precision: str | None = Field(
        None, description="Precision of the graphs, such as fp32 or fp16. Unset: the bundle's best for the device."
    )
    engines: Positive | None = Field(
        None, description="Batches of a model that run in parallel. Unset: 1 on a GPU; on a CPU, depends on the cores."
    )
    threads: Positive | None = Field(
        None,
        description="CPU cores for each engine. Unset: the engines share all usable cores. More than there are, over "
        "all engines, is slow and logs a warning; more than 1,024 are refused.",
    )
    shortlist: bool | None = Field(
        None,
        description="Use the vocabulary shortlist by default; a request may override this. Unset: as the bundle says.",
    )
    cuda_graphs: bool = Field(
        True,
        description="On CUDA, record decoder steps once and replay them, which takes less of the host's time: greedy "
        "search of Transformer base took a half to a third of the time on an H200.",
    )
    pivot_language: str | None = Field(
        "en",
        description="Languages through which a pair is translated that no model translates, separated by commas: with "
        "models from German to English and from English to French, German to French. Of several routes, one without a "
        "model for non-commercial use only is taken, then the one with the best published scores, then the one whose "
        "language is named first. any: all languages. none: such pairs are refused.",
    )
    preferred_models: tuple[str, ...] = Field(
        (),
        description="Names of the models that are taken where several translate a pair, separated by commas, the most "
        "preferred first. Unset: a request must name one of them.",
    )
    model_memory: Positive | None = Field(
        None,
        description="Memory of all loaded models, in MiB. Models are then loaded for their first request, and the "
        "least recently used are unloaded for others. Unset: all models are loaded at the start and stay.",
    )
    pinned_models: tuple[str, ...] = Field(
        (),
        description="Names of the models that are loaded at the start and stay loaded, separated by commas; needs "
        "model_memory. Unset: none.",
    )
    cache: Positive | None = Field(
        None,
        description="Memory for translations that are kept, in MiB, over all models. A text that was translated before "
        "with the same model and options gets the same answer without decoding. Unset: none are kept.",
    )
    max_queue_texts: Positive = Field(
        LIMITS.max_queue_texts,
        description="Sentences that the queue of a model holds; when it is full, calls are refused.",
    )
    max_queue_tokens: Positive = Field(
        LIMITS.max_queue_tokens,
        description="Tokens that the queue of a model holds, of sources and of targets to score; when it is full, "
        "calls are refused.",
    )
    max_attention_weights: Positive = Field(
        LIMITS.max_attention_weights,
        description="Weights of all attention matrices that one Score request returns, 4 bytes each. The default is "
        "half of what a gRPC client receives by default.",
    )
    max_rows: Positive = Field(
        LIMITS.max_rows,
        description="Rows (sentences times beam size) decoded together, over all engines of a model.",
    )
    max_batch_tokens: Positive = Field(
        LIMITS.max_batch_tokens,
        description="Source tokens of one encoder run, padding included. A GPU reads more at once: 16384 was measured.",
    )
    max_texts: Annotated[int, Field(ge=1, le=MAX_TEXTS)] = Field(
        256, description=f"Texts or pairs of one request, at most {MAX_TEXTS:,}."
    )
    max_message_bytes: Annotated[int, Field(ge=1024, le=GRPC_MAX)] = Field(
        4 * 1024 * 1024, description="Size of one request, in bytes."
    )
    live_speakers: Positive = Field(
        1000, description="Speakers of TranslateLive at once. The newest of the caller with the most makes room."
    )
    live_speakers_of_caller: Positive = Field(
        200, description="Speakers of TranslateLive at once of one API key, client certificate or address."
    )
    live_sentence_words: Annotated[int, Field(ge=8, le=1000)] = Field(
        60, description="Words of a sentence of TranslateLive that has no end; it is ended after so many."
    )
    live_states: Annotated[int, Field(ge=0)] = Field(
        256,
        description="Memory for the decoder's states of all speakers of TranslateLive, in MiB, so that agreed text is "
        "not decoded again. 0 keeps none.",
    )
    data_dir: Path | None = Field(
        None,
        description="Folder in which the server keeps the glossaries and translation memories of its callers. Several "
        "servers may share it. Unset: none are kept.",
    )
    max_glossary_entries: Positive = Field(
        100_000, description="Terms of a glossary for one pair of languages; needs data_dir."
    )
    max_glossaries: Positive = Field(
        1000,
        description="Glossaries of one API key or client certificate, or of all callers of a server without keys.",
    )
    max_memories: Positive = Field(
        100, description="Translation memories of one API key or client certificate, or of all callers without keys."
    )
    max_stored_bytes: Positive = Field(
        1 << 30,
        description="Size on disk of all glossaries and translation memories of one API key or client certificate, or "
        "of all callers of a server without keys, in bytes.",
    )
    max_connection_age_seconds: Age = Field(
        0,
        description="Age at which a connection is closed, in seconds, so that clients reconnect and load spreads. "
        "Its calls have drain_seconds to end. 0 is never.",
    )
    drain_seconds: Seconds = Field(
        30, description="Time for calls in progress to finish after SIGTERM, in seconds; then they are cancelled."
    )
    propagation_seconds: Seconds = Field(
        0,
        description="Time between health NOT_SERVING and refusing calls, in seconds, for load balancers to notice.",
    )
    hang_seconds: Duration = Field(
        10, description="Longest run of a graph in an engine, in seconds; above this it hangs and the process ends."
    )
    tls_certificate: Path | None = Field(
        None,
        description="PEM file of the server's certificate chain; with tls_key it turns TLS on. Unset: no TLS. Reloaded "
        "on change.",
    )
    tls_key: Path | None = Field(
        None, description="PEM file of the server's private key. Unset: no TLS. Reloaded on change."
    )
    tls_client_ca: Path | None = Field(
        None,
        description="PEM file of authorities; clients must have a certificate that one of them signed. Unset: clients "
        "need no certificate.",
    )
    tls_client_crl: Path | None = Field(
        None,
        description="PEM file of lists of revoked client certificates (CRL), which the authorities of tls_client_ca "
        "issue. Unset: none is revoked. Reloaded on change.",
    )
    tls_client_names: Annotated[tuple[CertificateName, ...], Field(min_length=1)] | None = Field(
        None,
        description="Names of the client certificates that are admitted, separated by commas: a common name or an "
        "alternative name, exact or with *. for its first label. Unset: every certificate of tls_client_ca.",
    )
    credential_grace_seconds: Seconds = Field(
        3600,
        description="Time for which the content of api_keys, tls_client_ca and tls_client_crl stays valid when the "
        "file becomes unusable, in seconds; then no caller is admitted until it is mended.",
    )
    api_keys: Path | None = Field(
        None, description="TOML file of API keys, see `lingon keys`. Unset: calls need no key. Reloaded on change."
    )
    trust: Path | None = Field(
        None,
        description="File of the bundles that may be served: SHA-256 and NAME/VERSION/manifest.json, as sha256sum "
        "prints them. Unset: every bundle. Read at every load.",
    )
    admin_host: str = Field("127.0.0.1", description="Address that the admin port listens on.")
    admin_port: Port | None = Field(
        None,
        description="TCP port for `lingon models` (load, swap, unload); 0 takes a free port. Unset: no admin port.",
    )
    google_v3: bool = Field(
        False,
        description="Answer Google Cloud Translation v3 on the gRPC port too: TranslateText, DetectLanguage, "
        "GetSupportedLanguages, and the methods of glossaries.",
    )
    http_host: str = Field("127.0.0.1", description="Address that the port of the HTTP APIs listens on.")
    http_port: Port | None = Field(
        None,
        description="TCP port of the HTTP APIs and of the page; 0 takes a free port; needs the extra 'http'. Unset: no "
        "HTTP APIs.",
    )
    http_apis: Annotated[tuple[HttpApi, ...], Field(min_length=1)] = Field(
        ("lingon", "deepl", "libretranslate", "google"),
        description="HTTP APIs to offer, separated by commas: lingon, deepl, libretranslate, google, and openai, which "
        "has to be named.",
    )
    http_page: bool = Field(True, description="Whether / on the HTTP port is a page to translate on.")
    http_data_dir: Path | None = Field(
        None,
        description="Folder in which the HTTP APIs keep files until they are fetched, an hour at most. Unset: files "
        "are not supported.",
    )
    http_cors: tuple[str, ...] = Field(
        (),
        description="Origins of web pages that may call the HTTP APIs, separated by commas, or *. Unset: pages of "
        "other origins may not.",
    )
    http_hosts: tuple[str, ...] = Field(
        (),
        description="Names by which the HTTP port may be called, separated by commas, or *; addresses and localhost "
        "always may. Unset: none on a loopback address without trusted proxies, because a web page can have its own "
        "name lead to this machine; else all.",
    )
    http_trusted_proxies: str = Field(
        "",
        description="Addresses of proxies whose X-Forwarded-For is believed, separated by commas. Unset: of none.",
    )
    second_url: str | None = Field(
        None,
        description="URL of an API like OpenAI's, such as http://127.0.0.1:8000/v1, to which doubtful sentences are "
        "sent for a second translation, with the sentences around them and their terms; needs the extra 'second'. "
        "Unset: no text leaves the server.",
    )
    second_model: str = Field("", description="Name of the model there; needed with second_url. Unset: none.")
    second_key: Path | None = Field(
        None, description="File of the key that is sent there as a bearer token. Unset: none. Read for each sentence."
    )
    second_below: Share = Field(
        0.5,
        description="Confidence below which a sentence is sent, 0 to 1, in addition to those that the guard suspects; "
        "`lingon calibrate --second` recommends one.",
    )
    second_sentences: Positive = Field(16, description="Sentences of one request that are sent at most.")
    second_characters: Annotated[int, Field(ge=0)] = Field(
        0,
        description="Characters that a sentence has at least to be sent for its confidence, because there is more to "
        "gain in a long one; one that the guard suspects is sent anyway.",
    )
    second_timeout: Duration = Field(
        5, description="Time for the second translation of a sentence, in seconds; then the first one is the answer."
    )
    second_concurrency: Positive = Field(8, description="Sentences that are open there at once.")
    second_hourly: Positive | None = Field(
        None,
        description="Sentences of one API key, client certificate or address that are sent in an hour. Unset: any "
        "number.",
    )
    second_total_hourly: Positive | None = Field(
        None, description="Sentences of all callers that are sent in an hour. Unset: any number."
    )
    traces: bool = Field(
        False, description="Send OpenTelemetry traces to OTEL_EXPORTER_OTLP_ENDPOINT; needs the extra 'tracing'."
    )
    trust_traceparent: bool = Field(
        False,
        description="Let the sampled flag of a caller's traceparent decide whether its call is traced. Off: the "
        "sampler of OTEL_TRACES_SAMPLER decides. The call continues the caller's trace in both cases.",
    )
    failpoints: str = Field("", description="Faults to inject, see serving/runtime/failpoints.py; needs testing.")
    testing: bool = Field(False, description="Allow failpoints; never set it on a server in production.")
    reflection: bool = Field(True, description="Offer gRPC server reflection, for tools such as grpcurl.")
    log_format: Literal["console", "json"] = Field("console", description="Format of the log on standard error.")
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="Lowest level to log.")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.pinned_models and self.model_memory is None:
            raise ValueError("pinned_models needs model_memory: without it all models stay loaded")
        if self.failpoints and not self.testing:
            raise ValueError("failpoints are for tests alone: unset failpoints, or set testing")
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise ValueError("tls_certificate and tls_key must be set together")
        if self.tls_client_ca is not None and self.tls_certificate is None:
            raise ValueError("tls_client_ca needs tls_certificate and tls_key")
        for name in ("tls_client_names", "tls_client_crl"):
            if getattr(self, name) is not None and self.tls_client_ca is None:
                raise ValueError(f"{name} needs tls_client_ca")
        if self.http_port is not None and self.tls_client_ca is not None:
            raise ValueError("http_port and tls_client_ca exclude each other: HTTP callers have no client certificate")
        if self.admin_port is not None and self.admin_host not in LOOPBACK and self.api_keys is None:
            raise ValueError(
                f"admin_host must be a loopback address (127.0.0.1) unless api_keys is set, got {self.admin_host}"
            )
        if self.second_url is None and (self.second_model or self.second_key is not None):
            raise ValueError("second_model and second_key need second_url")
        if self.second_url is not None and not self.second_model:
            raise ValueError("second_url needs second_model, the name of the model there")
        return self

    @field_validator("second_key", mode="before")
    @classmethod
    def _unset_if_empty(cls, value: object) -> object:
        """Take the empty variable of Compose as unset."""
        return None if value == "" else value

    @field_validator("second_url")
    @classmethod
    def _endpoint(cls, value: str | None) -> str | None:
        """Check the URL. Pydantic reports a ValueError, which this turns the error into."""
        if value is not None:
            try:
                endpoint_of(value)
            except SettingsError as error:
                raise ValueError(str(error)) from None
        return value

    @field_validator(
        "models",
        "preferred_models",
        "pinned_models",
        "tls_client_names",
        "http_apis",
        "http_cors",
        "http_hosts",
        mode="before",
    )
    @classmethod
    def _comma_separated(cls, value: Any) -> Any:
        return _parts(value) if isinstance(value, str) else value

    @field_validator("pivot_language", mode="before")
    @classmethod
    def _pivot_language(cls, value: Any) -> Any:
        if value == "none":
            return None
        if isinstance(value, str) and not all(map(LANGUAGE_TAG.fullmatch, _parts(value))):
            raise ValueError("must be language tags such as en, any, or none")
        return value

    @property
    def pivots(self) -> tuple[str, ...]:
        """The languages of pivot_language."""
        return tuple(_parts(self.pivot_language or ""))

    def engine_limits(self) -> EngineLimits:
        return EngineLimits(
            max_queue_texts=self.max_queue_texts,
            max_queue_tokens=self.max_queue_tokens,
            max_attention_weights=self.max_attention_weights,
            max_rows=self.max_rows,
            max_batch_tokens=self.max_batch_tokens,
        )


def _parts(value: str) -> list[str]:
    """Return the parts of a value that commas separate."""
    return [part.strip() for part in value.split(",") if part.strip()]


@dataclass(frozen=True, slots=True)
class SettingInfo:
    """The description of one setting, for the options of `lingon serve` and for the documentation.

    kind: bool, int, float, str or Path
    choices: the allowed values, if they are a closed set
    default: in its printed form; empty if the setting is unset by default
    """

    name: str
    kind: type
    choices: tuple[str, ...]
    default: str
    description: str

    @property
    def flag(self) -> str:
        """The option of `lingon serve`. Models are its arguments."""
        return "MODELS" if self.name == "models" else f"--{self.name.replace('_', '-')}"

    @property
    def variable(self) -> str:
        return PREFIX + self.name.upper()

    @property
    def help(self) -> str:
        """The description with default and variable."""
        return f"{self.description} ({f'default: {self.default}; ' if self.default else ''}{self.variable})"


def describe_settings() -> Iterator[SettingInfo]:
    """Yield every setting except the hooks for tests."""
    for name, field in Settings.model_fields.items():
        if name not in TEST_HOOKS:
            kind, choices = _kind(field.annotation)
            yield SettingInfo(name, kind, choices, _shown(field.default), field.description or "")


def _kind(annotation: Any) -> tuple[type, tuple[str, ...]]:
    """Return the plain type of a field, without bounds and None, and its choices."""
    arguments = [each for each in get_args(annotation) if each is not type(None)]
    if get_origin(annotation) is Literal:
        return str, tuple(arguments)
    return _kind(arguments[0]) if arguments else (annotation, ())


def _shown(default: Any) -> str:
    if default is None:
        return ""
    if isinstance(default, bool):
        return str(default).lower()
    return ",".join(map(str, default)) if isinstance(default, tuple) else str(default)


CLIENT_VARIABLES = {
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
    "LINGON_INSECURE",
    "LINGON_KERNELS",
    "LINGON_MODELS_FOLDER",
    "LINGON_MIRROR",
    "LINGON_DOWNLOADS",
    "LINGON_CUDA_DRIVER",
}
"""Variables that are not settings of a server: the path of its TOML file, the options of clients, and what the native
operators read, which are their instruction set and the path of the driver of cards.
"""

_LINK = re.compile(r"LINGON_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)_(PROTO|PORT|ADDR))")
_LINK_TO_PORT = re.compile(r"LINGON_(\w+_)?PORT(_\d+_(TCP|UDP|SCTP))?=(tcp|udp|sctp)://\S+")
"""Variables that Kubernetes adds to a pod for each Service named lingon or lingon-...

The second pattern includes the value, because `LINGON_PORT` and others have the names of settings.
"""


@dataclass(frozen=True, slots=True)
class LoadedSettings:
    """Settings, and the origin of each value: a flag, a variable, a file or "default".

    service_links: ignored variables that Kubernetes adds for Services
    """

    settings: Settings
    origins: dict[str, str]
    service_links: tuple[str, ...] = ()


def load(flags: Mapping[str, Any], environment: Mapping[str, str], config: Path | None) -> LoadedSettings:
    """Return the settings. A flag with the value None was not given. Raises SettingsError."""
    if config is None and "LINGON_CONFIG" in environment:
        config = Path(environment["LINGON_CONFIG"])
    links = tuple(sorted(name for name, value in environment.items() if _is_service_link(name, value)))
    environment = {name: value for name, value in environment.items() if name not in links}
    values: dict[str, Any] = {}
    origins = dict.fromkeys(Settings.model_fields, "default")
    for name, value, origin in [*_from_file(config), *_from_environment(environment), *_from_flags(flags)]:
        values[name], origins[name] = value, origin
    try:
        return LoadedSettings(Settings.model_validate(values), origins, links)
    except ValidationError as error:
        raise SettingsError("; ".join(_describe_error(detail, origins) for detail in error.errors())) from None


Given = Iterable[tuple[str, Any, str]]
"""Given settings: name, value and origin."""


def _from_file(config: Path | None) -> Given:
    if config is None:
        return
    try:
        content = tomllib.loads(config.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"{config}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SettingsError(f"{config}: not TOML ({error})") from None
    for name, value in content.items():
        _check_known(name, f"{config}: unknown setting {name}")
        yield name, value, str(config)


def _is_service_link(variable: str, value: str) -> bool:
    return bool(_LINK.fullmatch(variable) or _LINK_TO_PORT.fullmatch(f"{variable}={value}"))


def _from_environment(environment: Mapping[str, str]) -> Given:
    for variable, value in environment.items():
        if variable.startswith(PREFIX) and variable not in CLIENT_VARIABLES:
            name = variable.removeprefix(PREFIX).lower()
            _check_known(name, f"unknown environment variable {variable}", lambda near: PREFIX + near.upper())
            if value or _names_files(name):
                yield name, value, variable


def _names_files(name: str) -> bool:
    """Return whether a setting is a path. An empty variable is then an error: without its keys a server is open.

    Other empty variables are ignored, because Compose passes one for a line of `.env` without a value.
    """
    return "Path" in str(Settings.model_fields[name].annotation)


def _from_flags(flags: Mapping[str, Any]) -> Given:
    for name, value in flags.items():
        if value is not None:
            yield name, value, f"--{name.replace('_', '-')}" if name != "models" else "arguments"


def _check_known(name: str, message: str, spelled: Callable[[str], str] = str) -> None:
    if name in FIXED:
        raise SettingsError(f"{message}; it is fixed at {FIXED[name]}")
    if name not in Settings.model_fields:
        near = difflib.get_close_matches(name, Settings.model_fields, n=1)
        raise SettingsError(f"{message}; did you mean {spelled(near[0])}?" if near else message)


def _describe_error(detail: Any, origins: Mapping[str, str]) -> str:
    if not detail["loc"]:
        return str(detail["ctx"]["error"])
    name = str(detail["loc"][0])
    own = detail.get("ctx", {}).get("error")  # an error raised by the settings
    return f"{name} (from {origins[name]}): {own or detail['msg'].lower()}, got {detail['input']!r}"
