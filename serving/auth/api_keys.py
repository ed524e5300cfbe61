"""The file of API keys: who may come in, and how much each may have. It holds hashes; no key is ever written down here.

    [[key]]
    name = "shop"
    hash = "sha256:..."             # of the key, as `lingon keys new` prints it
    requests_per_minute = 600       # optional; a minute's worth may come at once
    characters_per_minute = 100000  # optional; of all texts of a request
    expires = 2027-01-01            # optional; from that moment on (UTC where no zone is given)
    disabled = true                 # optional
    admin = true                    # optional: opens the admin port too

One round of SHA-256 is enough: a key is 256 bits drawn at random by us, which nobody guesses. Passwords would need a
slow hash; they are not taken.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
import tomllib
from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from lingon.errors import SettingsError, Unauthenticated
from lingon.serving.auth.quota import Quota
from lingon.serving.auth.watched_files import WatchedFiles

WRITING = 2.0  # seconds that a file may be written for
PAUSE = 0.2  # seconds between two looks at the file: so soon a key that is taken back opens nothing any more
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
    admin: bool = False
    disabled: bool = False
    expires: datetime | date | None = None

    def expired(self, now: float) -> bool:
        """now: seconds since 1970."""
        if self.expires is None:
            return False
        end = self.expires
        if not isinstance(end, datetime):
            end = datetime(end.year, end.month, end.day)
        return now >= (end if end.tzinfo else end.replace(tzinfo=UTC)).timestamp()


class ApiKeyFile:
    """The keys of a file, which is read again when it changes; on the event loop only."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.time, pause: float = PAUSE) -> None:
        """Read the file; raises SettingsError. clock: tells seconds since 1970."""
        self._path, self._any = path, False  # whether it held keys when it was read last
        self._file = WatchedFiles("API keys", [path], self._parse, pause=pause)
        self._clock = clock
        self._quotas: dict[str, Quota] = {}

    def _parse(self, raw: bytes) -> tuple[ApiKey, ...]:
        """The keys of the file. An editor empties it first: it is believed to be empty when it has been for a while."""
        keys = parse(raw, str(self._path))
        if self._any and not keys and self._fresh():
            raise SettingsError(f"{self._path}: holds no key; if it does not in {WRITING:g} s, nobody is let in")
        self._any = bool(keys)
        return keys

    def _fresh(self) -> bool:
        """Whether somebody may be writing the file yet."""
        try:
            return abs(time.time() - self._path.stat().st_mtime) < WRITING
        except OSError as error:
            raise SettingsError(f"{self._path}: {error.strerror}") from None

    def find(self, presented: str) -> tuple[ApiKey, Quota]:
        """A key that a caller has shown, and what is left of its quota; raises Unauthenticated."""
        self._file.look()
        digest, found = hash_of(presented).encode(), None
        for key in self._file.value:  # all of them, however early one fits: the time tells nothing
            if hmac.compare_digest(digest, key.hash.encode()):
                found = key
        if found is None:
            raise Unauthenticated("the API key is not known")
        if found.disabled or found.expired(self._clock()):
            raise Unauthenticated(f"the API key {'is disabled' if found.disabled else 'has expired'}")
        return found, self._quota(found)

    def _quota(self, key: ApiKey) -> Quota:
        """The same as long as its limits are: a file that changes gives nobody a full quota again."""
        limits = (key.requests_per_minute, key.characters_per_minute)
        quota = self._quotas.get(key.name)
        if quota is None or quota.limits != limits:
            quota = self._quotas[key.name] = Quota(*limits)
        return quota


def parse(raw: bytes, where: str) -> tuple[ApiKey, ...]:
    """The keys of a file; raises SettingsError, which never quotes what could be a key."""
    try:
        content = tomllib.loads(raw.decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{where}: not TOML ({error})") from None
    except RecursionError:
        raise SettingsError(f"{where}: not TOML (nested too deeply)") from None
    tables = content.pop("key", [])
    if content or not isinstance(tables, list):
        raise SettingsError(f"{where}: must hold [[key]] tables and nothing else")
    keys = []
    for number, table in enumerate(tables, start=1):
        try:
            keys.append(ApiKey.model_validate(table))
        except ValidationError as error:
            detail = error.errors(include_input=False)[0]
            field = ".".join(map(str, detail["loc"]))
            raise SettingsError(f"{where}: key {number}: {field}: {detail['msg']}") from None
    for what in ("name", "hash"):
        values = [getattr(key, what) for key in keys]
        for number, value in enumerate(values, start=1):
            if value in values[: number - 1]:
                raise SettingsError(f"{where}: key {number}: has the {what} of an earlier one")
    return tuple(keys)


def new_key() -> str:
    """A key that nobody has seen; its beginning lets scanners for secrets know it."""
    return f"lingon_{secrets.token_urlsafe(32)}"


def hash_of(key: str) -> str:
    """What the file says of a key."""
    return _SCHEME + hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()
