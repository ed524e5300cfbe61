"""A text of more sentences than a request may have: a client gets the result that it would get as a whole."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

from lingon import AsyncClient, Client, NormalisedText
from lingon.cli.main import main
from lingon.client.protocol.large_texts import joined
from lingon.client.values.results import TextResult, TextWarning
from tests.support.echo_engine import running

WORDS = ["Tom lives in Boston.", "It is raining today.", "She likes the old sea.", "What is it?", "Ja."]
LINE = " ".join(WORDS[number % 5] for number in range(53))
LINES = "".join(f"- {WORDS[number % 5]}\r\n" if number % 7 else "\n" for number in range(60))
CHINESE = "你好。你好吗？很好！" * 15
RUSSIAN = " ".join("Привет всем людям." for _ in range(40))
HTML = "".join(f"<p>Tom <b>has {number}</b> boats.</p>\n" for number in range(40))
TEXTS = {"line": LINE, "lines": LINES, "chinese": CHINESE, "russian": RUSSIAN}
FEW, MANY = {"max_queue_texts": 8}, {"max_queue_texts": 1024}


async def asked(text: str, limits: dict[str, int], kind: str = "sync", **options: Any) -> TextResult:
    async with running(**limits) as server:
        target = f"127.0.0.1:{server.server.port}"
        if kind == "async":
            async with AsyncClient(target) as client:
                return await client.translate(text, **options)
        return await asyncio.to_thread(_ask, target, text, options)


def _ask(target: str, text: str, options: dict[str, Any]) -> TextResult:
    with Client(target) as client:
        return client.translate(text, **options)


@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize("name", TEXTS)
async def test_the_result_is_that_of_the_whole(name: str, kind: str):
    text = TEXTS[name]
    wanted = {"return_alignment": True, "return_sentences": True, "return_tokens": True}
    whole, parts = await asked(text, MANY, kind, **wanted), await asked(text, FEW, kind, **wanted)
    assert parts.text == whole.text == text
    assert parts.sentences == whole.sentences
    assert parts.best.tokens == whole.best.tokens
    assert parts.normalised_text == whole.normalised_text == NormalisedText(text).text
    assert [(link.source, link.target) for link in parts.best.alignment] == [
        (link.source, link.target) for link in whole.best.alignment
    ]
    assert parts.best.score == pytest.approx(whole.best.score)
    assert (parts.source_tokens, parts.target_tokens) == (whole.source_tokens, whole.target_tokens)
    assert parts.confidence == whole.confidence
    assert [_counted(each) for each in parts.warnings] == [_counted(each) for each in whole.warnings]


def _counted(warning: TextWarning) -> tuple[str, str]:
    return warning.code, re.sub(" of [0-9]+ ", " ", warning.message)


@pytest.mark.parametrize("code", ["copy", "unreadable", "retried"])
@pytest.mark.parametrize("counts", [(1, 1, 1), (1, 3), (4, 1, 2), (0, 1, 1), (2, 0, 1), (1, 1, 0, 5)])
def test_a_warning_counts_the_sentences_of_all_parts(code: str, counts: tuple[int, ...]):
    """The server gives no number in a text of one sentence."""
    found = None
    for count in counts:
        message = f"{count} of 6 parts: it is so" if count > 1 else "it is so"
        warnings = (TextWarning(code, message),) if count else ()
        result = TextResult(warnings=warnings)
        found = result if found is None else joined(("A. ", "B."), (found, result))
    assert found is not None
    (warning,) = found.warnings
    assert re.sub(" of [0-9]+ ", " ", warning.message) == f"{sum(counts)} parts: it is so"
    if counts == (1, 1, 1):
        assert warning.message == "3 of 3 parts: it is so"


@pytest.mark.parametrize(
    ("code", "alone", "several", "both"),
    [
        (
            "split",
            "longer than the model reads: translated in 2 parts",
            "1 of 3 sentences are longer than the model reads: translated in 4 parts",
            "2 of 4 sentences are longer than the model reads: translated in 6 parts",
        ),
        (
            "markup_split",
            "the sentence was cut at a string that is kept",
            "2 of 3 sentences were cut at a string that is kept",
            "3 of 4 sentences were cut at a string that is kept",
        ),
        (
            "length",
            "1 of 2 translations hit the bound on their length",
            "2 of 2 translations hit the bound on their length",
            "2 of 2 translations hit the bound on their length",
        ),
    ],
)
def test_warnings_about_sentences_and_translations_are_added_as_they_count(
    code: str, alone: str, several: str, both: str
):
    results = [TextResult(warnings=(TextWarning(code, message),)) for message in (alone, several)]
    assert [each.message for each in joined(("A. ", "B."), results).warnings] == [both]
    assert [each.message for each in joined(("A. ", "B."), results[::-1]).warnings] == [both]


async def test_html_is_cut_between_its_blocks():
    assert (await asked(HTML, FEW, format="html")).text == HTML


async def test_wrapped_text_is_cut_between_its_paragraphs():
    text = "\n\n".join(["Tom lives\nin Boston. It is\nraining."] * 20)
    result = await asked(text, FEW, split_sentences="nonewlines", return_sentences=True)
    assert result.text == (await asked(text, MANY, split_sentences="nonewlines")).text
    assert [text[slice(*each.source)] for each in result.sentences[:2]] == ["Tom lives\nin Boston.", "It is\nraining."]


async def test_the_prefix_belongs_to_the_first_part():
    result = await asked(LINE, FEW, target_prefix="Tom")
    assert result.text == (await asked(LINE, MANY, target_prefix="Tom")).text
    assert result.text.startswith("Tom")


async def test_a_text_that_is_read_as_one_sentence_is_not_cut():
    async with running(**FEW) as server:
        target = f"127.0.0.1:{server.server.port}"

        def ask() -> list[TextResult]:
            with Client(target) as client:
                return client.translate(
                    [LINE, "Tom"], split_sentences="nonewlines", forced_words=["Tom"], long_text="split"
                )

        results = await asyncio.to_thread(ask)
    assert results[0].error is not None
    assert (results[0].error.reason, results[1].text) == ("REQUEST_TOO_LARGE", "Tom")


async def test_a_text_that_has_no_place_to_be_cut_is_refused_with_the_bound():
    async with running(max_queue_tokens=64) as server:
        target = f"127.0.0.1:{server.server.port}"

        def ask() -> list[TextResult]:
            with Client(target) as client:
                return client.translate(["Tom " * 200, "Tom"], long_text="split")

        results = await asyncio.to_thread(ask)
    assert "a request may have 64 at most" in str(results[0].error)
    assert results[1].text == "Tom"


@pytest.mark.parametrize("flags", [(), ("--json",)])
async def test_the_command_line_translates_a_long_line(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes], flags: tuple[str, ...]
):
    path = tmp_path / "in.txt"
    path.write_text(f"Tom.\n{LINE}\n\nJa.\n")
    async with running(**FEW) as server:
        arguments = ["translate", "--server", f"127.0.0.1:{server.server.port}", "--input", str(path), *flags]
        status = await asyncio.to_thread(main, arguments)
    lines = capsysbinary.readouterr().out.decode().splitlines()
    assert not status
    if flags:
        lines = [json.loads(line)["text"] for line in lines]
    assert lines == ["Tom.", LINE, "", "Ja."]
