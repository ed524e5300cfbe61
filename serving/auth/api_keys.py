"""The file of API keys: reading it, checking keys, adding keys. It holds hashes only.

    [[key]]
    name = "shop"
    hash = "sha256:..."             # of the key, as `lingon keys new` prints it
    requests_per_minute = 600       # optional, at each server; a whole minute's quota may be used at once
    characters_per_minute = 100000  # optional, at each server; over all texts of a request, weighted
    second_per_hour = 100           # optional: sentences for the second translator, 0 for none
    expires = 2027-01-01            # optional; the key is invalid from this moment on (UTC without a time zone)
    disabled = true                 # optional
    admin = true                    # optional: the key also gives access to the admin port
    certificate = "shop.example"    # optional: the key is valid only with a client certificate that has this name

One round of SHA-256 is enough, because a key is 256 random bits and cannot be guessed. Passwords, which would need a
slow hash, are not accepted.
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import json
import math
import os
import secrets
import time
import tomllib
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from lingon.errors import AuthenticationUnavailable, Forbidden, SettingsError, Unauthenticated
from lingon.files import read_setting_text, write_private
from lingon.serving.auth.quota import Quota
from lingon.serving.auth.watched_files import WatchedFiles
from lingon.serving.observability.metrics import KeyUsage

EMPTY_FILE_DELAY = 2.0  # seconds; an empty file takes effect after it, because editors truncate a file before writing
CHECK_INTERVAL = 0.2  # seconds between two checks of the file; a revoked key stays valid for so long at most
NAME = r"[A-Za-z0-9_.-]{1,64}"
_SCHEME = "sha256:"

Positive = Annotated[int, Field(ge=1)]


class ApiKey(BaseModel):
    """One key of the file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Annotated[str, Field(pattern=f"^{NAME}$")]
    hash: Annotated[str, Field(pattern=f"^{_SCHEME}[0-9a-f]{{64}}$")]
    requests_per_minute: Positive | None = None
    characters_per_minute: Positive | None = None
    second_per_hour: Annotated[int, Field(ge=0)] | None = None
    admin: bool = False
    disabled: bool = False
    expires: datetime | date | None = None
    certificate: Annotated[str, Field(min_length=1)] | None = None

    def expired(self, now: float) -> bool:
        """Return whether the key has expired; now: seconds since 1970."""
        if self.expires is None:
            return False
        end = self.expires
        if not isinstance(end, datetime):
            end = datetime(end.year, end.month, end.day)
        return now >= (end if end.tzinfo else end.replace(tzinfo=UTC)).timestamp()


class ApiKeyFile:
    """The keys of a file, which is reloaded when it changes. For use on the event loop only."""

    def __init__(
        self,
        path: Path,
        clock: Callable[[], float] = time.time,
        interval: float = CHECK_INTERVAL,
        grace: float = math.inf,
        usage: KeyUsage | None = None,
    ) -> None:
        """Read the file. Raises SettingsError.

        clock: returns seconds since 1970
        interval: seconds between two checks of the file
        grace: seconds for which the keys stay valid after the file became unusable
        usage: the metrics of the keys
        """
        self.usage = usage
        self._path, self._had_keys, self._clock = path, False, clock
        self.file = WatchedFiles("api_keys", [path], self._parse, interval=interval, grace=grace)
        self._quotas: dict[str, Quota] = {}
        self._show_names()

    def reload_if_changed(self) -> None:
        """Check the file and reload it if it changed."""
        if self.file.reload_if_changed():
            self._show_names()

    def _show_names(self) -> None:
        if self.usage is not None:
            self.usage.set_names({key.name for key in self.file.value})

    def _parse(self, raw: bytes) -> tuple[ApiKey, ...]:
        """Return the keys of the file. Raises SettingsError if all were removed less than EMPTY_FILE_DELAY ago."""
        keys = parse(raw, str(self._path))
        if self._had_keys and not keys and self._just_written():
            raise SettingsError(
                f"{self._path}: has no keys any more; this takes effect {EMPTY_FILE_DELAY:g} s after the last change"
            )
        self._had_keys = bool(keys)
        return keys

    def _just_written(self) -> bool:
        try:
            return abs(time.time() - self._path.stat().st_mtime) < EMPTY_FILE_DELAY
        except OSError as error:
            raise SettingsError(f"{self._path}: {error.strerror}") from None

    def find(self, presented: str) -> tuple[ApiKey, Quota]:
        """Return the entry of a key that a caller sent, and its quota. Raises Unauthenticated."""
        key = self.identify(presented)
        return key, self.accept(key)

    def named(self, name: str) -> ApiKey | None:
        """Return the entry of a name, valid or not, or None if the file has none."""
        return next((key for key in self.file.value if key.name == name), None)

    def identify(self, presented: str) -> ApiKey:
        """Return the entry of a key that a caller sent, valid or not. Raises Unauthenticated for an unknown key."""
        self.reload_if_changed()
        if self.file.expired:
            raise AuthenticationUnavailable("the server's file of API keys is unusable; no key is valid meanwhile")
        digest, found = hash_of(presented).encode(), None
        for key in self.file.value:  # no early exit: the duration must not depend on the position of the key
            if hmac.compare_digest(digest, key.hash.encode()):
                found = key
        if found is None:
            raise Unauthenticated("the API key is not known")
        return found

    def accept(self, key: ApiKey, *, admin: bool = False) -> Quota:
        """Return the quota of a key. Raises Unauthenticated if the key is disabled or has expired.

        admin: raise Forbidden unless the key has access to the admin port
        """
        if key.disabled or key.expired(self._clock()):
            raise Unauthenticated(f"the API key {'is disabled' if key.disabled else 'has expired'}")
        if admin and not key.admin:
            raise Forbidden("the API key has no access to the admin port")
        return self._quota(key)

    def _quota(self, key: ApiKey) -> Quota:
        """Return the quota of a key. It survives a reload of the file unless the limits of the key changed."""
        limits = (key.requests_per_minute, key.characters_per_minute)
        quota = self._quotas.get(key.name)
        if quota is None or quota.limits != limits:
            quota = self._quotas[key.name] = Quota(*limits)
        return quota


