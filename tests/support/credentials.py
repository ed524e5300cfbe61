"""Certificates signed by a test authority, and files of API keys."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from lingon.serving.auth.api_keys import key_table

NOW = datetime.now(UTC)
PEM = serialization.Encoding.PEM
MAY_SIGN = x509.KeyUsage(
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)


@dataclass(frozen=True)
class CertificatePair:
    """A certificate and its key, in PEM."""

    certificate: bytes
    key: bytes
    serial: int

    def write(self, folder: Path, name: str = "tls") -> dict[str, Path]:
        """Write both files, and return the settings of a server that uses them."""
        paths = {"tls_certificate": folder / f"{name}.crt", "tls_key": folder / f"{name}.key"}
        paths["tls_certificate"].write_bytes(self.certificate)
        paths["tls_key"].write_bytes(self.key)
        return paths


class Authority:
    """A certificate authority. pem: its certificate, which clients and servers trust."""

    def __init__(self, name: str = "an authority") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named(name)
        builder = _builder(self._name, self._name, self._key.public_key(), timedelta(days=1))
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        builder = builder.add_extension(MAY_SIGN, critical=True)
        builder = self._with_identifiers(builder, self._key.public_key())
        self.pem = builder.sign(self._key, hashes.SHA256()).public_bytes(PEM)

    def sign(
        self,
        common_name: str = "",
        *,
        names: Sequence[str] = ("localhost",),
        addresses: Sequence[str] = ("127.0.0.1",),
        lasts: timedelta = timedelta(days=1),
        since: timedelta = timedelta(days=2),
        key: Any = None,
        passphrase: bytes = b"",
    ) -> CertificatePair:
        """Sign a certificate.

        names, addresses: the alternative names of the subject; lasts: validity from now, negative if expired
        since: time from the beginning of the validity to now
        """
        own = key or ec.generate_private_key(ec.SECP256R1())
        builder = _builder(_named(common_name), self._name, own.public_key(), lasts, since)
        alternatives = [*map(x509.DNSName, names), *(x509.IPAddress(ipaddress.ip_address(each)) for each in addresses)]
        if alternatives:
            builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=not common_name)
        builder = self._with_identifiers(builder, own.public_key())
        signed = builder.sign(self._key, hashes.SHA256())
        encryption = serialization.BestAvailableEncryption(passphrase) if passphrase else serialization.NoEncryption()
        secret = own.private_bytes(PEM, serialization.PrivateFormat.PKCS8, encryption)
        return CertificatePair(signed.public_bytes(PEM), secret, signed.serial_number)

    def _with_identifiers(self, builder: x509.CertificateBuilder, key: Any) -> x509.CertificateBuilder:
        """Name the key of a certificate and that of its authority, as clients of Python 3.13 require."""
        found = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        return found.add_extension(authority, critical=False)

    def revoke(self, *pairs: CertificatePair, due: timedelta = timedelta(days=1)) -> bytes:
        """Return a list of revoked certificates in PEM. due: when it is to be replaced, from now."""
        builder = x509.CertificateRevocationListBuilder().issuer_name(self._name)
        builder = builder.last_update(NOW - timedelta(days=30)).next_update(NOW + due)
        for pair in pairs:
            entry = x509.RevokedCertificateBuilder().serial_number(pair.serial).revocation_date(NOW)
            builder = builder.add_revoked_certificate(entry.build())
        return builder.sign(self._key, hashes.SHA256()).public_bytes(PEM)


def client_credentials(authority: Authority, certificate: CertificatePair | None = None) -> grpc.ChannelCredentials:
    """Return client credentials that trust an authority and send a certificate, if one is given."""
    return grpc.ssl_channel_credentials(
        authority.pem, certificate.key if certificate else None, certificate.certificate if certificate else None
    )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)] if name else [])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: Any, lasts: timedelta, since: timedelta = timedelta(days=2)
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(NOW - since)
        .not_valid_after(NOW + lasts)
    )


def write_key_file(folder: Path, keys: dict[str, str], **more: dict[str, Any]) -> Path:
    """Write a file with these keys, by name. more: further fields of each key."""
    path = folder / "keys.toml"
    path.write_text("\n".join(key_table(name, key, **more.get(name, {})) for name, key in keys.items()))
    return path


def bearer(key: str) -> tuple[tuple[str, str], ...]:
    """Return the metadata that sends a key."""
    return (("authorization", f"Bearer {key}"),)
