"""The verbs `lingon serve` and `lingon doctor`. Nothing heavy is imported before a verb runs."""

from __future__ import annotations

import inspect
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from lingon.serving.settings import LoadedSettings, SettingInfo

Models = Annotated[
    list[Path] | None,
    typer.Argument(
        help="NAME, models/NAME, models/NAME/VERSION or a folder of models.",
        show_default="$LINGON_MODELS_FOLDER, else models",
    ),
]


SHORT_FLAGS = {"second_url": "--second"}
"""Further flags of settings."""


def __getattr__(name: str) -> Any:
    """Return the verb `serve`, built on first use because its options are made from Settings, which need pydantic."""
    if name != "serve":
        raise AttributeError(name)
    return with_setting_options(_serve)


def _serve(config: Path | None, flags: dict[str, Any]) -> None:
    """Serve models over gRPC. Settings also come from LINGON_NAME variables and a TOML file; flags override both."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # gRPC's own log would repeat our error messages
    _exit_on_sigterm()
    from lingon.serving.observability.logs import configure
    from lingon.serving.server import serve as run
    from lingon.serving.settings import load

    loaded = _with_paths(load(flags, os.environ, config))
    configure(loaded.settings.log_format, loaded.settings.log_level)
    log_settings(loaded)
    raise typer.Exit(run(loaded.settings, typer.echo))


def _with_paths(loaded: LoadedSettings) -> LoadedSettings:
    """Return the settings with the paths of models that are named. Raises SettingsError, BundleError."""
    from lingon.bundle.store import find_model, models_folder

    default = loaded.origins["models"] == "default"
    models = (models_folder(),) if default else loaded.settings.models
    if default:
        _check_folder(*models)
    paths = tuple(map(find_model, models))
    return replace(loaded, settings=loaded.settings.model_copy(update={"models": paths}))


def _check_folder(folder: Path) -> None:
    """Raise SettingsError if there is no folder of models, from which all are served if none is named."""
    from lingon.errors import SettingsError

    if not folder.is_dir():
        raise SettingsError(
            f"no models to serve are named, and there is no folder {folder} here; name them: lingon serve models/NAME, "
            f"or get one: lingon models get en-de"
        )


def with_setting_options(verb: Callable[[Path | None, dict[str, Any]], None]) -> Callable[..., None]:
    """Return the verb with an option for every setting. An option that is not given has the value None."""
    from lingon.serving.settings import describe_settings

    parameters = [_parameter(setting) for setting in describe_settings()]
    help_text = "TOML file of settings, with the names in this list. Default: none."
    config = Annotated[Path | None, typer.Option(help=help_text)]
    parameters.append(_keyword("config", config))

    def run(config: Path | None, **flags: Any) -> None:
        verb(config, flags)

    run.__doc__ = verb.__doc__
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}  # typer reads both
    return run


def _parameter(setting: SettingInfo) -> inspect.Parameter:
    kind: Any = setting.kind
    if setting.name == "models":
        return _keyword("models", Annotated[list[kind] | None, typer.Argument(help=setting.help)])
    metavar = "|".join(setting.choices) or None  # not a choice of typer: Settings report a wrong value with its origin
    short = SHORT_FLAGS.get(setting.name)  # typer makes the names itself if none are given
    names = [setting.flag, short] if short else []
    return _keyword(setting.name, Annotated[kind | None, typer.Option(*names, help=setting.help, metavar=metavar)])


def _keyword(name: str, annotation: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=None)


def log_settings(loaded: LoadedSettings) -> None:
    """Log every setting with its origin: given ones at level info, defaults at debug.

    Ignored variables are logged as a warning.
    """
    import logging

    from lingon.serving.observability.logs import event

    for name, origin in loaded.origins.items():
        value = getattr(loaded.settings, name)
        shown = ",".join(map(str, value)) if isinstance(value, tuple) else value
        level = logging.DEBUG if origin == "default" else logging.INFO
        event(logging.getLogger("lingon"), level, "setting", name=name, value=shown, origin=origin)
    if loaded.service_links:
        message = "ignored variables that Kubernetes adds for Services; set enableServiceLinks: false in the pod"
        event(logging.getLogger("lingon"), logging.WARNING, message, names=",".join(loaded.service_links))


def _exit_on_sigterm() -> None:
    """Exit on a SIGTERM during the start, which process 1 would ignore. The server later sets its own handler."""
    if os.getpid() == 1:
        signal.signal(signal.SIGTERM, lambda *_: os._exit(0))


def doctor(
    models: Models = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Report what works on this machine, what does not, and why. Exit code 1 if a model cannot be served."""
    from lingon.bundle.store import models_folder
    from lingon.serving.doctor import examine, report

    findings = examine(models or [models_folder()])
    if as_json:
        import json

        print(json.dumps(findings, indent=2))
    else:
        print(report(findings))
    raise typer.Exit(0 if findings["can_serve"] else 1)
