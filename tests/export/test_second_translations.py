"""The translations for a threshold: which lines count, what is kept, and how a run goes on."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from google.rpc import status_pb2

from lingon.errors import LingonError, SettingsError
from lingon.export.second_calibration import AnswersFile, Collected, Collector, Pair, chosen_pairs
from lingon.export.second_threshold import Candidate
from lingon.translation.v1 import translation_pb2 as pb

HEAD = {"bundle": "en-de/1", "second_model": "m"}
TAKEN, REJECTED, FAILED = pb.SECOND_RESULT_TAKEN, pb.SECOND_RESULT_REJECTED, pb.SECOND_RESULT_FAILED


@dataclass
class Server:
    """A server whose own translations are in small letters, and the second ones in capitals.

    results: what comes of a sentence that is sent, by its text; others are taken
    asked: the sentences that were sent; most_open: at once
    """

    results: dict[str, pb.SecondResult.ValueType] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    open: int = 0
    most_open: int = 0

    async def translate(self, request: pb.TranslateRequest) -> pb.TranslateResponse:
        if not request.second.never:
            self.open += 1
            self.most_open = max(self.most_open, self.open)
            await asyncio.sleep(0)
            self.open -= 1
            self.asked += request.texts
        return pb.TranslateResponse(results=[self._result(text, request) for text in request.texts])

    def _result(self, text: str, request: pb.TranslateRequest) -> pb.TextResult:
        if text == "broken":
            return pb.TextResult(status=status_pb2.Status(code=3))
        sentences = [pb.Sentence(confidence=0.25) for _ in text.split("|")]
        if text == "unsure":
            sentences[0].ClearField("confidence")
        outcome = self.results.get(text, TAKEN)
        if not request.second.never and text != "kept":
            reason = pb.SECOND_REASON_SUSPECT if text == "odd" else pb.SECOND_REASON_CONFIDENCE
            sentences[0].second.CopyFrom(pb.SecondOutcome(reason=reason, result=outcome, detail="it is dead"))
        changed = text.upper() if sentences[0].HasField("second") and outcome == TAKEN else text.lower()
        return pb.TextResult(sentences=sentences, hypotheses=[pb.Hypothesis(text=changed)])


def pairs(*sources: str) -> list[Pair]:
    return [Pair(source, "Bezug") for source in sources]


async def collected(path: Path, server: Server, *sources: str, at_once: int = 4) -> Collected:
    kept = AnswersFile(path, HEAD)
    return await Collector(server.translate, kept, at_once).collect(pairs(*sources), lambda done, of: None)


async def test_a_taken_answer_is_theirs_and_a_rejected_one_leaves_ours(tmp_path: Path) -> None:
    found = await collected(tmp_path / "a", Server({"Two": REJECTED}), "One", "Two", "odd")
    assert found.candidates == [
        Candidate("One", "Bezug", 0.25, False, "one", "ONE"),
        Candidate("Two", "Bezug", 0.25, False, "two", "two"),
        Candidate("odd", "Bezug", 0.25, True, "odd", "ODD"),
    ]
    assert not found.left_out


async def test_lines_that_a_server_would_not_send_as_one_sentence_are_left_out(tmp_path: Path) -> None:
    server = Server()
    found = await collected(tmp_path / "a", server, "One", "a|b", "broken", "unsure", "kept")
    assert [each.source for each in found.candidates] == ["One"]
    assert found.left_out == Counter(
        {"are not one sentence": 1, "were not translated": 1, "have no confidence": 1, "cannot be sent": 1}
    )
    assert sorted(server.asked) == ["One", "kept"]


async def test_a_run_goes_on_with_the_answers_that_it_has(tmp_path: Path) -> None:
    path, sources = tmp_path / "folder" / "a", [f"Sentence {number}" for number in range(100)]
    first = await collected(path, Server(), *sources[:70])
    path.write_bytes(path.read_bytes() + b'{"source": "Sent')  # of a run that was killed
    server = Server()
    second = await collected(path, server, *sources)
    assert server.asked == sources[70:]
    assert second.candidates[:70] == first.candidates
    assert [each.source for each in second.candidates] == sources
    assert len(path.read_text().splitlines()) == 101


async def test_a_sentence_without_an_answer_is_asked_again_in_the_next_run(tmp_path: Path) -> None:
    found = await collected(tmp_path / "a", Server({"Two": FAILED}), "One", "Two")
    assert ([each.source for each in found.candidates], found.left_out) == (["One"], Counter({"have no answer": 1}))
    server = Server()
    assert len((await collected(tmp_path / "a", server, "One", "Two")).candidates) == 2
    assert server.asked == ["Two"]


async def test_a_second_translator_that_answers_nothing_ends_the_run(tmp_path: Path) -> None:
    with pytest.raises(LingonError, match="the second translator answered none of 2 sentences: it is dead"):
        await collected(tmp_path / "a", Server({"One": FAILED, "Two": FAILED}), "One", "Two")


async def test_only_so_many_sentences_are_asked_about_at_once(tmp_path: Path) -> None:
    server = Server()
    await collected(tmp_path / "a", server, *map(str, range(50)), at_once=3)
    assert server.most_open == 3


async def test_a_line_that_comes_twice_counts_once(tmp_path: Path) -> None:
    server = Server()
    assert len((await collected(tmp_path / "a", server, "One", "One")).candidates) == 1
    assert server.asked == ["One"]


async def test_progress_goes_to_the_number_of_lines(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    kept = AnswersFile(tmp_path / "a", HEAD)
    lines = pairs(*map(str, range(70)))
    await Collector(Server().translate, kept, 8).collect(lines, lambda done, of: seen.append((done, of)))
    assert seen == [(0, 70), (64, 70), (70, 70)]


def test_answers_of_another_model_are_refused(tmp_path: Path) -> None:
    AnswersFile(tmp_path / "a", HEAD)
    with pytest.raises(SettingsError, match=r"was begun with bundle 'en-de/1', this is 'en-de/2'; name another folder"):
        AnswersFile(tmp_path / "a", {**HEAD, "bundle": "en-de/2"})


@pytest.mark.parametrize("content", ["no json\n", json.dumps(HEAD) + '\n{"source": "a"}\n', "\n"])
def test_a_file_that_has_no_answers_is_refused_and_stays(tmp_path: Path, content: str) -> None:
    (tmp_path / "a").write_text(content)
    with pytest.raises(SettingsError, match="is no file of answers; name another folder"):
        AnswersFile(tmp_path / "a", HEAD)
    assert (tmp_path / "a").read_text() == content


def test_pairs_are_chosen_evenly_and_empty_lines_are_none() -> None:
    given = [("", "b"), ("a", " "), *((f"s{number}", "t") for number in range(10))]
    assert [pair.source for pair in chosen_pairs(given, 5)] == ["s0", "s2", "s4", "s6", "s8"]
    assert len(chosen_pairs(given, 100)) == 10
