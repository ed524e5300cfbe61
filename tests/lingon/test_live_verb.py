"""`lingon live`: what it reads, what it writes, and the real command against a scripted server."""

from __future__ import annotations

import json
import subprocess
import sys
from io import StringIO
from itertools import pairwise
from pathlib import Path
from typing import Any

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingon import LiveUpdate, LiveWord
from lingon.cli.live_captions import LINE, Captions, SaidWords, TextWriter, VttWriter
from lingon.cli.live_words import MOST_CHARACTERS, Paused, Said, steps_of, timed_words
from lingon.client.live import split_words
from lingon.errors import LingonError
from lingon.serving.live import sources
from lingon.translation.v1 import translation_pb2 as pb
from tests.support.scripted_server import Command, FakeService, ScriptedFault

VTT = """WEBVTT

NOTE this is no word

one
00:00:00.000 --> 00:00:02.000 line:0
<v Tom>I would</v> like <00:00:01.000>a cup &amp; tea.

01:03.000 --> 01:04.000
Where is
Tom?
"""


def read(text: str, language: str = "en") -> list[Any]:
    return list(steps_of(text.splitlines(keepends=True), None, language))


def test_the_words_of_cues_have_the_times_of_their_characters():
    first, second = read(VTT)
    assert [each.text for each in first.words] == ["I", "would", "like", "a", "cup", "&", "tea."]
    assert (first.words[0].begin_ms, first.words[2].end_ms, first.words[3].begin_ms) == (0, 1000, 1000)
    assert [each.text for each in second.words] == ["Where", "is", "Tom?"]
    assert (second.words[0].begin_ms, second.words[-1].end_ms) == (63_000, 64_000)


def test_lines_of_json_are_words_revisions_and_pauses():
    lines = [
        {"text": "I would", "begin_ms": 100, "end_ms": 700},
        {"from": 1, "words": [{"text": "should"}]},
        {"pause": True},
        {"from": 1},
    ]
    assert read("\n".join(map(json.dumps, lines))) == [
        Said((LiveWord("I", 100, 200), LiveWord("would", 200, 700))),
        Said((LiveWord("should"),), 1),
        Paused(),
        Said((), 1),
    ]


def test_a_cue_is_read_when_the_blank_line_after_it_is_there():
    lines = iter(["WEBVTT\n", "\n", "00:00.000 --> 00:01.000\n", "one\n", "\n"])
    assert next(steps_of(lines, None, "en")).words[0].text == "one"
    assert list(lines) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"text": "a"}\n{"text"', "line 2 is no JSON"),
        ('{"text": 3}', "line 1: text must be a string, got 3"),
        ('{"word": "a"}', "line 1: an object has fields of begin_ms, end_ms, from, pause, text, words"),
        ('{"text": "a", "begin_ms": -1}', "line 1: begin_ms must be a whole number below 2.32, got -1"),
        ('{"words": "a"}', "line 1: words must be a list of objects"),
        ('{"begin_ms": 3}', "line 1: an object must have either text or words, got {.begin_ms.: 3}"),
        ('{"text": "a", "words": [{"text": "b"}]}', "line 1: an object must have either text or words"),
        ('{"words": [{"text": "b"}], "begin_ms": 0}', "line 1: an object must have either text or words"),
        ('{"text": "a", "begin_ms": 3}', "line 1: begin_ms and end_ms must be given together"),
        ('{"text": "a", "pause": true}', "line 1: a pause is {.pause.: true} alone, got {.text.: .a., .pause.: true}"),
        ('{"pause": false}', "line 1: a pause is {.pause.: true} alone"),
        ("WEBVTT\n\n0:1 --> 0:2\nx", "line 3: a cue begins with 00:00:00.000 --> 00:00:02.000, got '0:1 --> 0:2'"),
    ],
)
def test_a_wrong_line_is_named(text: str, message: str):
    with pytest.raises(LingonError, match=message):
        read(text)


ODD_VTT = """WEBVTT - a title
Kind: captions

STYLE
::cue { color: red }

REGION
id:fred
width:40%

NOTE a note
of two lines

1
00:00.000 --> 00:02.000 region:fred align:left
<v Fred>I would <i>like</i>
a cup.</v>


2
00:01.000 --> 00:03.000
Tom is"""


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_styles_regions_notes_and_settings_are_no_words_and_an_end_inside_a_cue_ends_it(end: str):
    found = read("\ufeff" + ODD_VTT.replace("\n", end))
    assert [[word.text for word in each.words] for each in found] == [
        ["I", "would", "like", "a", "cup."],
        ["Tom", "is"],
    ]
    assert [each.words[-1].end_ms for each in found] == [2000, 3000]


