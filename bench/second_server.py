"""A stand-in for a second translator: a server of OpenAI's chat completions that answers from references.

    python -m lingon.bench.second_server test.en test.de --fault refusal=0.1 --fault slow=0.02

It shows what a server does with answers that are right, and with those of `Fault`. The same seed gives each sentence
the same fault, in any order of the requests.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import signal
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import accumulate
from pathlib import Path
from typing import Annotated, Any

import typer

from lingon.errors import SettingsError
from lingon.files import check_files, read_parallel

SLOW = 30.0  # seconds that a slow answer takes
LONG = 20  # times that a long answer has the translation
LOOP = 12  # times that a looping answer has its first words
MOST_BODY = 2**20  # bytes of a request
HUGE = 2**22  # bytes of an answer that is too large
REFUSAL = "I'm sorry, but I can't help with that request."
NAME = "stand-in"
"""The name of its model."""


class Fault(StrEnum):
    """What is wrong with an answer."""

    DEAD = "dead"  # the connection is closed without one
    SLOW = "slow"  # it comes after 30 s
    HANG = "hang"  # half of its bytes come, and no more
    ERROR = "error"  # status 500
    REDIRECT = "redirect"  # to another host
    MALFORMED = "malformed"  # JSON that ends too soon
    HUGE = "huge"  # 4 MiB
    EMPTY = "empty"
    REFUSAL = "refusal"  # a sentence that declines
    BARE = "bare"  # the translation without the JSON object that was asked for
    LANGUAGE = "language"  # the source again
    PLACEHOLDER = "placeholder"  # without the first string that is to be kept; right if there is none
    NUMBER = "number"  # with another number
    LONG = "long"  # the translation 20 times
    LOOP = "loop"  # the first words of the translation 12 times
    OTHER = "other"  # the translation of another sentence, of about the same length


LIES = (Fault.LANGUAGE, Fault.PLACEHOLDER, Fault.NUMBER, Fault.LONG, Fault.LOOP, Fault.OTHER)
"""The faults whose answer is a text in the form that was asked for."""


@dataclass(frozen=True, slots=True)
class Faults:
    """Which sentences have which fault.

    shares: of the sentences, 0 to 1, by fault; the rest is translated
    seed: another one gives the faults to other sentences
    """

    shares: Mapping[Fault, float] = field(default_factory=dict)
    seed: int = 0

    def __post_init__(self) -> None:
        total = sum(self.shares.values())
        if min(self.shares.values(), default=0) < 0 or total > 1 + 1e-9:
            raise SettingsError(f"the shares of faults must be at least 0 and at most 1 in all, got {total:g}")

    def of(self, sentence: str) -> Fault | None:
        """Return the fault of a sentence, None if it is translated."""
        drawn = random.Random(f"{self.seed} {sentence}").random()
        for fault, end in zip(self.shares, accumulate(self.shares.values()), strict=True):
            if drawn < end:
                return fault
        return None


class References:
    """Sentences and their translations by people."""

    def __init__(self, pairs: Iterable[tuple[str, str]]) -> None:
        """pairs: (sentence, translation). Of a sentence that comes twice the first translation is used."""
        self._targets: dict[str, str] = {}
        for source, target in pairs:
            self._targets.setdefault(_folded(source), target)
        self._by_length = sorted(self._targets.values(), key=len)

    def translation(self, sentence: str) -> str | None:
        """Return the translation of a sentence, None if it is unknown."""
        return self._targets.get(_folded(sentence))

    def other(self, sentence: str) -> str:
        """Return the translation of another sentence, of about the length of the right one if there is one."""
        right = self.translation(sentence) or ""
        near = [each for each in self._by_length if abs(len(each) - len(right)) <= 3 and each != right]
        return random.Random(sentence).choice(near or self._by_length)


def _folded(text: str) -> str:
    return " ".join(text.split())


@dataclass(frozen=True, slots=True)
class Asked:
    """A sentence to translate, and the strings that its translation must have unchanged."""

    sentence: str
    keep: Sequence[str] = ()

    @classmethod
    def of(cls, messages: Sequence[Mapping[str, Any]]) -> Asked:
        """Return the question of a chat: the JSON object in its last message of the user.

        Raises ValueError, LookupError, TypeError or AttributeError for another chat.
        """
        fields = json.loads([each["content"] for each in messages if each["role"] == "user"][-1])
        return cls(str(fields["text"]), [str(each) for each in fields.get("keep", ())])


def spoilt(fault: Fault, asked: Asked, target: str, references: References) -> str:
    """Return the text of an answer with a fault; target: the right translation."""
    if fault is Fault.OTHER:
        return references.other(asked.sentence)
    without = target
    for string in asked.keep[:1]:
        without = _folded(without.replace(string, "", 1))
    texts = {
        Fault.LANGUAGE: asked.sentence,
        Fault.PLACEHOLDER: without,
        Fault.NUMBER: _other_numbers(target),
        Fault.LONG: " ".join([target] * LONG),
        Fault.LOOP: " ".join([" ".join(target.split()[:4])] * LOOP),
    }
    return texts.get(fault, target)


def content(fault: Fault | None, asked: Asked, target: str, references: References) -> str:
    """Return what the model writes about a sentence; target: the right translation."""
    prose = {Fault.EMPTY: "", Fault.REFUSAL: REFUSAL, Fault.BARE: target}
    if fault in prose:
        return prose[fault]
    text = target if fault is None else spoilt(fault, asked, target, references)
    return json.dumps({"translation": text}, ensure_ascii=False)


def _other_numbers(text: str) -> str:
    """Return a text with other numbers, or with one more if it has none."""
    changed, count = re.subn(r"\d+", lambda found: str(int(found[0]) + 171), text)
    return changed if count else f"{text.rstrip('.')} 4711."


@dataclass(slots=True)
class SecondServer:
    """The state of a running stand-in.

    url: the base of its API, for `second_url`
    asked: the number of requests by their fault; without one by "translated", without a known sentence by "unknown"
    prompts: the messages of the last request
    open, most_open: requests in progress, now and at most
    left: the number of requests whose connection the client closed before their answer
    keys: what the header Authorization of the requests had
    """

    references: References
    faults: Faults
    slow: float = SLOW
    url: str = ""
    asked: Counter[str] = field(default_factory=Counter)
    prompts: list[dict[str, Any]] = field(default_factory=list)
    open: int = 0
    most_open: int = 0
    left: int = 0
    keys: set[str] = field(default_factory=set)

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of a connection, one after the other."""
        with suppress(asyncio.IncompleteReadError, ConnectionError), closing(writer):
            while request := await _read_request(reader):
                self.open += 1
                self.most_open = max(self.open, self.most_open)
                try:
                    if not await self._answer_one(request, reader, writer):
                        break
                finally:
                    self.open -= 1

    async def _answer_one(self, request: _Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer one request. Return whether the connection stays open."""
        if request.method != "POST" or not request.path.endswith("/chat/completions"):
            return await _send(writer, 404, _error(f"there is no {request.method} {request.path}"))
        self.keys.add(request.headers.get("authorization", ""))
        try:
            asked = json.loads(request.body)
            self.prompts = list(asked["messages"])
            question = Asked.of(self.prompts)
        except (ValueError, LookupError, TypeError, AttributeError):
            return await _send(writer, 400, _error("the body is not a request for a translation"))
        target = self.references.translation(question.sentence)
        fault = self.faults.of(question.sentence)
        self.asked["unknown" if target is None else fault or "translated"] += 1
        if target is None:
            return await _send(writer, 200, _completion(REFUSAL))
        body = _completion(content(fault, question, target, self.references))
        if fault in (Fault.SLOW, Fault.HANG):
            if fault is Fault.HANG:
                await _send(writer, 200, body, cut=len(body) // 2)
            await self._wait(reader)
        return await self._send_with(fault, body, writer)

    async def _wait(self, reader: asyncio.StreamReader) -> None:
        """Wait as long as a slow answer takes. Raises ConnectionError if the client leaves before that."""
        with suppress(TimeoutError):
            if await asyncio.wait_for(reader.read(1), self.slow) == b"":
                self.left += 1
                raise ConnectionResetError

    async def _send_with(self, fault: Fault | None, body: bytes, writer: asyncio.StreamWriter) -> bool:
        """Answer with a fault. Return whether the connection stays open."""
        match fault:
            case Fault.DEAD | Fault.HANG:
                return False
            case Fault.ERROR:
                return await _send(writer, 500, _error("the model is not loaded"))
            case Fault.REDIRECT:
                return await _send(writer, 307, b"", location="http://127.0.0.1:9/v1/chat/completions")
            case Fault.MALFORMED:
                return await _send(writer, 200, body[: len(body) // 2])
            case Fault.HUGE:
                return await _send(writer, 200, _completion("nie " * (HUGE // 4)))
        return await _send(writer, 200, body)


@dataclass(frozen=True, slots=True)
class _Request:
    """A request of HTTP/1.1. headers: by their names in small letters."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


async def _read_request(reader: asyncio.StreamReader) -> _Request | None:
    """Read a request. None at the end of the connection, and for one that is no HTTP or has no length."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, _, rest = head[0].partition(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
    length = int(headers.get("content-length", "0"))
    if not rest or length > MOST_BODY:
        return None
    return _Request(method, rest.partition(" ")[0], headers, await reader.readexactly(length))


async def _send(writer: asyncio.StreamWriter, status: int, body: bytes, *, cut: int | None = None, **more: str) -> bool:
    """Send an answer, or its first `cut` bytes. Return True, because the connection stays open. more: headers."""
    headers = {"content-type": "application/json", "content-length": str(len(body)), **more}
    lines = [f"HTTP/1.1 {status} -", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
    writer.write("\r\n".join(lines).encode() + body[:cut])
    await writer.drain()
    return True


def _completion(text: str) -> bytes:
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    body = {"id": "chatcmpl-1", "object": "chat.completion", "created": 0, "model": NAME}
    return json.dumps({**body, "choices": [choice], "usage": usage}).encode()


def _error(message: str) -> bytes:
    return json.dumps({"error": {"message": message, "type": "server_error", "code": None}}).encode()


@asynccontextmanager
async def running(
    references: References, faults: Faults | None = None, *, port: int = 0, slow: float = SLOW
) -> AsyncIterator[SecondServer]:
    """Serve on 127.0.0.1 until the block ends, which closes the connections.

    port: 0 for a free one; slow: seconds that a slow answer takes
    """
    state = SecondServer(references, faults or Faults(), slow)
    tasks = set[asyncio.Task[None]]()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(state.answer(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(connected, "127.0.0.1", port)
    state.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    try:
        yield state
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)  # in which the closed connections are removed from the loop


def parse_faults(given: Iterable[str]) -> dict[Fault, float]:
    """Return shares by fault. given: such as refusal=0.1. Raises SettingsError for another fault or share."""
    found = {}
    for text in given:
        name, _, share = text.partition("=")
        if name not in list(Fault):
            raise SettingsError(f"--fault must be one of {', '.join(Fault)} with =SHARE, got {text!r}")
        try:
            found[Fault(name)] = float(share or "1")
        except ValueError:
            raise SettingsError(f"--fault {name} needs a share from 0 to 1, got {share!r}") from None
    return found


async def serve(references: References, faults: Faults, port: int, slow: float) -> None:
    """Serve until SIGTERM or SIGINT, and print `ready: URL` once."""
    async with running(references, faults, port=port, slow=slow) as state:
        stopping = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stopping.set)
        print(f"ready: {state.url}", flush=True)
        await stopping.wait()


def main(
    source: Annotated[Path, typer.Argument(help="Sentences, one a line, plain or packed.")],
    target: Annotated[Path, typer.Argument(help="Their translations by people, line by line.")],
    port: Annotated[int, typer.Option(min=0, help="Port; 0 selects a free one.")] = 0,
    fault: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FAULT=SHARE", help=f"Share of the sentences with a fault: {', '.join(Fault)}; may be repeated."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Another one gives the faults to other sentences.")] = 0,
    slow: Annotated[float, typer.Option(min=0, help="Seconds that a slow answer takes.")] = SLOW,
) -> None:
    """Serve translations of known sentences as an OpenAI-shaped server, with chosen faults."""
    check_files([source, target])
    faults = Faults(parse_faults(fault or []), seed)
    asyncio.run(serve(References(read_parallel(source, target)), faults, port, slow))


if __name__ == "__main__":
    typer.run(main)
