"""Checks of certificates and keys in PEM before gRPC uses them, whose errors only say that connecting failed.

It also reads when certificates expire and which ones are revoked. The standard library has no reader for that: the few
fields are found by the DER encoding (ITU-T X.690) of certificates and of lists of revoked certificates (RFC 5280,
sections 4.1 and 5.1), after OpenSSL has accepted them.
"""

from __future__ import annotations

import base64
import math
import os
import re
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from lingon.errors import SettingsError

_BEGIN, _END = b"-----BEGIN CERTIFICATE-----", b"-----END CERTIFICATE-----"
_CERTIFICATES = re.compile(_BEGIN + rb".*?" + _END, re.DOTALL)
_REVOCATIONS = re.compile(rb"-----BEGIN X509 CRL-----(.*?)-----END X509 CRL-----", re.DOTALL)
_VERSION, _INTEGER, _SEQUENCE, _UTC_TIME, _TIME = 0xA0, 0x02, 0x30, 0x17, 0x18  # tags of DER
_EDWARDS = (bytes.fromhex("300506032b6570"), bytes.fromhex("300506032b6571"))  # Ed25519 and Ed448 in a certificate
_ELLIPTIC = bytes.fromhex("06072a8648ce3d0201")  # id-ecPublicKey; the name of the curve follows it
_CURVES = (bytes.fromhex("06082a8648ce3d030107"), bytes.fromhex("06052b81040022"))  # P-256 and P-384


CertificateId = tuple[bytes, bytes]
"""The issuer and the serial number of a certificate, in DER."""


def check_pair(certificate: bytes, key: bytes, certificate_name: str, key_name: str) -> None:
    """Raise SettingsError unless these are a certificate (with its chain) and its private key."""
    _check_whole(certificate, certificate_name)
    leaf = certificate[certificate.index(_BEGIN) : certificate.index(_END) + len(_END)]
    try:
        der = ssl.PEM_cert_to_DER_cert(leaf.decode("ascii"))
    except ValueError:
        raise SettingsError(f"{certificate_name}: not a certificate") from None
    if any(mark in der for mark in _EDWARDS):
        raise SettingsError(f"{certificate_name}: gRPC does not support Ed25519 and Ed448; use ECDSA or RSA")
    _, elliptic, curve = der.partition(_ELLIPTIC)
    if elliptic and not curve.startswith(_CURVES):
        raise SettingsError(f"{certificate_name}: gRPC clients support only the curves P-256 and P-384")
    if not re.search(rb"-----BEGIN [A-Z ]*PRIVATE KEY-----", key):
        raise SettingsError(f"{key_name}: has no private key in PEM")

    load_pair(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), certificate, key, certificate_name, key_name)


def load_pair(context: ssl.SSLContext, certificate: bytes, key: bytes, certificate_name: str, key_name: str) -> None:
    """Load a certificate (with its chain) and its private key into a context. Raises SettingsError.

    A context that is in use needs a pair that was loaded into another one before: OpenSSL takes the certificate, and
    drops the key that it has, before it looks at the new key.
    """

    def passphrase() -> str:  # without this OpenSSL would ask on the terminal
        raise SettingsError(f"{key_name}: is encrypted; use a key without passphrase")

    with _in_memory(certificate + b"\n" + key) as path:
        try:
            context.load_cert_chain(path, password=passphrase)
        except ssl.SSLError as error:
            if error.reason == "KEY_VALUES_MISMATCH":
                raise SettingsError(f"{key_name}: is not the key of {certificate_name}") from None
            raise SettingsError(f"{certificate_name} or {key_name}: cannot be read ({error.reason})") from None


def check_roots(roots: bytes, name: str) -> None:
    """Raise SettingsError unless these are certificates of authorities."""
    _check_whole(roots, name)
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=roots.decode("ascii"))
    except (ssl.SSLError, UnicodeDecodeError):
        raise SettingsError(f"{name}: cannot be read as certificates") from None


def not_after(pem: bytes, name: str) -> float:
    """Return the moment at which the first of these certificates expires, in seconds since 1970.

    Raises SettingsError if a certificate cannot be read.
    """
    try:
        return min(_not_after(ssl.PEM_cert_to_DER_cert(each.decode("ascii"))) for each in _CERTIFICATES.findall(pem))
    except (ValueError, IndexError):
        raise SettingsError(f"{name}: the validity of a certificate cannot be read") from None


