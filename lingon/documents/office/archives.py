"""ZIP archives: opened within bounds, and packed again with some files replaced."""

from __future__ import annotations

import copy
import io
import shutil
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from lingon.documents.errors import UnreadableDocument

MOST_BYTES = 256 << 20  # of all files of an archive together, unpacked
MOST_FILES = 10_000
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # of all kinds' standards; others have errors of their own
_MANIFEST = "META-INF/manifest.xml"
MOST_MANIFEST_BYTES = 1 << 20  # that are read of it
_COMPOUND = b"\xd0\xcf\x11\xe0"  # the first bytes of older formats, and of encrypted documents


@contextmanager
def opened(content: bytes) -> Iterator[zipfile.ZipFile]:
    """Open an archive; raises UnreadableDocument, also for what is wrong with a file in it."""
    if content.startswith(_COMPOUND):
        raise UnreadableDocument("the file is encrypted, or of an older format")
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            _check(archive.infolist())
            _check_manifest(archive)
            yield archive
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
        raise UnreadableDocument(f"the file is no archive of its kind: {error}") from None


def packed(content: bytes, written: Mapping[str, bytes]) -> bytes:
    """Return an archive with some files replaced; all have the order, the names and the times that they had.

    Of files with one name only the last is kept, which is the one that is read.
    """
    result = io.BytesIO()
    with opened(content) as source, zipfile.ZipFile(result, "w") as archive:
        for info in source.NameToInfo.values():
            if info.filename in written:
                archive.writestr(info, written[info.filename])
            else:
                with source.open(info) as unchanged, archive.open(copy.copy(info), "w") as copied:
                    shutil.copyfileobj(unchanged, copied)
    return result.getvalue()


def _check_manifest(archive: zipfile.ZipFile) -> None:
    """Refuse an encrypted document of OpenDocument, whose archive itself is not (part 3, 4.8)."""
    if _MANIFEST in archive.NameToInfo:
        with archive.open(_MANIFEST) as manifest:
            if b"encryption-data" in manifest.read(MOST_MANIFEST_BYTES):
                raise UnreadableDocument("the file is encrypted")


def _check(infos: Sequence[zipfile.ZipInfo]) -> None:
    size = sum(info.file_size for info in infos)
    if len(infos) > MOST_FILES or size > MOST_BYTES:
        message = (
            f"unpacked the file has {len(infos):,} files of {size:,} bytes; at most {MOST_FILES:,} of {MOST_BYTES:,}"
        )
        raise UnreadableDocument(message)
    if any(info.flag_bits & 1 for info in infos):
        raise UnreadableDocument("the file is encrypted")
    if any(info.compress_type not in _METHODS for info in infos):
        raise UnreadableDocument("a file in the archive is compressed by another method than Deflate")
