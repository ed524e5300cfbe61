"""Hypothesis strategies for request bytes: valid requests of every shape, damaged ones, and random bytes."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from types import FunctionType
from typing import Any

import grpc
from hypothesis import strategies as st

from lingon.translation.v1 import translation_pb2 as pb
from tests.support import echo_engine
from tests.support.processes import CONTRACT, RESPONSE_SECONDS, SERVICE

METHODS = ["Translate", "TranslateStream", "Score", "ListModels", "Nothing"]
TEXTS = st.one_of(
    st.text(max_size=40),
    st.text(alphabet="\0\t \u00ad\u200b\u200d\u202e\u2581\u0301\u0323e<s>/x0.!?😀漢\U0010ffff", max_size=60),
    st.sampled_from(["Tom lives in Boston.", "", "<s>", "</s><pad><unk>", "<0xF0>", "\u2581", "a" * 3000]),
)
NUMBERS = st.one_of(st.integers(0, 9), st.sampled_from([2**31, 2**32 - 1]))
FLOATS = st.floats(width=32)


def options() -> st.SearchStrategy[pb.DecodingOptions]:
    sampling = st.builds(pb.SamplingOptions, temperature=FLOATS, top_k=NUMBERS, top_p=FLOATS, seed=NUMBERS)
    bare = st.fixed_dictionaries(
        {},
        optional={
            "beam_size": NUMBERS,
            "num_hypotheses": NUMBERS,
            "length_penalty": FLOATS,
            "max_output_tokens": NUMBERS,
            "sampling": sampling,
            "return_tokens": st.booleans(),
            "return_alignment": st.booleans(),
            "long_text": st.integers(0, 3),
            "shortlist": st.booleans(),
            "min_output_tokens": NUMBERS,
            "no_repeat_ngram_size": NUMBERS,
            "repetition_penalty": FLOATS,
            "patience": FLOATS,
            "coverage_penalty": FLOATS,
            "prefix_bias": FLOATS,
            "alternatives": NUMBERS,
            "min_alternative_probability": FLOATS,
            "forbidden_words": st.lists(TEXTS, max_size=3),
            "forced_words": st.lists(TEXTS, max_size=3),
        },
    )
    return bare.map(lambda values: pb.DecodingOptions(**values))


def translations() -> st.SearchStrategy[bytes]:
    return st.builds(
        lambda **values: pb.TranslateRequest(**values).SerializeToString(),
        texts=st.lists(TEXTS, max_size=4),
        model=st.one_of(st.just(""), st.text(max_size=20)),
        source_language_code=st.one_of(st.just(""), st.text(max_size=12)),
        options=options(),
        target_prefixes=st.one_of(st.just([]), st.lists(TEXTS, max_size=4)),
        text=st.one_of(st.none(), st.builds(pb.TextOptions, format=st.integers(0, 5))),
    )


def scores() -> st.SearchStrategy[bytes]:
    pairs = st.lists(st.builds(pb.ScorePair, source=TEXTS, target=TEXTS), max_size=4)
    attention = st.builds(
        pb.AttentionSelection,
        kinds=st.lists(st.integers(0, 4), max_size=3),
        layers=st.lists(NUMBERS, max_size=3),
        heads=st.lists(NUMBERS, max_size=3),
        mean_of_heads=st.booleans(),
        alignment=st.booleans(),
    )
    return st.builds(
        lambda **values: pb.ScoreRequest(**values).SerializeToString(),
        pairs=pairs,
        format=st.integers(0, 5),
        return_alignment=st.booleans(),
        attention=st.one_of(st.none(), attention),
    )


VALID = st.one_of(translations(), scores())


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """Return a valid request with flipped bits, and with removed, doubled or inserted parts."""
    raw = bytearray(draw(VALID))
    for _ in range(draw(st.integers(1, 6))):
        begin = draw(st.integers(0, len(raw)))
        end = min(begin + draw(st.integers(0, 9)), len(raw))
        kind = draw(st.sampled_from(["flip", "cut", "double", "insert", "end"]))
        if kind == "flip" and begin < len(raw):
            raw[begin] ^= 1 << draw(st.integers(0, 7))
        elif kind == "cut":
            del raw[begin:end]
        elif kind == "double":
            raw[begin:begin] = raw[begin:end]
        elif kind == "insert":
            raw[begin:begin] = draw(st.binary(max_size=9))
        else:
            del raw[end:]
    return bytes(raw)


ANY = st.one_of(st.binary(max_size=300), VALID, damaged())


SEEDS = [
    pb.TranslateRequest(texts=["Tom lives in Boston.", ""], options=pb.DecodingOptions(beam_size=2)),
    pb.TranslateRequest(texts=["Tom"], target_prefixes=["Tom"], options=pb.DecodingOptions(return_alignment=True)),
    pb.TranslateRequest(texts=["Tom. " * 40], options=pb.DecodingOptions(long_text=pb.LONG_TEXT_POLICY_SPLIT)),
    pb.ScoreRequest(pairs=[pb.ScorePair(source="Tom", target="Tom")], return_alignment=True),
    pb.ScoreRequest(
        pairs=[pb.ScorePair(source="Tom", target="Tom")],
        attention=pb.AttentionSelection(kinds=[pb.ATTENTION_KIND_CROSS], layers=[1], heads=[0, 3]),
    ),
]


async def answer_to(server: echo_engine.RunningServer, data: bytes) -> grpc.StatusCode:
    """Send an input, and return the status of the answer, which must be documented and arrive in time."""
    code = await _ended(server, data)
    for _ in range(2):  # a busy machine may delay a single answer
        if code == grpc.StatusCode.DEADLINE_EXCEEDED:
            code = await _ended(server, data)
    assert code in CONTRACT, code
    return code


async def _ended(server: echo_engine.RunningServer, data: bytes) -> grpc.StatusCode:
    method, raw = METHODS[data[0] % len(METHODS)] if data else METHODS[0], data[1:]
    channel: Any = server.channel
    try:
        if method.endswith("Stream"):
            async for _ in channel.unary_stream(SERVICE + method)(raw, timeout=RESPONSE_SECONDS):
                pass
        else:
            await channel.unary_unary(SERVICE + method)(raw, timeout=RESPONSE_SECONDS)
    except grpc.aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK


def inputs() -> list[bytes]:
    """Return the seeds of fuzzing: every message with every method."""
    messages = [message.SerializeToString() for message in SEEDS]
    return [bytes([position]) + message for position in range(len(METHODS)) for message in [b"", *messages]]


def main() -> None:
    """Fuzz until interrupted."""
    import atheris

    instrumented = [module for name, module in sys.modules.items() if name.split(".")[0] == "lingon"]
    for module in instrumented:
        _instrument(vars(module), module.__name__, atheris.instrument_func)
    loop = asyncio.new_event_loop()
    running = echo_engine.running(echo_engine.EchoRunner(shortlist=echo_engine.full_shortlist()))
    server = loop.run_until_complete(running.__aenter__())
    for data in inputs():
        loop.run_until_complete(answer_to(server, data))
    atheris.Setup(sys.argv, lambda data: loop.run_until_complete(answer_to(server, data)) and None)
    atheris.Fuzz()


def _instrument(scope: Any, owner: str, instrument: Callable[[Any], Any]) -> None:
    """Instrument the functions of a module and the methods of its classes, so that their coverage is measured."""
    for value in list(scope.values()):
        if getattr(value, "__module__", None) != owner:
            continue
        if isinstance(value, FunctionType):
            instrument(value)
        elif isinstance(value, type):
            _instrument(vars(value), owner, instrument)


if __name__ == "__main__":
    main()
