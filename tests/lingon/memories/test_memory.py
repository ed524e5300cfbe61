"""Translation memories: what is found, in which order, with which score, and what a folder of one has."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from rapidfuzz.distance import Levenshtein

from lingon.memories.building import build
from lingon.memories.keys import comparable
from lingon.memories.memory import Memory
from lingon.memories.segment import DamagedMemory, Segment, SegmentError
from tests.support.repository import ROOT

TEXT = (
    "a the house dog sees with of green under bridges Wasser trinkt heute morgen jeder Straßenbahn überall "
    "configuration server memory translation restarts when is not and old new password resets invoice"
)
WORDS = TEXT.split()


def memory_of(folder: Path, *segments: Segment, base: Memory | None = None) -> Memory:
    build(folder, segments, base=base)
    return Memory.open(folder)


def sentences(count: int, seed: int = 1) -> list[str]:
    choice = random.Random(seed)
    return list(
        dict.fromkeys(" ".join(choice.choices(WORDS, k=choice.randint(1, 14))).capitalize() for _ in range(count))
    )


@pytest.fixture(scope="module")
def corpus() -> list[str]:
    return sentences(3000)


@pytest.fixture(scope="module")
def memory(corpus, tmp_path_factory) -> Memory:
    folder = tmp_path_factory.mktemp("memories") / "m"
    return memory_of(folder, *(Segment(text, text.upper()) for text in corpus))


def edited(text: str, choice: random.Random) -> str:
    """A text with one word changed, added or left out, or with one letter changed."""
    words = text.split(" ")
    place = choice.randrange(len(words))
    match choice.randrange(4):
        case 0:
            words[place] = choice.choice(WORDS)
        case 1:
            words.insert(place, choice.choice(WORDS))
        case 2 if len(words) > 1:
            del words[place]
        case _:
            at = choice.randrange(len(words[place]))
            words[place] = words[place][:at] + "x" + words[place][at + 1 :]
    return " ".join(words)


def best_score(text: str, corpus: list[str]) -> int:
    """The score of the best match, by the distance to every source."""
    form = comparable(text)
    scores = []
    for other in map(comparable, corpus):
        longer = max(len(form), len(other))
        scores.append(100 * (longer - Levenshtein.distance(form, other)) // longer)
    return max(scores)


def test_every_source_is_found_with_its_translation(memory, corpus):
    for text in corpus:
        (match,) = memory.find(text)
        assert (match.score, match.segment.source, match.segment.target) == (100, text, text.upper())


def test_a_fuzzy_match_has_the_score_of_a_search_through_all_sources(memory, corpus):
    choice = random.Random(2)
    queries = [edited(choice.choice(corpus), choice) for _ in range(150)]
    best = {text: best_score(text, corpus) for text in queries}
    good = [text for text in queries if best[text] >= 70]
    assert len(good) > 100
    missed = [text for text in good if [match.score for match in memory.find(text)] != [best[text]]]
    assert len(missed) <= len(good) // 50, missed


def test_a_match_below_the_wanted_score_is_not_returned(memory, corpus):
    choice = random.Random(3)
    for text in (edited(choice.choice(corpus), choice) for _ in range(50)):
        for least in (50, 70, 90, 100):
            assert all(match.score >= least for match in memory.find(text, min_score=least, most=5))


def test_several_matches_are_different_and_the_best_first(memory, corpus):
    found = memory.find(corpus[7], most=5, min_score=50)
    scores = [match.score for match in found]
    assert len(found) == 5
    assert scores == sorted(scores, reverse=True)
    assert len({match.segment.source for match in found}) == 5


def test_case_and_number_of_blanks_do_not_count_but_the_same_case_comes_first(tmp_path):
    memory = memory_of(tmp_path / "m", Segment("the  Polish", "1"), Segment("The polish", "2", "before"))
    assert [match.score for match in memory.find("THE POLISH ", most=2)] == [100, 100]
    assert memory.find("The polish")[0].segment.target == "2"
    assert memory.find("the  Polish")[0].segment.target == "1"


def test_a_match_with_the_same_neighbours_scores_101_and_comes_first(tmp_path):
    memory = memory_of(
        tmp_path / "m",
        Segment("Open", "Offen", "The door is", "today."),
        Segment("Open", "Öffnen", "File", "Save"),
        Segment("Open", "Aufmachen", changed=99),
    )
    assert [(match.score, match.segment.target) for match in memory.find("Open", "File", "Save")] == [(101, "Öffnen")]
    assert [(match.score, match.segment.target) for match in memory.find("Open", "File")] == [(100, "Aufmachen")]
    assert [match.score for match in memory.find("Open", "File", "Save", most=3)] == [101, 100, 100]
    assert memory.find("Open")[0].score == 100


def test_of_equal_sources_the_last_one_changed_is_first_then_the_last_one_stored(tmp_path):
    segments = [Segment("Yes", str(place), str(place), changed=changed) for place, changed in enumerate((5, 9, 9, 1))]
    memory = memory_of(tmp_path / "m", *segments)
    assert [match.segment.target for match in memory.find("Yes", most=4)] == ["2", "1", "0", "3"]


def test_one_digit_of_difference_is_no_exact_match(tmp_path):
    memory = memory_of(tmp_path / "m", Segment("x" * 5000 + " 1", "1"))
    assert [match.score for match in memory.find("x" * 5000 + " 2")] == [99]


@pytest.mark.parametrize("text", ["", " \t\n", "\u200b", "\ud800", "🙂", "見る", "x" * 20_000])
def test_any_text_can_be_looked_up(memory, text):
    assert memory.find(text, min_score=50) == []


def test_texts_of_scripts_without_blanks_are_found(tmp_path):
    memory = memory_of(tmp_path / "m", Segment("私は毎日学校へ行きます。", "1"), Segment("彼は家で本を読みます。", "2"))
    assert [match.segment.target for match in memory.find("私は毎日会社へ行きます。")] == ["1"]


def test_segments_are_kept_whole_and_in_their_order(tmp_path):
    segments = [
        Segment("Zürich 🙂\u2028", "Ü\tb\n", "before", "after", "a file.tmx", 2**63 - 1),
        Segment("b", "c"),
        Segment("a", "d", origin="x"),
    ]
    assert list(memory_of(tmp_path / "m", *segments)) == segments


def test_a_segment_replaces_one_with_its_source_and_neighbours(tmp_path):
    one, two, three = Segment("One", "Eins"), Segment("Two", "Zwei"), Segment("Three", "Drei", "Two")
    first = memory_of(tmp_path / "first", one, two, three)
    again, beside = Segment("Two", "zwo", origin="new"), Segment("Three", "drei")
    second = memory_of(tmp_path / "second", again, beside, base=first)
    assert list(second) == [one, three, again, beside]
    assert list(first) == [one, two, three]
    assert second.find("Two")[0].segment == again
    assert [match.segment for match in second.find("three", "Two", most=2)] == [three, beside]


def test_a_memory_that_grows_is_the_one_that_is_built_at_once(tmp_path, corpus):
    segments = [Segment(text, text[::-1], origin=str(place)) for place, text in enumerate(corpus[:400])]
    again = [Segment(text, "again") for text in corpus[50:90]]
    memory_of(tmp_path / "grown", *segments[200:], *again, base=memory_of(tmp_path / "half", *segments[:200]))
    memory_of(tmp_path / "at_once", *segments, *again)
    names = sorted(path.name for path in (tmp_path / "at_once").iterdir())
    assert sorted(path.name for path in (tmp_path / "grown").iterdir()) == names
    for name in names:
        assert (tmp_path / "grown" / name).read_bytes() == (tmp_path / "at_once" / name).read_bytes(), name


def test_a_memory_without_segments_has_no_match(tmp_path):
    memory = memory_of(tmp_path / "m")
    assert (len(memory), memory.find("a", min_score=50)) == (0, [])
    assert list(memory_of(tmp_path / "n", Segment("a", "b"), base=memory)) == [Segment("a", "b")]


@pytest.mark.parametrize(
    ("segment", "message"),
    [
        (Segment("", "b"), "segment 2: the source is empty"),
        (Segment("a", " \n"), "segment 2: the target is empty"),
        (Segment("a" * 10_001, "b"), "segment 2: the source has 10,001 characters; at most 10,000"),
        (Segment("a", "b", after="c" * 10_001), "segment 2: the after has 10,001 characters; at most 10,000"),
        (Segment("a", "b", origin="c" * 257), "segment 2: the origin has 257 characters; at most 256"),
        (Segment("a", "b\x00"), "segment 2: the target has the character U+0000, which is no text"),
        (Segment("a\ud800", "b"), "segment 2: the source has the character U+D800, which is no text"),
        (Segment("a", "b", changed=-1), "segment 2: the time of its change must be 0 to 9223372036854775807, got -1"),
    ],
)
def test_a_segment_out_of_bounds_is_named_and_nothing_is_written(tmp_path, segment, message):
    with pytest.raises(SegmentError) as caught:
        build(tmp_path / "m", [Segment("a", "b"), segment])
    assert (str(caught.value), caught.value.number) == (message, 2)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_no_whole_memory_is_refused_in_one_line(tmp_path):
    folder = tmp_path / "m"
    with pytest.raises(DamagedMemory, match=f"^{folder}: is no translation memory that is whole: No such file"):
        Memory.open(folder)
    build(folder, [Segment("a", "b")])
    names = sorted(path.name for path in folder.iterdir())
    for name in names:
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content[: len(content) // 2])
        with pytest.raises(DamagedMemory, match=r"^[^\n]+$"):
            Memory.open(folder)
        (folder / name).unlink()
        with pytest.raises(DamagedMemory, match="No such file or directory"):
            Memory.open(folder)
        (folder / name).write_bytes(content)
    (folder / "about.json").write_text('{"format": 99, "sizes": {}}')
    with pytest.raises(DamagedMemory, match="is in format 99; this version reads 1"):
        Memory.open(folder)


def test_a_killed_build_leaves_nothing_that_the_next_one_does_not_remove(tmp_path):
    script = (
        "import os, sys; from pathlib import Path; from lingon.memories.building import build\n"
        "from lingon.memories.segment import Segment\n"
        "def segments():\n"
        "    yield Segment('a', 'b')\n"
        "    os.kill(os.getpid(), 9)\n"
        "build(Path(sys.argv[1]), segments())\n"
    )
    folder = tmp_path / "m"
    ended = subprocess.run([sys.executable, "-c", script, folder], cwd=ROOT, env=os.environ, check=False)
    assert ended.returncode == -signal.SIGKILL
    assert not folder.exists()
    assert len(list(tmp_path.iterdir())) == 1
    build(folder, [Segment("a", "b")])
    assert list(tmp_path.iterdir()) == [folder]
