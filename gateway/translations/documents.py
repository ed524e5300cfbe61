"""Files to translate."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from pathlib import Path

from lingon.documents import UnreadableDocument, memory_of, read_document, suffix_of
from lingon.gateway.requests.endpoint import Call
from lingon.gateway.requests.problem import Problem
from lingon.gateway.translations.translate import Wanted, detect, translate
from lingon.translation.v1 import translation_pb2 as pb


@dataclass(frozen=True, slots=True)
class TranslatedFile:
    """A file that was translated.

    characters: of its texts
    detected: its language if that was detected; empty if it was given, or the file has no text
    """

    content: bytes
    characters: int
    detected: str = ""


def name_with_suffix(name: str, content: bytes) -> str:
    """Return the name of a file, with the suffix of its kind if it has none: some clients send every file as `file`."""
    return name if Path(name).suffix else f"document{suffix_of(content)}"


async def translate_file(call: Call, name: str, content: bytes, wanted: Wanted) -> TranslatedFile:
    """Return the translation of a file; raises Problem for one that cannot be read.

    If its language is not given, it is detected once: a single text may be too short for that.
    """
    call.held.add(await asyncio.to_thread(memory_of, name, content))
    try:
        async with call.held.reading:
            document = await asyncio.to_thread(read_document, name, content, wanted.target)
    except UnreadableDocument as error:
        raise Problem(400, str(error), field="file") from None
    options = pb.TextOptions()
    options.CopyFrom(wanted.text)
    options.MergeFrom(document.options)
    wanted = replace(wanted, text=options)
    detected = ""
    if not wanted.source and document.texts:
        (source,) = await detect(call.backend, ["\n".join(document.texts)], call.caller, wanted)
        detected, wanted = source.language, replace(wanted, source=source.language, unchanged=source.stays)
    results = await translate(call.backend, document.texts, wanted, call.caller)
    written = await asyncio.to_thread(document.write, [each.text for each in results])
    return TranslatedFile(written, document.characters, detected)
