"""Checks certificates and keys in PEM before gRPC uses them, whose errors only say that connecting failed; reads dates.

The standard library has no reader of certificates. The few fields that are read here are found by the DER encoding
(ITU-T X.690) of a certificate (RFC 5280, section 4.1), after OpenSSL has accepted it.
"""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime

from lingon.errors import SettingsError

_BEGIN, _END = b"-----BEGIN CERTIFICATE-----", b"-----END CERTIFICATE-----"
_CERTIFICATES = re.compile(_BEGIN + rb".*?" + _END, re.DOTALL)
_VERSION, _UTC_TIME = 0xA0, 0x17  # tags of DER
_EDWARDS = (bytes.fromhex("300506032b6570"), bytes.fromhex("300506032b6571"))  # Ed25519 and Ed448 in a certificate
_ELLIPTIC = bytes.fromhex("06072a8648ce3d0201")  # id-ecPublicKey; the name of the curve follows it
_CURVES = (bytes.fromhex("06082a8648ce3d030107"), bytes.fromhex("06052b81040022"))  # P-256 and P-384


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

    def passphrase() -> str:  # without this OpenSSL would ask on the terminal
        raise SettingsError(f"{key_name}: is encrypted; use a key without passphrase")

    # load_cert_chain reads files only, and those on disk may have changed: this file is in memory.
    handle = os.memfd_create("pem", os.MFD_CLOEXEC)
    try:
        with open(handle, "wb", closefd=False) as file:
            file.write(certificate + b"\n" + key)
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(f"/proc/self/fd/{handle}", password=passphrase)
        except ssl.SSLError as error:
            if error.reason == "KEY_VALUES_MISMATCH":
                raise SettingsError(f"{key_name}: is not the key of {certificate_name}") from None
            raise SettingsError(f"{certificate_name} or {key_name}: cannot be read ({error.reason})") from None
    finally:
        os.close(handle)


def check_roots(roots: bytes, name: str) -> None:
    """Raise SettingsError unless these are certificates of authorities."""
    _check_whole(roots, name)
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=roots.decode("ascii"))
    except (ssl.SSLError, UnicodeDecodeError):
        raise SettingsError(f"{name}: cannot be read as certificates") from None


def not_after(pem: bytes, name: str) -> float:
    """The moment at which the first of these certificates expires, in seconds since 1970.

    Raises SettingsError if a certificate cannot be read.
    """
    try:
        return min(_not_after(ssl.PEM_cert_to_DER_cert(each.decode("ascii"))) for each in _CERTIFICATES.findall(pem))
    except (ValueError, IndexError):
        raise SettingsError(f"{name}: the validity of a certificate cannot be read") from None


def _not_after(der: bytes) -> float:
    """When a certificate expires; raises ValueError or IndexError if it is none."""
    (certificate,) = _elements(der)
    signed, *_ = _elements(certificate[1])
    fields = [content for tag, content in _elements(signed[1]) if tag != _VERSION]
    _, _, _, validity, *_ = fields  # serial number, algorithm, issuer, validity
    _, (tag, end) = _elements(validity)
    text = end.decode("ascii")
    if tag == _UTC_TIME:  # two digits for the years 1950 to 2049
        text = f"{'19' if text[:2] >= '50' else '20'}{text}"
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()


def _elements(content: bytes) -> Iterator[tuple[int, bytes]]:
    """The elements of a DER sequence: tag and content of each."""
    place = 0
    while place < len(content):
        tag, length, place = content[place], content[place + 1], place + 2
        if length & 0x80:  # the long form: the number of bytes that hold the length
            size = length & 0x7F
            length, place = int.from_bytes(content[place : place + size]), place + size
        if place + length > len(content):
            raise ValueError("an element is longer than its sequence")
        yield tag, content[place : place + length]
        place += length


def _check_whole(pem: bytes, name: str) -> None:
    if _BEGIN not in pem:
        raise SettingsError(f"{name}: has no certificate in PEM")
    if pem.count(_BEGIN) != pem.count(_END):
        raise SettingsError(f"{name}: a certificate is cut off")
