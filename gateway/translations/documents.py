"""Files to translate: read and written in processes of their own, and kept until they are fetched."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from lingon.documents import UnreadableDocument, check_suffix
from lingon.gateway.requests.endpoint import Call
from lingon.gateway.requests.problem import Problem
from lingon.gateway.translations.document_processes import DocumentProcesses, File
from lingon.gateway.translations.kept_files import KeptFiles
from lingon.gateway.translations.translate import Wanted, detect, translate
from lingon.translation.v1 import translation_pb2 as pb


@dataclass(frozen=True, slots=True)
class TranslatedFile:
    """A file that was translated.

    name: of the file, with a suffix
    characters: of its texts
    detected: its language if that was detected; empty if it was given, or the file has no text
    notes: lines about it, such as its encoding
    """

    name: str
    content: bytes
    characters: int
    detected: str = ""
    notes: Sequence[str] = ()


class Documents:
    """What APIs do with files.

    kept: the files that are kept; None if there is no folder for them
    """

    def __init__(self, processes: DocumentProcesses, kept: KeptFiles | None = None) -> None:
        self._processes, self.kept = processes, kept

    def check_kind(self, name: str) -> None:
        """Raise Problem for the name of a file of a kind that is not read; one without a suffix may be of any kind."""
        try:
            if Path(name).suffix:
                check_suffix(name)
        except UnreadableDocument as error:
            raise Problem(400, str(error), field="file") from None

    async def translate(
        self, call: Call, name: str, content: bytes, wanted: Wanted, column: str = ""
    ) -> TranslatedFile:
        """Return the translation of a file; raises Problem for one that cannot be read.

        column: of a table, its name or its number; empty if it was not given
        If its language is not given, it is detected once: a single text may be too short for that.
        """
        file = File(name, content, wanted.target, call.holder.owner, column)
        async with _limited(call.backend.timeout, "read"):
            read = await self._processes.read(file, patient=call.caller.in_background)
        call.held.add(max(read.size - len(content), 0))
        options = pb.TextOptions()
        options.CopyFrom(wanted.text)
        options.MergeFrom(read.options)
        wanted = replace(wanted, text=options)
        detected, texts = "", list(read.texts)
        if not wanted.source and texts:
            (source,) = await detect(call.backend, ["\n".join(texts)], call.caller, wanted)
            detected, wanted = source.language, replace(wanted, source=source.language, unchanged=source.stays)
        results = await translate(call.backend, texts, wanted, call.caller)
        async with _limited(call.backend.timeout, "written"):
            written = await self._processes.write(read.file, [each.text for each in results])
        call.held.add(max(len(written.content) - max(len(content), read.size), 0))
        return TranslatedFile(read.file.name, written.content, read.characters, detected, written.notes)


@asynccontextmanager
async def _limited(seconds: float, done: str) -> AsyncIterator[None]:
    """Bound the time of work on a file, waiting included; raises Problem 504."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise Problem(504, f"the file was not {done} within {seconds:g} s; try again later") from None
