"""Documents in a process of their own: a file that costs too much ends this process and nothing else.

`python -m lingon.documents.process MEMORY SECONDS` answers each message on standard input with one on standard output.
MEMORY is the bytes of address space that documents may take, SECONDS the computing time of one message. It ends with
OUT_OF_MEMORY, or by SIGXCPU, when a document passes a limit.

A message is its number of parts, the size of each, and the parts. A request has an operation, the name of the file, the
target language, the column of a table, the content of the file and, to write it, a TranslateRequest with the
translations of its texts. A reply has the outcome, whether the process stays for other messages, and what the operation
returns: a file that was written is followed by the notes about it.
"""

from __future__ import annotations

import gc
import os
import resource
import struct
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from lingon.documents import UnreadableDocument, read_document, suffix_of, translated_suffix
from lingon.documents.document import check_reply
from lingon.translation.v1 import translation_pb2 as pb

READ, WRITE = b"read", b"write"
DONE, REFUSED, FAILED = b"done", b"refused", b"failed"
"""The first part of a reply. DONE: what the operation returns follows; else one line that says what is wrong."""

STAYS, ENDS = b"stays", b"ends"
"""The second part of a reply. ENDS: files have left so much in memory that the next one would have too little."""

OUT_OF_MEMORY = 3  # exit code
LEFT_SHARE = 8  # one part in so many of MEMORY may be taken by what earlier files have left
NICENESS = 10  # translations of others go first
COUNT, SIZE = struct.Struct(">I"), struct.Struct(">Q")


def packed(parts: Sequence[bytes]) -> bytes:
    """Return the begin of a message with these parts, which follow it."""
    return COUNT.pack(len(parts)) + b"".join(SIZE.pack(len(part)) for part in parts)


def main() -> None:
    """Answer messages until standard input ends."""
    memory, seconds = map(int, sys.argv[1:])
    most_left = _restrict(memory) + memory // LEFT_SHARE
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    try:
        while parts := _message(source):
            used = resource.getrusage(resource.RUSAGE_SELF)
            end = int(used.ru_utime + used.ru_stime) + 1 + seconds
            resource.setrlimit(resource.RLIMIT_CPU, (end, resource.RLIM_INFINITY))
            outcome, *found = _answer(*parts)
            gc.collect()
            stays = _address_space() - sum(map(len, (*parts, *found))) <= most_left
            reply = (outcome, STAYS if stays else ENDS, *found)
            for part in (packed(reply), *reply):
                sink.write(part)
            sink.flush()
            if not stays:
                break
            del parts, found, reply
    except MemoryError:
        os._exit(OUT_OF_MEMORY)


def _restrict(memory: int) -> int:
    """Bound what documents may take, and leave the processor to others, and return the bytes that Python takes."""
    os.nice(NICENESS)
    used = _address_space()
    resource.setrlimit(resource.RLIMIT_AS, (used + memory, used + memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    return used


def _address_space() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def _message(source: BinaryIO) -> list[bytes]:
    """Return the parts of the next message. None at the end."""
    begin = source.read(COUNT.size)
    if not begin:
        return []
    sizes = [SIZE.unpack(source.read(SIZE.size))[0] for _ in range(COUNT.unpack(begin)[0])]
    return [source.read(size) for size in sizes]


def _answer(
    operation: bytes, name: bytes, target: bytes, column: bytes, content: bytes, *translated: bytes
) -> tuple[bytes, ...]:
    try:
        if operation == READ:
            return (DONE, *_read(name.decode(), content, target.decode(), column.decode()))
        document = read_document(name.decode(), content, target.decode(), column=column.decode())
        written = document.write(pb.TranslateRequest.FromString(*translated).texts)
        check_reply(len(written), "the translated file has")
        return DONE, written, *(note.encode() for note in document.notes)
    except UnreadableDocument as error:
        return REFUSED, str(error).encode()
    except RecursionError:
        return REFUSED, b"the file has parts in too many others"
    except MemoryError:
        raise
    except Exception as error:  # without its message, which may have text of the file
        position = traceback.extract_tb(error.__traceback__)[-1]
        return FAILED, f"{type(error).__name__} in {Path(position.filename).name}, line {position.lineno}".encode()


def _read(name: str, content: bytes, target: str, column: str) -> tuple[bytes, ...]:
    """Return the name of a file, its texts and their options as a TranslateRequest, and how many characters it has.

    A file without a suffix gets that of its kind: some clients send every file as `file`. A template of gettext gets
    that of a catalogue, which it becomes.
    """
    name = name if Path(name).suffix else f"document{suffix_of(content)}"
    document = read_document(name, content, target, column=column)
    name = str(Path(name).with_suffix(translated_suffix(name)))
    found = pb.TranslateRequest(texts=document.texts, text=document.options).SerializeToString()
    check_reply(len(found), "the texts of the file have")
    return name.encode(), found, str(document.characters).encode()


if __name__ == "__main__":
    main()
