"""Speak the talk of tests/data/talk.vtt to a server, and write what it answers to docs/generators/live_talk.jsonl.

    python -m scripts.live_talk

Each word is spoken when the word before it is translated, so that the same model gives the same answers at any speed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from lingon import Client, LiveUpdate, LiveWord
from lingon.bench.serve.run import lingon_command, serving
from lingon.cli.live_words import Said, Written, steps_of
from lingon.client.live import LiveCall
from lingon.files import write_text

ROOT = Path(__file__).resolve().parents[1]
TALK, OUTPUT = ROOT / "tests/data/talk.vtt", ROOT / "docs/generators/live_talk.jsonl"
MODEL = ROOT / "models/en-de"
POLICY: Literal["alignment"] = "alignment"
LAG = 3  # words


@dataclass(frozen=True, slots=True)
class Answer:
    """An update of the server.

    ms: when the last word was spoken, in milliseconds since the begin of the talk
    words: those that no answer before it has, joined by spaces
    agreed, tentative, is_complete: as in lingon.LiveUpdate
    """

    ms: int
    words: str
    agreed: str
    tentative: str
    is_complete: bool


def read_talk() -> list[LiveWord]:
    """Return the words of the talk with their times."""
    with TALK.open(encoding="utf-8") as lines:
        steps = list(steps_of(lines, Written.VTT, "en"))
    return [word for step in steps if isinstance(step, Said) for word in step.words]


def speak(live: LiveCall, words: Sequence[LiveWord]) -> Iterator[Answer]:
    """Yield the answers to words, each of which is spoken when the one before it is translated, and to the end."""
    updates, answered = iter(live), 0

    def answer(update: LiveUpdate, last: LiveWord) -> Answer:
        nonlocal answered
        new = words[answered : update.words]
        answered = update.words
        text = " ".join(word.text for word in new)
        return Answer(last.end_ms, text, update.agreed, update.tentative, update.is_complete)

    for number, word in enumerate(words, 1):
        live.send([word])
        while answered < number:
            yield answer(next(updates), word)
    live.end()
    yield from (answer(update, words[-1]) for update in updates)


class Record(NamedTuple):
    """A talk that was spoken; model: NAME/VERSION; policy, lag: as in lingon.LiveReady."""

    model: str
    policy: str
    lag: int
    answers: list[Answer]


def read_record() -> Record:
    """Return the talk that was written last."""
    head, *lines = map(json.loads, OUTPUT.read_text(encoding="utf-8").splitlines())
    return Record(**head, answers=[Answer(**line) for line in lines])


def main() -> None:
    """Speak the talk, and write the answers."""
    with (
        serving(lingon_command(MODEL, {}), frozenset()) as server,
        Client(server.address) as client,
        client.live(policy=POLICY, lag_words=LAG) as live,
    ):
        lines = [asdict(answer) for answer in speak(live, read_talk())]
        head = {"model": f"{live.ready.model}/{live.ready.version}", "policy": POLICY, "lag": LAG}
    write_text(OUTPUT, "".join(json.dumps(each, ensure_ascii=False) + "\n" for each in [head, *lines]))
    print(f"written: {OUTPUT.relative_to(ROOT)}, {len(lines)} answers")


if __name__ == "__main__":
    main()