def parse(raw: bytes, file: str) -> tuple[ApiKey, ...]:
    """Return the keys of a file's content. Raises SettingsError, whose message never quotes a possible key."""
    try:
        content = tomllib.loads(raw.decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{file}: not TOML ({error})") from None
    except RecursionError:
        raise SettingsError(f"{file}: not TOML (nested too deeply)") from None
    tables = content.pop("key", [])
    if content or not isinstance(tables, list):
        raise SettingsError(f"{file}: must hold [[key]] tables and nothing else")
    keys = []
    for number, table in enumerate(tables, start=1):
        try:
            keys.append(ApiKey.model_validate(table))
        except ValidationError as error:
            detail = error.errors(include_input=False)[0]
            field = ".".join(map(str, detail["loc"]))
            raise SettingsError(f"{file}: key {number}: {field}: {detail['msg']}") from None
    for field in ("name", "hash"):
        values = [getattr(key, field) for key in keys]
        for number, value in enumerate(values, start=1):
            if value in values[: number - 1]:
                raise SettingsError(f"{file}: key {number}: has the {field} of an earlier one")
    return tuple(keys)


def new_key() -> str:
    """Return a new random key. Its prefix lets scanners for leaked secrets recognise it."""
    return f"lingon_{secrets.token_urlsafe(32)}"


def hash_of(key: str) -> str:
    """Return the hash of a key, in the form of the file."""
    return _SCHEME + hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()


def key_table(name: str, key: str, **fields: int | str | date | None) -> str:
    """Return the [[key]] table of a key; fields: other fields of ApiKey, without those that are None or False."""
    lines = ["[[key]]", f'name = "{name}"', f'hash = "{hash_of(key)}"']
    for field, value in fields.items():
        if value is not None and value is not False:
            shown = json.dumps(value, ensure_ascii=False) if isinstance(value, str) else value
            lines.append(f"{field} = {'true' if value is True else shown}")
    return "\n".join(lines) + "\n"


def append_table(path: Path, table: str, before_replace: Callable[[], None] = lambda: None) -> None:
    """Add a table to a file of keys and replace the file atomically. A server reads the old or the new content.

    before_replace: called just before the rename; if it raises, the file stays unchanged
    """
    path = path.resolve()
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)  # without it, two writers could lose a key; closing the descriptor unlocks
        content = read_setting_text(path) if path.exists() else ""
        extended = f"{content.rstrip()}\n\n{table}" if content.strip() else table
        parse(extended.encode(), str(path))
        write_private(path, extended.encode(), before_replace)
        os.fsync(folder)
    finally:
        os.close(folder)
