"""How a client verifies a server and identifies itself: TLS, a client certificate, an API key."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lingon.client.address import is_local
from lingon.errors import SettingsError
from lingon.files import read_setting_file

if TYPE_CHECKING:
    import grpc

AUTHORIZATION = "authorization"  # metadata with an API key


@dataclass(frozen=True, kw_only=True, slots=True)
class Tls:
    """TLS to a server. All files are PEM; they are read when the client is made.

    ca: certificates of the authorities to trust; without it those of the system are trusted
    certificate, key: of the client, for a server that asks for them
    server_name: expected name in the server's certificate, if it is not the host that the client connects to
    """

    ca: str | os.PathLike[str] | None = None
    certificate: str | os.PathLike[str] | None = None
    key: str | os.PathLike[str] | None = None
    server_name: str | None = None

    def credentials(self) -> grpc.ChannelCredentials:
        """The credentials of a gRPC channel; raises SettingsError for a file that is missing or wrong."""
        import grpc

        from lingon.pem import check_pair, check_roots

        if (self.certificate is None) != (self.key is None):
            raise SettingsError("a client certificate and its key go together: give both or neither")
        roots = certificate = key = None
        if self.ca is not None:
            roots = read_setting_file(self.ca)
            check_roots(roots, str(self.ca))
        if self.certificate is not None and self.key is not None:
            certificate, key = read_setting_file(self.certificate), read_setting_file(self.key)
            check_pair(certificate, key, str(self.certificate), str(self.key))
        return grpc.ssl_channel_credentials(roots, key, certificate)


def check_encrypted(target: str) -> None:
    """Raise SettingsError if calls to a target without TLS leave this machine, where others could read an API key."""
    if not is_local(target):
        raise SettingsError(
            f"the API key would be sent unencrypted to {target}: turn TLS on (tls=, --tls), or allow it "
            "(insecure=True, --insecure)"
        )


def authorization(api_key: str) -> tuple[str, str]:
    """The metadata of an API key; raises SettingsError, without the key in its message, for an impossible key."""
    if not re.fullmatch(r"[\x21-\x7e]+", api_key):
        raise SettingsError("the API key is empty, or has spaces or other characters that a key cannot have")
    return AUTHORIZATION, f"Bearer {api_key}"
