"""The settings of a server, from their declarations. The hooks for tests are left out."""

from __future__ import annotations

from docs.generators.markdown import code, plain, table
from lingon.serving.settings import SettingInfo, describe_settings


def settings() -> str:
    """The table of all settings: name, flag, default, meaning. The variable of a setting is LINGON_ and its name."""
    rows = [
        (code(setting.name), code(_flags(setting)), _setting_default(setting), plain(setting.description))
        for setting in describe_settings()
    ]
    return table(("setting", "flag", "default", "meaning"), rows)


def _flags(setting: SettingInfo) -> str:
    if setting.name == "models":
        return "MODELS..."
    return f"{setting.flag} --no-{setting.flag.removeprefix('--')}" if setting.kind is bool else setting.flag


def _setting_default(setting: SettingInfo) -> str:
    return ", ".join(map(code, setting.default.split(","))) if setting.default else "not set"
