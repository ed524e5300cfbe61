"""TLS of the ports. The files are checked before every handshake, so that new ones apply from the next connection on.

gRPC supports TLS 1.2 and 1.3 only. A TLS session is never resumed with other files, because they have a new ticket
key. Open connections keep their certificate until `max_connection_age_seconds` closes them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from lingon.errors import SettingsError
from lingon.pem import RevocationLists, check_pair, check_roots, not_after, revocation_lists
from lingon.serving.auth.watched_files import WatchedFiles
from lingon.serving.settings import Settings


@dataclass(frozen=True, slots=True)
class Certificates:
    """Certificates in PEM, with the private key of the first one for a server certificate.

    not_after: when the first of them expires, in seconds since 1970
    """

    pem: bytes
    not_after: float
    key: bytes = b""


class TlsFiles:
    """The files of a server with TLS: its certificate and key, the authorities and revocations of its clients.

    For use on any thread.
    """

    def __init__(self, settings: Settings) -> None:
        """Read the files. Raises SettingsError."""
        certificate, key, roots = settings.tls_certificate, settings.tls_key, settings.tls_client_ca
        assert certificate is not None, "there is no TLS without a certificate"
        assert key is not None, "Settings has them together"
        self.pair = WatchedFiles("tls_certificate", [certificate, key], _pair_parser(certificate, key))
        self.authorities: WatchedFiles[Certificates] | None = None
        if roots is not None:
            grace = settings.credential_grace_seconds
            self.authorities = WatchedFiles("tls_client_ca", [roots], _authority_parser(roots), grace=grace)
        self.revocations: WatchedFiles[RevocationLists] | None = None
        if (path := settings.tls_client_crl) is not None:
            grace = settings.credential_grace_seconds
            self.revocations = WatchedFiles(
                "tls_client_crl", [path], _revocation_parser(path), check=_revocation_check(path), grace=grace
            )
        self._lock = threading.Lock()
        self._used = self._latest()
        self._current = _configuration(*self._used)

    def credentials(self) -> grpc.ServerCredentials:
        """Return credentials for one port. Every port needs its own, because gRPC fetches new files for each."""
        delivered = self._configuration()
        required = self.authorities is not None

        def fetch() -> Any:  # None means no change, but the type stubs of grpc do not allow it
            nonlocal delivered
            self.reload_if_changed()
            latest = self._configuration()
            if latest is delivered:
                return None
            delivered = latest
            return latest

        return grpc.dynamic_ssl_server_credentials(delivered, fetch, require_client_authentication=required)

    def reload_if_changed(self) -> None:
        """Check the files and reload those that changed."""
        for files in self.all:
            files.reload_if_changed()

    @property
    def all(self) -> Sequence[WatchedFiles[Certificates] | WatchedFiles[RevocationLists]]:
        return [files for files in (self.pair, self.authorities, self.revocations) if files is not None]

    def _latest(self) -> tuple[Certificates, Certificates | None]:
        return self.pair.value, self.authorities.value if self.authorities is not None else None

    def _configuration(self) -> grpc.ServerCertificateConfiguration:
        """Return the files in gRPC's form. The object stays the same until a file changes."""
        with self._lock:
            latest = self._latest()
            if latest != self._used:
                self._used, self._current = latest, _configuration(*latest)
            return self._current


def _configuration(pair: Certificates, authorities: Certificates | None) -> grpc.ServerCertificateConfiguration:
    roots = authorities.pem if authorities is not None else None
    return grpc.ssl_server_certificate_configuration([(pair.key, pair.pem)], root_certificates=roots)


def _pair_parser(certificate: Path, key: Path) -> Callable[[bytes, bytes], Certificates]:
    def parse(chain: bytes, secret: bytes) -> Certificates:
        name = f"tls_certificate {certificate}"
        check_pair(chain, secret, name, f"tls_key {key}")
        return Certificates(chain, not_after(chain, name), secret)

    return parse


def _authority_parser(path: Path) -> Callable[[bytes], Certificates]:
    def parse(trusted: bytes) -> Certificates:
        name = f"tls_client_ca {path}"
        check_roots(trusted, name)
        return Certificates(trusted, not_after(trusted, name))

    return parse


def _revocation_parser(path: Path) -> Callable[[bytes], RevocationLists]:
    return lambda content: revocation_lists(content, f"tls_client_crl {path}")


def _revocation_check(path: Path) -> Callable[[RevocationLists], None]:
    def check(lists: RevocationLists) -> None:
        if lists.not_after < time.time():
            raise SettingsError(f"tls_client_crl {path}: a list was due to be replaced, and may lack later revocations")

    return check
