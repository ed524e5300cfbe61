"""Reads the settings of a server: flags override variables (LINGON_NAME), then a TOML file, then defaults."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from lingon.errors import SettingsError
from lingon.serving.settings import FIXED, PREFIX, Settings

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
}
"""Variables that are not settings of a server: the path of its TOML file, the options of clients, and the instruction
set of the native operators, which their library reads."""

_LINK = re.compile(r"LINGON_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)_(PROTO|PORT|ADDR))")
_LINK_TO_PORT = re.compile(r"LINGON_(\w+_)?PORT(_\d+_(TCP|UDP|SCTP))?=(tcp|udp|sctp)://\S+")
"""Variables that Kubernetes adds to a pod for each Service whose name is lingon or begins with lingon-.

The second pattern has the value too: `LINGON_PORT` and others have the names of settings.
"""


@dataclass(frozen=True, slots=True)
class LoadedSettings:
    """Settings, and the origin of each value: a flag, a variable, a file or "default".

    service_links: variables that were ignored, because Kubernetes adds them for Services
    """

    settings: Settings
    origins: dict[str, str]
    service_links: tuple[str, ...] = ()


def load(flags: Mapping[str, Any], environment: Mapping[str, str], config: Path | None) -> LoadedSettings:
    """The settings; a flag with the value None was not given. Raises SettingsError."""
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
"""Settings that were given: name, value and origin."""


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
    """Whether a setting is a path: an empty variable is then an error, since a server without its API keys is open.

    Other empty variables are as if they were not there: Compose passes one on for a line of `.env` without a value.
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
    own = detail.get("ctx", {}).get("error")  # raised by the settings
    return f"{name} (from {origins[name]}): {own or detail['msg'].lower()}, got {detail['input']!r}"