ROLLING = """WEBVTT

00:00:00.000 --> 00:00:01.500 align:start position:0%
 \nso<00:00:00.500><c> good</c><00:00:01.000><c> morning</c>

00:00:01.500 --> 00:00:01.510 align:start position:0%
so good morning
 \n
00:00:01.510 --> 00:00:03.000 align:start position:0%
so good morning
to<00:00:02.000><c> all</c>

00:00:04.000 --> 00:00:05.000
to all
of you
"""


def test_a_line_that_rolls_up_is_read_once():
    assert [[word.text for word in each.words] for each in read(ROLLING)] == [
        ["so", "good", "morning"],
        ["to", "all"],
        ["to", "all", "of", "you"],  # a second later it is said again
    ]


def test_times_end_the_cue_before_them_without_a_blank_line():
    found = read("WEBVTT\n00:00.000 --> 00:01.000\none\n00:01.000 --> 00:02.000\ntwo\n")
    assert [each.words[0].text for each in found] == ["one", "two"]


def test_subrip_is_read_as_captions_and_a_number_alone_is_text():
    (said,) = read("\n1\n00:00:01,500 --> 00:00:02,000\nI am here.\n")
    assert [each.text for each in said.words] == ["I", "am", "here."]
    assert (said.words[0].begin_ms, said.words[-1].end_ms) == (1500, 2000)
    assert read("1984\nis a book.\n") == [Said((LiveWord("1984"),)), Said(timed_words(["is", "a", "book."], None))]
    assert read("7") == [Said((LiveWord("7"),))]


def test_a_word_that_a_server_refuses_as_too_long_becomes_several():
    (said,) = read(f"see https://{'x' * 120} now")
    assert [len(each.text) for each in said.words] == [3, MOST_CHARACTERS, MOST_CHARACTERS, 3]
    assert MOST_CHARACTERS == sources.MOST_CHARACTERS


def test_characters_are_words_in_languages_without_blanks():
    assert split_words("我想喝 iPhone 茶", "zh") == ["我", "想", "喝", "iPhone", "茶"]
    assert split_words("我想喝", "en") == ["我想喝"]


@given(st.lists(st.text("abc", min_size=1, max_size=9), min_size=1), st.integers(0, 10**6), st.integers(0, 10**6))
def test_the_times_of_words_fill_their_span(words: list[str], begin: int, length: int):
    found = timed_words(words, (begin, begin + length))
    assert (found[0].begin_ms, found[-1].end_ms) == (begin, begin + length)
    assert all(one.end_ms == other.begin_ms for one, other in pairwise(found))


def update(
    agreed: str, words: int, *, first: int = 0, complete: bool = False, covered: int | None = None
) -> LiveUpdate:
    return LiveUpdate(agreed, "", 0, complete, words, first, words if covered is None else covered)


def said(count: int) -> SaidWords:
    words = SaidWords(lambda: 0)
    words.add([LiveWord(f"w{place}", 100 * place, 100 * place + 90) for place in range(count)], None)
    return words


def test_a_caption_ends_with_the_sentence_or_when_it_fills_a_line():
    captions = Captions(said(6), " ")
    assert captions.read(update("x" * (LINE - 1), 3)) is None
    first = captions.read(update(" yy", 4, covered=3))
    last = captions.read(update(" end.", 6, complete=True))
    assert first is not None
    assert last is not None
    assert (first.source, first.target, first.begin_ms, first.end_ms) == ("w0 w1 w2", "x" * (LINE - 1) + " yy", 0, 290)
    assert (last.source, last.target, last.begin_ms, last.end_ms) == ("w3 w4 w5", "end.", 300, 590)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 60), st.booleans()), max_size=30))
