"""Hostile callers: their requests, from a connection or a process of their own, and observations of the server.

`python -m tests.reliability.attackers` is the process: it reads one line of JSON from standard input, attacks until
standard input ends, and then prints its tally as JSON.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import json
import math
import random
import re
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass, field
from types import TracebackType
from typing import Any, Self, TypeVar

import grpc

from lingon.bench.worker_process import Cores, on_cores
from lingon.errors import LingonError
from lingon.text import Tokenizer
from lingon.translation.v1 import translation_pb2 as pb
from tests.reliability.clients import BACK_OFF, Client, no_collection, reason_of
from tests.reliability.history import OK
from tests.reliability.server import Server, ends_with_parent

SERVICE = "/lingon.translation.v1.TranslationService"
PAIRS = 64  # texts or pairs of one request


@dataclass(frozen=True, slots=True)
class Attack:
    """One request. body: the serialised message, made once, so that sending it costs this process little."""

    name: str
    method: str
    body: bytes

    @property
    def path(self) -> str:
        """The path of the method in HTTP/2."""
        return f"{SERVICE}/{self.method}"


def translate(name: str, texts: Sequence[str], **options: Any) -> Attack:
    """Return a Translate. options: of DecodingOptions."""
    request = pb.TranslateRequest(texts=texts, options=pb.DecodingOptions(**options))
    return Attack(name, "Translate", request.SerializeToString())


def split(name: str, texts: Sequence[str]) -> Attack:
    """Return a Translate whose texts the server splits."""
    return translate(name, texts, beam_size=1, long_text=pb.LONG_TEXT_POLICY_SPLIT)


def tiny_sentences(characters: int, texts: int = 1) -> Attack:
    """Return a Translate that splits texts of so many characters in all into a sentence for every four of them.

    The sentences have letters: a text without any is answered as it is.
    """
    each = characters // texts
    return split(f"{characters / 1e6:.3g} MB in tiny sentences", [("Oh! " * (each // 4 + 1))[:each]] * texts)


def marked_texts(texts: int = 256) -> Attack:
    """Return a Translate of texts that are one letter with 1,000 combining marks, whose order NFC has to sort out.

    Together they have fewer marks than the 262,144 that a request may have.
    """
    return translate(f"{texts} texts of combining marks", ["a" + "\u0301\u0323" * 500] * texts, beam_size=1)


def empty_pairs(pairs: int = 2_000_000) -> Attack:
    """Return a Score of empty pairs, two bytes each."""
    return Attack(f"{pairs / 1e6:g} million empty pairs", "Score", b"\x0a\x00" * pairs)


def score(name: str, pairs: Sequence[tuple[str, str]], *, alignment: bool = False) -> Attack:
    """Return a Score of pairs of source and target."""
    made = [pb.ScorePair(source=source, target=target) for source, target in pairs]
    return Attack(name, "Score", pb.ScoreRequest(pairs=made, return_alignment=alignment).SerializeToString())


def target_text(tokenizer: Tokenizer, word: str, tokens: int) -> str:
    """Return the longest text of one repeated word that has at most this many target tokens."""
    count = tokens
    while len(tokenizer.encode_target(" ".join([word] * count))) > tokens:
        count -= 1
    return " ".join([word] * count)


def costly_requests(short: Sequence[str], long: Sequence[str], target: str) -> list[Attack]:
    """Return one attack of each kind, for the cases about fairness.

    short, long: source texts, at least PAIRS each; target: a target text as long as the model takes
    """
    few, many = list(short[:PAIRS]), list(long[:PAIRS])
    sampling = pb.SamplingOptions(temperature=1.0, seed=1)
    return [
        translate("64 short texts", few, beam_size=1),
        translate("64 short texts, sampled", few, beam_size=1, sampling=sampling),
        translate("64 long texts", many, beam_size=1),
        score("Score of 64 pairs", [("a", target)] * PAIRS),
        translate("beam 8 with alignment", many, beam_size=8, num_hypotheses=8, return_alignment=True),
        split("a book to split", [" ".join(short[place % len(short)] for place in range(250))]),
        translate("256 empty texts", [""] * 256),
    ]


UNDER_WAY = 4  # requests that a hostile caller has under way at a time
OPTIONS = [
    ("grpc.use_local_subchannel_pool", 1),  # so that every caller has its own connection
    ("grpc.max_receive_message_length", -1),
    ("grpc.enable_retries", 0),
    ("grpc.enable_http_proxy", 0),
]
PATIENCE = 600.0  # seconds that a caller waits for a single answer


@dataclass(slots=True)
class Reply:
    """The end of a request. reason: of `google.rpc.ErrorInfo`; body: the serialised answer, empty with an error."""

    code: str
    reason: str = ""
    body: bytes = b""


@dataclass(slots=True)
class Tally:
    """The number of requests that a caller has sent, and how they ended, by code and by reason."""

    sent: int = 0
    ended: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)


class HostileCaller:
    """One connection of a caller. key: its API key."""

    def __init__(self, address: str, key: str | None = None) -> None:
        self.channel = grpc.aio.insecure_channel(address, options=OPTIONS)
        self._metadata = (("authorization", f"Bearer {key}"),) if key else ()
        self._methods: dict[str, Any] = {}

    async def close(self) -> None:
        """Close the connection, which cancels its calls."""
        await self.channel.close()

    async def send(self, attack: Attack, deadline: float | None = PATIENCE) -> Reply:
        """Send a request and wait for its end. deadline: in seconds, None for none."""
        if attack.path not in self._methods:
            self._methods[attack.path] = self.channel.unary_unary(attack.path)
        try:
            body = await self._methods[attack.path](attack.body, timeout=deadline, metadata=self._metadata)
        except grpc.aio.AioRpcError as error:
            return Reply(error.code().name, reason_of(error.trailing_metadata()))
        return Reply(OK, body=body)

    @asynccontextmanager
    async def attacking(self, attacks: Sequence[Attack], under_way: int = UNDER_WAY) -> AsyncIterator[Tally]:
        """Keep this many requests running while the block runs, and cancel them at its end.

        attacks: are sent in random order, if there are several
        """
        tally, numbers = Tally(), itertools.count()
        tasks = [asyncio.create_task(self._loop(attacks, tally, next(numbers))) for _ in range(under_way)]
        try:
            yield tally
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _loop(self, attacks: Sequence[Attack], tally: Tally, seed: int) -> None:
        draw = random.Random(seed)
        while True:
            tally.sent += 1
            reply = await self.send(draw.choice(attacks), None)
            tally.ended[reply.code] += 1
            tally.reasons[reply.reason] += 1
            if reply.code != OK:
                await asyncio.sleep(BACK_OFF)


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
END_STREAM, ACK, END_HEADERS = 1, 1, 4
INITIAL_WINDOW_SIZE, MAX_CONCURRENT_STREAMS = 4, 3  # settings of a peer
FRAME = 16_384  # bytes of a frame's payload at most, unless the peer allows more
WINDOW = 65_535  # bytes that may be sent before the peer says more


class UnfinishedCalls:
    """One connection with a number of calls, each of which sends `size` bytes of a message of `size` + 1 bytes.

    A thread answers the pings of the server, so that its keepalive finds the caller alive. `sent` is the number of
    bytes of messages that were sent, `ended` the number of calls that the server ended, `closed` whether it closed the
    connection.
    """

    def __init__(self, port: int, path: str, calls: int, size: int) -> None:
        self._path, self._calls, self._size = path, calls, size
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=10.0)
        self._left = {2 * number + 1: size + 5 for number in range(calls)}  # bytes that each open stream has to send
        self._windows: Counter[int] = Counter()
        self._window, self._initial, self._most = WINDOW, WINDOW, calls
        self._opened: set[int] = set()
        self.sent, self.ended, self.closed = 0, 0, False
        self._thread = threading.Thread(target=self._run, name="unfinished calls", daemon=True)

    def __enter__(self) -> Self:
        self._socket.sendall(PREFACE + _frame(SETTINGS, 0, 0))
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(10.0)
        self._socket.close()

    @property
    def settled(self) -> bool:
        """Whether every call has sent all that it may, or was ended, or the connection is closed."""
        opened_all = len(self._opened) == self._calls or len(self._windows) >= self._most
        return self.closed or (opened_all and not any(self._left[stream] for stream in list(self._opened)))

    def _run(self) -> None:
        with contextlib.suppress(OSError, EOFError):
            while True:
                self._send_what_fits()
                self._read_frame()
        self.closed = True

    def _send_what_fits(self) -> None:
        """Open streams as far as the server allows, and send as much of each as its window allows."""
        for stream in sorted(self._left):
            if stream not in self._opened and len(self._windows) < self._most:
                self._socket.sendall(_frame(HEADERS, END_HEADERS, stream, _headers(self._path)))
                self._windows[stream] = self._initial
                self._opened.add(stream)
            while stream in self._windows and (size := self._may_send(stream)) > 0:
                self._socket.sendall(_frame(DATA, 0, stream, self._piece(stream, size)))
                self._window -= size
                self._windows[stream] -= size
                self._left[stream] -= size
                self.sent += size

    def _may_send(self, stream: int) -> int:
        return min(self._left[stream], self._window, self._windows[stream], FRAME)

    def _piece(self, stream: int, size: int) -> bytes:
        """Return the next bytes of a stream.

        The first five are the header of the message, which is one byte longer.
        """
        if self._left[stream] < self._size + 5:
            return b"a" * size
        header = b"\0" + (self._size + 1).to_bytes(4, "big")
        return (header + b"a" * size)[:size]

    def _read_frame(self) -> None:
        head = self._exactly(9)
        kind, flags, stream = head[3], head[4], int.from_bytes(head[5:], "big")
        payload = self._exactly(int.from_bytes(head[:3], "big"))
        if kind == GOAWAY:
            raise EOFError
        if kind == PING and not flags & ACK:
            self._socket.sendall(_frame(PING, ACK, 0, payload))
        elif kind == SETTINGS and not flags & ACK:
            self._settings(payload)
        elif kind == WINDOW_UPDATE:
            self._more(stream, int.from_bytes(payload, "big"))
        elif kind == RST_STREAM or (kind in (DATA, HEADERS) and flags & END_STREAM):
            self._end(stream)

    def _settings(self, payload: bytes) -> None:
        for place in range(0, len(payload), 6):
            name, value = int.from_bytes(payload[place : place + 2], "big"), payload[place + 2 : place + 6]
            if name == INITIAL_WINDOW_SIZE:
                grown, self._initial = int.from_bytes(value, "big") - self._initial, int.from_bytes(value, "big")
                for stream in self._windows:
                    self._windows[stream] += grown
            elif name == MAX_CONCURRENT_STREAMS:
                self._most = min(self._calls, int.from_bytes(value, "big"))
        self._socket.sendall(_frame(SETTINGS, ACK, 0))

    def _more(self, stream: int, size: int) -> None:
        if stream == 0:
            self._window += size
        elif stream in self._windows:
            self._windows[stream] += size

    def _end(self, stream: int) -> None:
        if self._windows.pop(stream, None) is not None:
            self._left[stream] = 0
            self.ended += 1  # a server ends a call by its trailers, and then resets the stream

    def _exactly(self, count: int) -> bytes:
        found = b""
        while len(found) < count:
            self._socket.settimeout(None)
            more = self._socket.recv(count - len(found))
            if not more:
                raise EOFError
            found += more
        return found


def wait(calls: UnfinishedCalls, seconds: float) -> None:
    """Wait until the calls have sent all that they may, for this number of seconds at most."""
    end = time.monotonic() + seconds
    while not calls.settled and time.monotonic() < end:
        time.sleep(0.05)


def _frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def _headers(path: str) -> bytes:
    """Return the header block of a gRPC call, without compression (RFC 7541, literals without indexing)."""
    pairs = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", path),
        (":authority", "localhost"),
        ("te", "trailers"),
        ("content-type", "application/grpc"),
    ]
    return b"".join(b"\0" + _literal(name) + _literal(value) for name, value in pairs)


def _literal(text: str) -> bytes:
    raw = text.encode("ascii")
    assert len(raw) < 127, "longer texts need another form of the length"
    return bytes([len(raw)]) + raw


PROBE_PAUSE = 0.01  # seconds between an answer of a probe and its next question
QUIET = 0.25  # seconds without an answer of health: 50 ms of the event loop, and the answers' own ways on one core
PROBE_PATIENCE = 120.0  # seconds that a probe waits for one answer
SLOWER = 3.0  # times its p99 alone is the most that a polite caller's p99 may become
ENOUGH = 100  # requests of the polite caller beside an attack, unless they take too long
Answer = TypeVar("Answer")


async def one_by_one(send: Callable[[str], Awaitable[Answer]], texts: Sequence[str], seconds: float) -> list[Answer]:
    """Send one request after the other for some seconds, and until there are ENOUGH or three times as long passed."""
    found, start = list[Answer](), time.monotonic()
    with no_collection():
        while (spent := time.monotonic() - start) < seconds or (len(found) < ENOUGH and spent < 3 * seconds):
            found.append(await send(texts[len(found) % len(texts)]))
    return found


MAY_NEED = re.compile(r"may need ([\d,]+) MiB")


@dataclass(slots=True)
class Silence:
    """The answers to one kind of probe.

    answers: by the answer
    longest: seconds between two good answers, or between one and the end of the observation
    """

    good: str
    answers: Counter[str] = field(default_factory=Counter)
    longest: float = 0.0
    _last: float = 0.0

    def begin(self) -> None:
        """Start the observation."""
        self._last = time.monotonic()

    def heard(self, answer: str) -> None:
        """Note an answer."""
        self.answers[answer] += 1
        if answer == self.good:
            self.end()

    def end(self) -> None:
        """Note the silence until now."""
        now = time.monotonic()
        self.longest, self._last = max(self.longest, now - self._last), now


@dataclass(slots=True)
class Observed:
    """The effects of an attack on a server.

    cpu: seconds of CPU time
    peak, kept: megabytes of resident memory above those before it: the most at any time, and those at the end
    """

    health: Silence = field(default_factory=lambda: Silence("SERVING"))
    http: Silence = field(default_factory=lambda: Silence("200"))
    cpu: float = float("nan")
    peak: float = float("nan")
    kept: float = float("nan")


@asynccontextmanager
async def observed(server: Server, client: Client) -> AsyncIterator[Observed]:
    """Observe a server while the block runs. client: for the probes of its gRPC health.

    A server that has ended leaves the CPU time and the memory unknown (nan).
    """
    found = Observed()
    before, memory = server.cpu_seconds(), server.rss()
    server.forget_peak()
    probes = [
        asyncio.create_task(_probe(found.health, lambda: client.health(seconds=PROBE_PATIENCE))),
        asyncio.create_task(_probe(found.http, lambda: _status(server))),
    ]
    await asyncio.sleep(5 * PROBE_PAUSE)  # so that the probes have had their first answers
    try:
        yield found
    finally:
        await asyncio.sleep(5 * PROBE_PAUSE)
        for silence, probe in zip((found.health, found.http), probes, strict=True):
            probe.cancel()
            silence.end()
        await asyncio.gather(*probes, return_exceptions=True)
        if server.exit_code is None:
            found.cpu = server.cpu_seconds() - before
            found.peak, found.kept = server.peak_rss() - memory, server.rss() - memory


async def _probe(silence: Silence, ask: Callable[[], Awaitable[str]]) -> None:
    silence.begin()
    while True:
        silence.heard(await ask())
        await asyncio.sleep(PROBE_PAUSE)


async def _status(server: Server) -> str:
    try:
        return str((await server.get("/healthz", PROBE_PATIENCE))[0])
    except OSError as error:
        return type(error).__name__


def may_need(log: str) -> float:
    """Return the megabytes that a server says at its start that it may need; nan if it does not say so."""
    found = MAY_NEED.search(log)
    return float(found[1].replace(",", "")) * 2**20 / 1e6 if found else math.nan


STARTED = "attacking\n"


@asynccontextmanager
async def attacking_process(
    address: str, key: str | None, attacks: Sequence[Attack], cores: Cores, under_way: int = UNDER_WAY
) -> AsyncIterator[Tally]:
    """Attack like HostileCaller.attacking, from another process of low priority.

    The tally is complete after the block.
    """
    command = ["nice", sys.executable, "-m", "tests.reliability.attackers"]
    with on_cores(cores):
        process = subprocess.Popen(ends_with_parent(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # noqa: ASYNC220
    assert process.stdin is not None
    assert process.stdout is not None
    tally = Tally()
    try:
        order = {"address": address, "key": key, "under_way": under_way, "attacks": [_packed(each) for each in attacks]}
        process.stdin.write(json.dumps(order).encode() + b"\n")
        process.stdin.flush()
        if await asyncio.to_thread(process.stdout.readline) != STARTED.encode():
            raise LingonError("the hostile caller ended before it had begun")
        yield tally
        process.stdin.close()
        found = json.loads(await asyncio.to_thread(process.stdout.read))
        tally.sent = found["sent"]
        tally.ended, tally.reasons = Counter(found["ended"]), Counter(found["reasons"])
    finally:
        process.kill()
        process.wait()
        with suppress(BrokenPipeError):  # messages that it did not read
            process.stdin.close()
        process.stdout.close()


def _packed(attack: Attack) -> dict[str, str]:
    return {**asdict(attack), "body": base64.b64encode(attack.body).decode()}


async def _attack(order: dict[str, object]) -> None:
    packed = order["attacks"]
    assert isinstance(packed, list)
    attacks = [Attack(each["name"], each["method"], base64.b64decode(each["body"])) for each in packed]
    key = order["key"]
    caller = HostileCaller(str(order["address"]), None if key is None else str(key))
    async with caller.attacking(attacks, int(str(order["under_way"]))) as tally:
        sys.stdout.write(STARTED)
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.read)
        counted = {"sent": tally.sent, "ended": dict(tally.ended), "reasons": dict(tally.reasons)}
    await caller.close()
    sys.stdout.write(json.dumps(counted))
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(_attack(json.loads(sys.stdin.readline())))