def certificate_ids(pem: bytes) -> list[CertificateId]:
    """Return the issuer and serial number of certificates, in DER. Raises ValueError or IndexError for what is none."""
    found = []
    for each in _CERTIFICATES.findall(pem):
        serial, _, issuer, *_ = _fields(ssl.PEM_cert_to_DER_cert(each.decode("ascii")))
        found.append((issuer, serial))
    return found


@dataclass(frozen=True, slots=True)
class RevocationLists:
    """What the lists of a file say.

    revoked: the certificates that they revoke
    not_after: when the first list is due to be replaced, in seconds since 1970; infinite without such a moment
    """

    revoked: frozenset[CertificateId]
    not_after: float


def revocation_lists(pem: bytes, name: str) -> RevocationLists:
    """Read lists of revoked certificates (CRL). Their signatures are not checked. Raises SettingsError."""
    found = _REVOCATIONS.findall(pem)
    if not found or len(found) != pem.count(b"-----BEGIN X509 CRL-----"):
        raise SettingsError(f"{name}: has no list of revoked certificates in PEM, or one that is cut off")
    try:
        with _in_memory(pem) as path:
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(path)
        lists = [_revocation_list(base64.b64decode(each)) for each in found]
    except (ssl.SSLError, ValueError, IndexError):
        raise SettingsError(f"{name}: a list of revoked certificates cannot be read") from None
    return RevocationLists(
        frozenset(each for one in lists for each in one.revoked), min(one.not_after for one in lists)
    )


def _revocation_list(der: bytes) -> RevocationLists:
    """Return one list. Raises ValueError or IndexError if it is none."""
    (whole,) = _elements(der)
    signed, *_ = _elements(whole[1])
    elements = [(tag, content) for tag, content in _elements(signed[1]) if tag != _INTEGER]  # without the version
    _, (_, issuer), (tag, moment), *rest = elements  # algorithm, issuer, time of the list
    _moment(tag, moment)
    not_after = math.inf
    if rest and rest[0][0] in (_UTC_TIME, _TIME):
        not_after = _moment(*rest.pop(0))
    entries = _elements(rest[0][1]) if rest and rest[0][0] == _SEQUENCE else ()
    serials = [serial for _, entry in entries for (_, serial), *_ in [_elements(entry)]]
    return RevocationLists(frozenset((issuer, serial) for serial in serials), not_after)


def _not_after(der: bytes) -> float:
    """When a certificate expires. Raises ValueError or IndexError if it is none."""
    _, _, _, validity, *_ = _fields(der)
    _, end = _elements(validity)
    return _moment(*end)


def _fields(der: bytes) -> list[bytes]:
    """Return the fields of a certificate: serial number, algorithm, issuer, validity and more.

    Raises ValueError or IndexError if it is none.
    """
    (certificate,) = _elements(der)
    signed, *_ = _elements(certificate[1])
    return [content for tag, content in _elements(signed[1]) if tag != _VERSION]


def _moment(tag: int, content: bytes) -> float:
    """Return a time in seconds since 1970. Raises ValueError if it is none."""
    text = content.decode("ascii")
    if tag == _UTC_TIME:  # two digits for the years 1950 to 2049
        text = f"{'19' if text[:2] >= '50' else '20'}{text}"
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()


def _elements(content: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the elements of a DER sequence: tag and content of each."""
    position = 0
    while position < len(content):
        tag, length, position = content[position], content[position + 1], position + 2
        if length & 0x80:  # the long form: the number of bytes that hold the length
            size = length & 0x7F
            length, position = int.from_bytes(content[position : position + size]), position + size
        if position + length > len(content):
            raise ValueError("an element is longer than its sequence")
        yield tag, content[position : position + length]
        position += length


@contextmanager
def _in_memory(content: bytes) -> Iterator[str]:
    """Give the path of a file in memory: OpenSSL reads these from files only, and a file on disk may have changed."""
    handle = os.memfd_create("pem", os.MFD_CLOEXEC)
    try:
        with open(handle, "wb", closefd=False) as file:
            file.write(content)
        yield f"/proc/self/fd/{handle}"
    finally:
        os.close(handle)


def _check_whole(pem: bytes, name: str) -> None:
    if _BEGIN not in pem:
        raise SettingsError(f"{name}: has no certificate in PEM")
    if pem.count(_BEGIN) != pem.count(_END):
        raise SettingsError(f"{name}: a certificate is cut off")