def test_captions_have_all_agreed_text_and_all_words_in_order(steps: list[tuple[int, int, bool]]):
    total = sum(more for more, _, _ in steps)
    captions, found, words, agreed = Captions(said(total), " "), [], 0, ""
    for number, (more, length, complete) in enumerate(steps):
        words += more
        text = f" {number}" + "x" * length
        agreed += text
        found.append(captions.read(update(text, words, complete=complete or number == len(steps) - 1)))
    kept = [each for each in found if each is not None]
    assert " ".join(each.target for each in kept) == agreed.strip()
    assert [word for each in kept for word in each.source.split()] == [f"w{place}" for place in range(total)]
    assert all(one.end_ms <= other.begin_ms for one, other in pairwise(kept))
    assert all(each.begin_ms < each.end_ms for each in kept)


def test_words_without_times_have_the_time_of_their_arrival():
    now = iter([1200, 3400])
    words = SaidWords(lambda: next(now))
    words.add([LiveWord("one")], None)
    words.add([LiveWord("two"), LiveWord("three", 4000, 4100)], None)
    assert (words.span(0, 1), words.span(1, 3)) == ((1200, 1200), (3400, 4100))


def test_text_has_a_line_for_each_sentence():
    stream = StringIO()
    writer = TextWriter(stream)
    for each in (update("One", 1), update(" two.", 2, complete=True), update(" Three", 3)):
        writer.write(each)
    writer.close()
    assert stream.getvalue() == "One two.\nThree\n"


def test_captions_escape_what_webvtt_reads_as_marks():
    stream = StringIO()
    words = SaidWords(lambda: 0)
    words.add([LiveWord("a-->b", 0, 3_723_004)], None)
    VttWriter(stream, Captions(words, " ")).write(update("<i>", 1, complete=True))
    assert stream.getvalue() == "WEBVTT\n\n00:00:00.000 --> 01:02:03.004\na--&gt;b\n&lt;i&gt;\n\n"


@pytest.fixture
def command(lingon: Command) -> Command:
    """`lingon live` against the scripted service."""
    return lingon


def test_captions_become_captions_of_both_languages(command: Command):
    code, printed, errors = command("live", "--source", "en", "--target", "de", text=VTT)
    assert (code, errors) == (0, [])
    assert printed == (
        "WEBVTT\n\n"
        "00:00:00.000 --> 00:00:02.000\nI would like a cup &amp; tea.\nI WOULD LIKE A CUP &amp; TEA.\n\n"
        "00:01:03.000 --> 00:01:04.000\nWhere is Tom?\nWHERE IS TOM?\n\n"
    )


def test_a_long_time_between_words_is_a_pause(command: Command, service: FakeService):
    command("live", "--pause-ms", 60_000, text=VTT)
    kinds = [each.WhichOneof("message") for each in service.requests]
    assert kinds == ["start", "words", "pause", "words", "end"]


def test_each_update_is_a_line_of_json(command: Command):
    code, printed, _ = command("live", "--write", "json", text="one two\nthree.\n")
    updates = [LiveUpdate(**json.loads(line)) for line in printed.splitlines()]
    assert (code, "".join(each.agreed for each in updates)) == (0, "ONE TWO THREE.")
    assert updates[0].tentative == " TWO"


def test_a_caption_is_written_before_the_next_words_are_there(command: Command):
    with command.start("live", "--write", "text") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for number in range(3):
            process.stdin.write(b"word%d.\n" % number)
            process.stdin.flush()
            assert process.stdout.readline() == b"WORD%d.\n" % number
        process.stdin.close()
        assert process.wait(timeout=60) == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"text": "one"}\n{"text"\n', "lingon: error: line 2 is no JSON"),
        (b"\xff\n", "lingon: error: line 1 of standard input is not UTF-8"),
        ('{"from": 7, "text": "one"}', "lingon: error: from must be 0 to 0, the number of words so far, got 7"),
    ],
)
def test_a_wrong_input_is_an_error_after_the_words_before_it(command: Command, text: Any, message: str):
    code, _, errors = command("live", text=text)
    assert code == 1
    assert errors[-1].startswith(message)


SRT = "1\n00:00:00,000 --> 00:00:02,000\nI would like a cup\n\n2\n00:00:02,000 --> 00:00:04,000\nof tea.\n"
JSON = (
    '{"text": "I would like a cup", "begin_ms": 0, "end_ms": 2000}\n'
    '{"text": "of tea.", "begin_ms": 2000, "end_ms": 4000}\n'
)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("talk.vtt", f"WEBVTT\n\n{SRT.replace(',', '.')}"),
        ("talk.SRT", SRT),
        ("talk.srt", SRT.replace("\n", "\r\n")),
        ("talk.jsonl", f"\ufeff{JSON}"),
        ("talk", JSON),
    ],
)
def test_a_file_becomes_captions_of_both_languages(command: Command, tmp_path: Path, name: str, content: str):
    file = tmp_path / name
    file.write_bytes(content.encode())
    code, printed, errors = command("live", file)
    assert (code, errors) == (0, [])
    assert printed == (
        "WEBVTT\n\n00:00:00.000 --> 00:00:04.000\nI would like a cup of tea.\nI WOULD LIKE A CUP OF TEA.\n\n"
    )


