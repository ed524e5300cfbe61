"""TLS of a port. The files are checked before every handshake, so that new ones apply from the next connection on.

gRPC supports TLS 1.2 and 1.3 only. A TLS session is never resumed with other files, because they bring a new ticket
key. Open connections keep their certificate until `max_connection_age_seconds` closes them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc

from lingon.pem import check_pair, check_roots
from lingon.serving.auth.watched_files import WatchedFiles
from lingon.serving.settings import Settings


def server_credentials(settings: Settings) -> grpc.ServerCredentials | None:
    """Credentials for one port, or None without TLS; raises SettingsError."""
    certificate, key, roots = settings.tls_certificate, settings.tls_key, settings.tls_client_ca
    if certificate is None or key is None:
        return None
    files = _files(certificate, key, roots)

    def fetch() -> Any:  # None stands for no change, which the type stubs of grpc do not allow
        return files.value if files.reload_if_changed() else None

    return grpc.dynamic_ssl_server_credentials(files.value, fetch, require_client_authentication=roots is not None)


def _files(certificate: Path, key: Path, roots: Path | None) -> WatchedFiles[grpc.ServerCertificateConfiguration]:
    def parse(chain: bytes, secret: bytes, trusted: bytes | None = None) -> grpc.ServerCertificateConfiguration:
        check_pair(chain, secret, f"tls_certificate {certificate}", f"tls_key {key}")
        if trusted is not None:
            check_roots(trusted, f"tls_client_ca {roots}")
        return grpc.ssl_server_certificate_configuration([(secret, chain)], root_certificates=trusted)

    return WatchedFiles("TLS files", [certificate, key, *([roots] if roots else [])], parse)
