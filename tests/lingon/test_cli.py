"""`lingon translate`, `score` and `healthcheck`: the real command in a process of its own, over a real socket."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import grpc
import pytest

from lingon.translation.v1 import translation_pb2 as pb
from tests.support.ports import free_port
from tests.support.scripted_server import Command, FakeService, ScriptedFault, queue_full, serving
from tests.support.timing import eventually_blocking


def test_standard_input_is_translated_line_by_line_and_an_empty_line_stays_one(lingon: Command) -> None:
    assert lingon("translate", text="one\n\ntwo ä\r\n  \n\u200b\nlast") == (0, "ONE\n\nTWO Ä\n\n\nLAST\n", [])


def test_the_order_of_many_lines_is_kept(lingon: Command, service: FakeService) -> None:
    lines = [f"line {number}" if number % 7 else "" for number in range(1000)]
    code, printed, errors = lingon("translate", "--batch-size", 9, text="".join(f"{line}\n" for line in lines))
    assert (code, errors) == (0, [])
    assert printed.split("\n")[:-1] == [line.upper() for line in lines]
    assert max(len(request.texts) for request in service.requests) <= 9


def test_arguments_are_translated(lingon: Command, service: FakeService) -> None:
    options = ["--beam-size", 4, "--length-penalty", 0.5, "--target-prefix", "Ja ", "--split-long", "--source", "en"]
    assert lingon("translate", "one", "two", *options) == (0, "Ja ONE\nJa TWO\n", [])
    asked = service.requests[0]
    assert (asked.options.beam_size, asked.options.length_penalty, asked.source_language_code) == (4, 0.5, "en")


def test_restrictions_reach_the_server(lingon: Command, service: FakeService) -> None:
    numbers = ["--min-output-tokens", 3, "--no-repeat-ngram-size", 2, "--repetition-penalty", 1.5]
    assert lingon("translate", "one", *numbers, "--forbid", "a b", "--forbid", "c", "--force", "d")[0] == 0
    (asked,) = service.requests
    assert asked.options == pb.DecodingOptions(
        min_output_tokens=3,
        no_repeat_ngram_size=2,
        repetition_penalty=1.5,
        forbidden_words=["a b", "c"],
        forced_words=["d"],
        long_text=pb.LONG_TEXT_POLICY_SPLIT,
    )


def test_options_of_the_search_reach_the_server(lingon: Command, service: FakeService) -> None:
    flags = ["--patience", 2, "--coverage-penalty", 0.5, "--prefix-bias", 0.25, "--min-alternative-probability", 0.125]
    assert lingon("translate", "one", *flags, "--alternatives", 2) == (0, "0 ||| ONE ||| -0.5000\n", [])
    (asked,) = service.requests
    assert asked.options == pb.DecodingOptions(
        patience=2,
        coverage_penalty=0.5,
        prefix_bias=0.25,
        alternatives=2,
        min_alternative_probability=0.125,
        long_text=pb.LONG_TEXT_POLICY_SPLIT,
    )


@pytest.mark.parametrize(
    ("flags", "split"),
    [
        ([], pb.SENTENCE_SPLITTING_UNSPECIFIED),
        (["--no-split-sentences"], pb.SENTENCE_SPLITTING_OFF),
        (["--wrapped"], pb.SENTENCE_SPLITTING_NONEWLINES),
        (["--wrapped", "--no-split-sentences"], pb.SENTENCE_SPLITTING_OFF),
        (["--wrapped", "--force", "a"], pb.SENTENCE_SPLITTING_UNSPECIFIED),
    ],
)
def test_flags_say_where_texts_are_split(flags: list[str], split: int, lingon: Command, service: FakeService) -> None:
    assert lingon("translate", "one", *flags)[0] == 0
    (asked,) = service.requests
    assert asked.text.split_sentences == split


def test_the_lines_of_a_paragraph_of_wrapped_text_are_one_text(lingon: Command, service: FakeService) -> None:
    code, printed, _ = lingon("translate", "--wrapped", text="one\ntwo.\n\n \nthree\nbad\n\nfour")
    assert (code, printed) == (1, "ONE TWO.\n\n\n\n\nFOUR\n")
    assert [text for request in service.requests for text in request.texts] == ["one\ntwo.", "three\nbad", "four"]


def test_a_file_with_markup_is_one_text_and_printed_as_it_comes(lingon: Command, service: FakeService) -> None:
    page = "<p>one\ntwo</p>\n\n<p>three</p>\r\n"
    code, printed, _ = lingon("translate", "--format", "html", "--ignore-tag", "code", "--attribute", "alt", text=page)
    assert (code, printed) == (0, page.upper())
    (asked,) = service.requests
    assert asked.text == pb.TextOptions(format=pb.TEXT_FORMAT_HTML, ignore_tags=["code"], translate_attributes=["alt"])
    assert list(asked.texts) == [page.removesuffix("\n")]


def test_lines_in_pieces_are_texts_of_their_own(lingon: Command, service: FakeService) -> None:
    assert lingon("translate", "--format", "pieces", "--scores", text="▁a b\n\n▁c\n") == (
        0,
        "▁A B\t-0.5000\n\n▁C\t-0.5000\n",
        [],
    )
    (asked,) = service.requests
    assert asked.text == pb.TextOptions(format=pb.TEXT_FORMAT_PIECES)
    assert list(asked.texts) == ["▁a b", "▁c"]


def test_pairs_in_pieces_are_scored_as_such(lingon: Command, service: FakeService) -> None:
    assert lingon("score", "--pieces", text="▁a b\t▁c\n")[0] == 0
    (asked,) = service.requests
    assert asked.format == pb.TEXT_FORMAT_PIECES


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        ("page.html", (), pb.TEXT_FORMAT_HTML),
        ("PAGE.HTM", (), pb.TEXT_FORMAT_HTML),
        ("page.html.gz", (), pb.TEXT_FORMAT_HTML),
        ("page.html", ("--format", "xml"), pb.TEXT_FORMAT_XML),
        ("page.html", ("--format", "plain"), pb.TEXT_FORMAT_PLAIN),
        ("html.txt", (), pb.TEXT_FORMAT_PLAIN),
    ],
)
def test_a_page_is_read_as_html_unless_the_format_is_given(
    name: str, given: tuple[str, ...], expected: int, lingon: Command, service: FakeService, tmp_path: Path
) -> None:
    content = b"<p>one\ntwo</p>\n"
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    assert lingon("translate", "--input", str(tmp_path / name), *given)[:2] == (0, "<P>ONE\nTWO</P>\n")
    assert {request.text.format or pb.TEXT_FORMAT_PLAIN for request in service.requests} == {expected}


def test_what_is_wrong_with_a_file_with_markup_names_it_as_a_document(lingon: Command) -> None:
    code, printed, errors = lingon("translate", "--format", "xml", text="bad\n")
    assert (code, printed, errors[0]) == (1, "\n", "lingon: document 1: too many tokens")


@pytest.mark.parametrize("flag", [("--scores",), ("--n-best", "2"), ("--alternatives", "2")])
def test_a_document_has_no_columns(flag: tuple[str, ...], lingon: Command, service: FakeService) -> None:
    code, _, errors = lingon("translate", "--format", "html", *flag, "a")
    assert (code, service.requests) == (2, [])
    assert errors == [
        "lingon: error: --format html and xml print documents; add --json for --scores, --tokens, --alignment, "
        "--num-hypotheses and --alternatives"
    ]


def test_a_line_that_fails_gives_an_empty_line_and_an_error_with_its_number(lingon: Command) -> None:
    code, printed, errors = lingon("translate", text="one\nbad\nlong\n")
    assert (code, printed) == (1, "ONE\n\nLONG\n")
    assert errors[0] == "lingon: line 2: too many tokens"


@pytest.mark.parametrize("where", [(), ("--model", "models/en-de")], ids=["server", "in process"])
def test_long_lines_are_split_and_named_in_one_warning(where: tuple[str, ...], lingon: Command) -> None:
    text = "one\nlong\nthree\nlong\nlong\n"
    code, printed, errors = lingon("translate", *where, text=text)
    assert (code, printed) == (0, text.upper())
    told = "longer than the model reads and were translated in parts"
    assert [line for line in errors if "warning" in line] == [f"lingon: warning: lines 2, 4 and 5 were {told}"]
    assert lingon("translate", *where, "--split-long", text=text)[:2] == (0, text.upper())
    errors = lingon("translate", *where, text="long\n" * 12)[2]
    numbers = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10"
    assert f"lingon: warning: lines {numbers} and 2 more were {told}" in errors
    errors = lingon("translate", *where, "long")[2]
    assert f"lingon: warning: line 1 was {told.replace('were', 'was')}" in errors


@pytest.mark.parametrize("where", [(), ("--model", "models/en-de")], ids=["server", "in process"])
def test_no_split_long_refuses_a_long_line_with_exit_code_1(where: tuple[str, ...], lingon: Command) -> None:
    code, printed, errors = lingon("translate", *where, "--no-split-long", text="one\nlong\n")
    assert (code, printed) == (1, "ONE\n\n")
    told = "lingon: line 2: has 9 tokens, the model reads 5 at most; shorten it or leave out --no-split-long"
    assert told in errors
    assert not any("warning" in line for line in errors)


def test_a_missing_server_is_one_line(lingon: Command) -> None:
    code, printed, errors = lingon("translate", "--server", "127.0.0.1:1", "--timeout", 1, "hello")
    assert (code, printed, len(errors)) == (1, "", 1)
    assert "no answer from 127.0.0.1:1" in errors[0]


def test_a_request_that_is_refused_ends_the_run_after_the_lines_before_it(
    lingon: Command, service: FakeService
) -> None:
    with lingon.start("translate") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(b"one\n\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"ONE\n"
        service.faults = [ScriptedFault(grpc.StatusCode.NOT_FOUND, "no such model")]
        process.stdin.write(b"three\n")
        process.stdin.close()
        assert process.stderr.read() == b"lingon: error: line 3 and after: no such model\n"
    assert process.returncode == 1


def test_a_full_queue_is_waited_for(lingon: Command, service: FakeService) -> None:
    service.faults = [queue_full(0.05) for _ in range(5)]
    assert lingon("translate", text="one\ntwo\n") == (0, "ONE\nTWO\n", [])


def test_a_restarting_server_is_waited_for(lingon: Command) -> None:
    port = free_port()
    with serving(FakeService(), port) as address:
        process = lingon.start("translate", "--server", address)
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"one\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"ONE\n"
    process.stdin.write(b"two\n")
    process.stdin.flush()
    time.sleep(1.5)
    assert process.poll() is None
    with serving(FakeService(), port), process:
        assert process.communicate(timeout=20)[0] == b"TWO\n"
    assert process.returncode == 0


def test_json_has_one_object_a_line(lingon: Command) -> None:
    code, printed, _ = lingon("translate", "--json", "--tokens", "--alignment", text="a cow\n\nbad\n")
    good, blank, bad = map(json.loads, printed.splitlines())
    assert code == 1
    assert (good["line"], good["source"], good["text"], good["model"]) == (1, "a cow", "A COW", "en-de")
    assert good["translations"][0]["tokens"][1] == {"piece": "▁COW", "log_prob": -0.25}
    assert good["translations"][0]["alignment"][1] == {"source": [1, 5], "target": [1, 5], "weight": 0.5}
    assert (blank["line"], blank["text"], blank["translations"]) == (2, "", [])
    assert bad["error"] == {"status": "INVALID_ARGUMENT", "reason": "TEXT_TOO_LONG", "message": "too many tokens"}


def test_the_terms_of_a_file_and_the_names_of_glossaries_reach_the_server(
    lingon: Command, service: FakeService, tmp_path: Path
) -> None:
    path = tmp_path / "terms.csv"
    path.write_text("en,de\ndog,DOG\nhot,heiss\n", encoding="utf-8")
    options = ["--terms", path, "--glossary", "shop", "--glossary", "law"]
    code, printed, errors = lingon("translate", *options, text="a dog\na hot dog\n")
    warning = "lingon: line 2: warning: 1 of 2 terms are missed: hot"
    assert (code, printed, errors) == (0, "A DOG\nA HOT DOG\n", [warning])
    (asked,) = service.requests
    assert [(each.source, each.target) for each in asked.terms] == [("dog", "DOG"), ("hot", "heiss")]
    assert list(asked.glossaries) == ["shop", "law"]


def test_json_has_what_became_of_terms(lingon: Command, tmp_path: Path) -> None:
    (tmp_path / "terms.tsv").write_text("dog\tDOG\n", encoding="utf-8")
    code, printed, _ = lingon("translate", "--json", "--terms", tmp_path / "terms.tsv", "a dog")
    outcome = {
        "source": "dog",
        "target": "DOG",
        "glossary": "",
        "source_span": [2, 5],
        "target_span": [2, 5],
        "means": "free",
    }
    assert (code, json.loads(printed)["terms"], json.loads(printed)["matches"]) == (0, [outcome], [])


def test_a_bad_file_of_terms_is_named_with_the_entry_and_nothing_is_sent(
    lingon: Command, service: FakeService, tmp_path: Path
) -> None:
    path = tmp_path / "terms.tsv"
    path.write_text("dog\tHund\ncat\n", encoding="utf-8")
    message = f'lingon: error: {path}: entry 2: "cat" has 1 column; it must have 2, a source and a target'
    assert lingon("translate", "--terms", path, "a dog") == (1, "", [message])
    assert service.requests == []


def test_scores_tokens_and_word_alignment_are_columns(lingon: Command) -> None:
    columns = "OLD COW\t-0.5000\t▁OLD ▁COW\t0-0 1-1\n"
    assert lingon("translate", "--scores", "--tokens", "--alignment", "old cow") == (0, columns, [])


def test_an_n_best_list_is_written_as_moses_writes_it(lingon: Command) -> None:
    code, printed, _ = lingon("translate", "--n-best", 2, "--beam-size", 2, text="one\n\ntwo\n")
    expected = ["0 ||| ONE ||| -0.5000", "0 ||| ONE ||| -1.5000", "1 |||  ||| 0"]
    assert (code, printed.splitlines()) == (0, [*expected, "2 ||| TWO ||| -0.5000", "2 ||| TWO ||| -1.5000"])


def test_a_line_that_is_not_utf8_is_named_after_the_lines_before_it(lingon: Command) -> None:
    code, printed, errors = lingon("translate", text=b"one\ntwo\nthr\xe4e\nfour\n")
    assert (code, printed) == (1, "ONE\nTWO\n")
    assert errors == ["lingon: error: standard input:3: not UTF-8 (invalid continuation byte at byte 3 of the line)"]


def test_lines_with_nul_characters_are_named(lingon: Command) -> None:
    """Text in UTF-16 is valid UTF-8 with such characters."""
    told = "NUL characters, which were left out; the input must be UTF-8, not UTF-16"
    code, _, errors = lingon("translate", text="a".encode("utf-16-le") + b"\nplain\nb\0\n")
    assert (code, errors) == (0, [f"lingon: warning: lines 1 and 3 have {told}"])
    assert lingon("score", text="a\tb\0\n")[2] == [f"lingon: warning: line 1 has {told}"]


def test_an_answer_comes_before_the_next_line_is_typed(lingon: Command) -> None:
    with lingon.start("translate") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for text in (b"one\n", b"two\n"):
            process.stdin.write(text)
            process.stdin.flush()
            assert process.stdout.readline() == text.upper()
        process.stdin.close()
    assert process.returncode == 0


@pytest.mark.parametrize(("verb", "line"), [("translate", b"one\n"), ("score", b"a\tb\n")])
def test_ending_while_standard_input_is_open_prints_no_traceback(verb: str, line: bytes, lingon: Command) -> None:
    with lingon.start(verb) as process:  # its standard input stays open
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(line)
        process.stdin.flush()
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert (process.wait(20), process.stderr.read()) == (130, b"")
    with lingon.start(verb, "--server", "127.0.0.1:1", "--timeout", 1) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write(line)
        process.stdin.flush()
        assert process.wait(20) == 1
        (told,) = process.stderr.read().splitlines()
        assert b"no answer from 127.0.0.1:1" in told


def test_an_interrupt_waits_for_no_request(lingon: Command, service: FakeService) -> None:
    service.delay = 600.0
    with lingon.start("translate", "one") as process:
        eventually_blocking(lambda: service.requests)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 130


def test_a_standard_input_that_is_closed_is_one_line(lingon: Command) -> None:
    line = [sys.executable, "-m", "lingon", "translate"]
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" <&-', "sh", *line], capture_output=True, env=lingon.environment, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (1, b"lingon: error: standard input: is closed\n")


def test_a_closed_standard_output_prints_no_message(lingon: Command) -> None:
    with lingon.start("translate") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(b"one\n")
        process.stdin.flush()
        process.stdout.readline()
        process.stdout.close()
        process.stdin.write(b"two\n" * 100)
        process.stdin.close()
        assert process.stderr.read() == b""
    assert process.returncode == 1


def test_sampling_depends_on_seed_and_line_number_not_on_timing(lingon: Command) -> None:
    text = "".join(f"line {number}\n" for number in range(10))
    command = ("translate", "--seed", 5, "--batch-size", 4)
    _, expected, _ = lingon(*command, text=text)
    assert expected.splitlines()[3:6] == ["LINE 3 5+3", "LINE 4 9+0", "LINE 5 9+1"]
    with lingon.start(*command) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        lines = text.splitlines(keepends=True)
        process.stdin.write("".join(lines[:4]).encode())
        process.stdin.flush()
        printed = "".join(process.stdout.readline().decode() for _ in range(4))  # it is up and reading now
        for line in lines[4:]:
            process.stdin.write(line.encode())
            process.stdin.flush()
            time.sleep(0.05)
        process.stdin.close()
        assert printed + process.stdout.read().decode() == expected


def test_model_alone_is_a_bundle_in_this_process(lingon: Command) -> None:
    local = ("--model", "models/en-de", "--device", "cpu", "--precision", "fp32", "--engines", 2, "--threads", 3)
    code, printed, errors = lingon("translate", *local, text="one\nbad\n")
    assert (code, printed) == (1, "ONE\n\n")
    assert errors == ["opened models/en-de cpu fp32 2 3", "lingon: line 2: too many tokens", "closed"]
    assert lingon("score", *local, text="a\tb\n") == (0, "-1.5000\n", ["opened models/en-de cpu fp32 2 3", "closed"])


def test_a_bundle_in_this_process_has_no_time_limit_unless_one_is_given(lingon: Command) -> None:
    assert "in 9000000 s" in lingon("translate", "--model", "models/en-de", "how long")[2]
    assert "in 5 s" in lingon("translate", "--model", "models/en-de", "--timeout", "5.4", "how long")[2]


def test_a_dead_engine_in_this_process_is_not_waited_for(lingon: Command) -> None:
    start = time.monotonic()
    code, _, errors = lingon("translate", "--model", "models/en-de", "the engine dies")
    assert (code, time.monotonic() - start < 20) == (1, True)
    assert any(line.startswith("lingon: error: the engine failed") for line in errors)


def test_model_with_server_is_the_name_of_a_model_there(lingon: Command, service: FakeService, address: str) -> None:
    assert lingon("translate", "--server", address, "--model", "en-de/1", "one")[0] == 0
    assert service.requests[0].model == "en-de/1"


@pytest.mark.parametrize(
    "arguments",
    [
        ["translate", "--device", "cpu", "hello"],
        ["translate", "--beam-size", "0", "hello"],
        ["translate", "--batch-size", "x"],
        ["translate", "hello", "--input", "somewhere"],
        ["translate", os.fsdecode(b"gr\xfcn")],
        ["score", "--source", "somewhere"],
        ["healthcheck", "--timeout", "0"],
        ["healthcheck", "--service", os.fsdecode(b"\xff")],
        ["healthcheck", "--server", os.fsdecode(b"\xff")],
        ["translate", "hello", "--source", os.fsdecode(b"\xff")],
        ["models", "load", os.fsdecode(b"\xff")],
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(arguments: list[str], lingon: Command) -> None:
    code, printed, errors = lingon(*arguments)
    assert (code, printed, len(errors)) == (2, "", 1)


def test_pairs_are_scored_from_tab_separated_lines(lingon: Command) -> None:
    text = "a cow\teine Kuh\n\nbad\tx\n"
    code, printed, errors = lingon("score", "--tokens", "--alignment", text=text)
    assert printed.split("\n") == ["-2.5000\t▁eine:-1.0000 ▁Kuh:-1.0000 </s>:-0.5000\t0-0 1-1", "", "", ""]
    assert (code, errors) == (1, ["lingon: line 3: too many tokens"])


def test_pairs_are_scored_from_two_files(lingon: Command, tmp_path: Path) -> None:
    (tmp_path / "source").write_text("a cow\nan ox\n")
    (tmp_path / "target").write_text("eine Kuh\nein\n")
    files: list[Any] = ["--source", tmp_path / "source", "--target", tmp_path / "target"]
    code, printed, _ = lingon("score", *files, "--json")
    first, second = map(json.loads, printed.splitlines())
    assert (code, first["log_prob"], first["target"], second["log_prob"]) == (0, -2.5, "eine Kuh", -1.5)


def test_a_line_without_a_tab_is_named(lingon: Command) -> None:
    code, printed, errors = lingon("score", text="a\tb\nno tab\n")
    assert (code, printed) == (1, "-1.5000\n")
    assert errors == ["lingon: error: standard input:2: must have 2 columns, SOURCE<tab>TARGET, has 1"]


def test_healthcheck_is_0_only_where_a_server_serves(lingon: Command, address: str) -> None:
    assert lingon("healthcheck") == (0, f"{address}: SERVING\n", [])
    assert lingon("healthcheck", "--service", "lingon.down") == (1, f"{address} lingon.down: NOT_SERVING\n", [])
    assert lingon("healthcheck", "--service", "en-de") == (0, f"{address} en-de: SERVING\n", [])
    told = f"lingon: error: {address}: no service or model is called 'nobody'"
    assert lingon("healthcheck", "--service", "nobody") == (1, "", [told])
    code, printed, errors = lingon("healthcheck", "--server", "127.0.0.1:1", "--timeout", 1)
    assert (code, printed, len(errors)) == (1, "", 1)