@pytest.mark.parametrize(
    ("name", "content", "code", "message"),
    [
        ("none.vtt", None, 2, "No such file or directory"),
        ("", None, 2, "Is a directory"),
        ("a.srt", b"", 1, "the file has no captions"),
        ("a.vtt", b"WEBVTT\n\nno times\n", 1, "the file has no captions"),
        ("a.txt", b" \n", 1, "the file has no words"),
        ("a.srt", b"1\n00:00:00,000 -> 00:00:01,000\nTom\n", 1, "the file has no captions"),
        ("a.srt", b"1\n0 --> 1\nTom\n", 1, "line 2: a cue begins with 00:00:00.000 --> 00:00:02.000, got '0 --> 1'"),
        ("a.json", b'{"text": "Tom"}\n[\n', 1, "line 2 is no JSON: Expecting value: line 2 column 1 (char 2)"),
        ("a.vtt", b"WEBVTT\n\n\xff\n", 1, "line 3 is not UTF-8"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_line_that_names_it(
    command: Command, tmp_path: Path, name: str, content: bytes | None, code: int, message: str
):
    file = tmp_path / name
    if content is not None:
        file.write_bytes(content)
    found, _, errors = command("live", file)
    assert (found, errors) == (code, [f"lingon: error: {file}: {message}"])


def test_a_standard_input_that_is_closed_is_one_line(command: Command):
    run = ["sh", "-c", '"$0" -m lingon live --write text <&-', sys.executable]
    done = subprocess.run(run, env=command.environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (
        1,
        "lingon: error: standard input is closed; give it captions or words, or name a file\n",
    )


def test_terms_and_strings_that_are_kept_choose_the_policy_and_a_sentence_without_one_is_named(
    command: Command, service: FakeService, tmp_path: Path
):
    file = tmp_path / "terms.tsv"
    file.write_text("cup\tTasse\n")
    options = ["live", "--source", "en", "--target", "de", "--terms", file, "--keep", "Tom", "--glossary", "shop"]
    code, printed, errors = command(*options, "--write", "text", text="Tom is here. The cup is red. Where is tom?")
    assert (code, printed) == (0, "TOM IS HERE.\nTHE CUP IS RED.\nWHERE IS TOM?\n")
    assert errors == [
        "lingon: sentence 1: warning: the translation lacks 'Tom' for 'Tom'",
        "lingon: sentence 2: warning: the translation lacks 'Tasse' for 'cup'",
    ]
    start = service.requests[0].start
    assert (start.policy, list(start.glossaries)) == (pb.LIVE_POLICY_SENTENCES, ["shop"])
    assert [(each.source, each.target) for each in start.terms] == [("Tom", "Tom"), ("cup", "Tasse")]


@pytest.mark.parametrize("given", [("--keep", "Tom"), ("--glossary", "shop")])
def test_terms_with_a_policy_that_agrees_inside_a_sentence_are_refused(command: Command, given: tuple[str, str]):
    code, _, errors = command("live", *given, "--policy", "wait_k", text="Tom")
    assert code == 2
    assert errors == [
        f"lingon: error: {given[0]} needs --policy sentences, got wait_k: a term may change a whole sentence"
    ]


def test_an_error_of_the_server_is_one_line(command: Command, service: FakeService):
    service.faults = [ScriptedFault(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many speakers", after_events=1)]
    code, _, errors = command("live", text="one two\n")
    assert (code, errors) == (1, ["lingon: error: too many speakers"])


def test_a_reader_that_closes_ends_the_command(command: Command):
    process = command.start("live", "--write", "text")
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdout.close()
    process.stdin.write(b"one.\n")
    process.stdin.flush()
    assert process.wait(timeout=60) == 1  # although the input goes on
    process.stdin.close()
    subprocess.Popen.__exit__(process, None, None, None)
