"""How a client trusts a server and what it shows of itself: TLS, a certificate, an API key."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lingon.errors import SettingsError
from lingon.files import read_setting_file, read_setting_text

if TYPE_CHECKING:
    import grpc

API_KEY = "LINGON_API_KEY"


@dataclass(frozen=True, kw_only=True, slots=True)
class Tls:
    """TLS to a server. All files are PEM; they are read when the client is made.

    ca: certificates of the authorities to trust; without it, the system's
    certificate, key: what the client proves itself with, where the server wants that
    server_name: the name in the server's certificate, where it is not the one that is connected to
    """

    ca: str | os.PathLike[str] | None = None
    certificate: str | os.PathLike[str] | None = None
    key: str | os.PathLike[str] | None = None
    server_name: str | None = None

    def credentials(self) -> grpc.ChannelCredentials:
        """For a channel; raises SettingsError where a file is not what it should be."""
        import grpc

        from lingon.pem import check_pair, check_roots

        if (self.certificate is None) != (self.key is None):
            raise SettingsError("a client's certificate and its key go together")
        roots = certificate = key = None
        if self.ca is not None:
            roots = read_setting_file(self.ca)
            check_roots(roots, str(self.ca))
        if self.certificate is not None and self.key is not None:
            certificate, key = read_setting_file(self.certificate), read_setting_file(self.key)
            check_pair(certificate, key, str(self.certificate), str(self.key))
        return grpc.ssl_channel_credentials(roots, key, certificate)


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a person gave on the command line or in the environment; see lingon/cli/connection.py."""

    tls: bool = False
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    server_name: str | None = None
    api_key_file: Path | None = None

    def arguments(self) -> dict[str, Any]:
        """Those of a Client."""
        return {"tls": self.trust(), "api_key": self.shown_key()}

    def trust(self) -> bool | Tls:
        """TLS where any of it was given."""
        given = Tls(ca=self.ca, certificate=self.certificate, key=self.key, server_name=self.server_name)
        return given if self.tls or given != Tls() else False

    def shown_key(self) -> str | None:
        """From a file or the environment; of an argument everyone on the machine would know."""
        if self.api_key_file is not None:
            return read_setting_text(self.api_key_file).strip()
        return os.environ.get(API_KEY, "").strip() or None


def authorization(api_key: str) -> tuple[str, str]:
    """The metadata that shows a key; raises SettingsError, without a word of it, where it cannot be one."""
    if not re.fullmatch(r"[\x21-\x7e]+", api_key):
        raise SettingsError("the API key is empty, or has spaces or other characters that no key has")
    return "authorization", f"Bearer {api_key}"
