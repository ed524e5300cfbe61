"""Matches have the numbers and placeholders of the text that they were found for, or there is no match."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from lingon.memories.adaptation import adapted, adapted_matches
from lingon.memories.building import build
from lingon.memories.memory import Memory
from lingon.memories.segment import Segment


def target_for(text: str, source: str, target: str) -> str | None:
    found = adapted(Segment(source, target), text)
    return None if found is None else found.target


@pytest.mark.parametrize(
    ("source", "target", "text", "expected"),
    [
        ("Wait 5 minutes.", "Warten Sie 5 Minuten.", "Wait about 12 minutes.", "Warten Sie 12 Minuten."),
        ("Costs $5.25.", "Kostet 5,25 $.", "It costs $7.50.", "Kostet 7,50 $."),
        ("1,234 or 20 m²", "1.234 oder 20 m²", "1,239 or 30 km²", "1.239 oder 30 km²"),
        ("On 03/12/2026 he came.", "Am 12.03.2026 kam er.", "On 04/11/2027 he came.", "Am 11.04.2027 kam er."),
        ("Since 2026-03-12.", "Seit 2026-03-12.", "Since 2027-11-30.", "Seit 2027-11-30."),
        ("Room 3 on floor 2", "Raum 3 auf Stock 2", "Room 2 on floor 3", "Raum 2 auf Stock 3"),
        ("The 3rd time.", "Das 3. Mal.", "The 7th time.", "Das 7. Mal."),
        ("Hello {name}!", "Hallo {name}!", "Hello {user}!", "Hallo {user}!"),
        ("%s has %d files.", "%s hat %d Dateien.", "%1$s has %2$d files.", "%1$s hat %2$d Dateien."),
        ("See https://a.org/x now", "Siehe https://a.org/x", "See http://b.org now", "Siehe http://b.org"),
        ("Run `a` first.", "Zuerst `a`.", "Run `b` first.", "Zuerst `b`."),
        ("5 is 5.", "5 ist 5.", "6 is 6.", "6 ist 6."),
        ("Meet at 2 p.m.", "Treffen um 14 Uhr", "We meet at 2 p.m.", "Treffen um 14 Uhr"),
        ("Come here.", "Komm her.", "Come in.", "Komm her."),
    ],
)
def test_values_of_the_text_replace_those_of_the_segment(source, target, text, expected):
    assert target_for(text, source, target) == expected


@pytest.mark.parametrize(
    ("source", "target", "text"),
    [
        ("Wait 5 minutes.", "Warten Sie fünf Minuten.", "Wait 7 minutes."),  # is no figure in the target
        ("Wait 5 minutes.", "Warten Sie 5 bis 5 Minuten.", "Wait 7 minutes."),  # is there twice
        ("Wait 5 minutes.", "Warten Sie 5 Minuten bis 9.", "Wait 7 minutes."),  # the target has another one
        ("Wait 5 minutes.", "Warten Sie 5 Minuten.", "Wait minutes."),
        ("Wait minutes.", "Warten Sie Minuten.", "Wait 5 minutes."),
        ("Meet at 2 p.m.", "Treffen um 14 Uhr", "Meet at 3 p.m."),
        ("Room 3 and floor 2", "Raum 3 und Stock 2", "Floor 5 and room 7"),  # are of other words
        ("5 is 5.", "5 ist 5.", "6 is 7."),
        ("It is 5.5 km.", "Es sind 5,5 km.", "It is 6.7 km."),  # which group is which is not known
        ("03/03/2026", "03.03.2026", "04/05/2026"),
        ("It has 12 parts.", "Es hat 12 Teile.", "It has 1,200 parts."),  # how the target writes it is not known
        ("It has 1,200 parts.", "Es hat 1.200 Teile.", "It has 12 parts."),
        ("1,234 came.", "1.234 kamen.", "1,23 came."),  # is no thousand
        ("It is 5 %.", "Es sind 5 %.", "It is 5 ‰."),  # the target has a unit of its own
        ("Step ① is long.", "Schritt ① ist lang.", "Step ② is long."),  # is no digit
        ("Part Ⅳ is long.", "Teil Ⅳ ist lang.", "Part Ⅵ is long."),
        ("Hello {name}!", "Hallo!", "Hello {user}!"),
        ("Hello {name}!", "Hallo {name}!", "Hello Tom!"),
        ("Delete {n} files?", "{n} Dateien löschen?", "Delete 5 files?"),
        ("<b>Save</b> it", "<b>Sichern</b>", "Save it"),
        ("٥ days", "5 Tage", "7 days"),
    ],
)
def test_a_segment_whose_values_have_no_certain_place_is_no_match(source, target, text):
    assert target_for(text, source, target) is None


def test_no_target_has_a_number_that_the_text_lacks():
    draw, words = random.Random(1), ["der", "Raum", "im", "Stock", "und"]

    def sentence(numbers: list[str]) -> str:
        places = [*numbers, *draw.choices(words, k=4)]
        draw.shuffle(places)
        return " ".join(places)

    def numbers_of(text: str) -> list[str]:
        return sorted(re.findall(r"\d+", text))

    changed = 0
    for _ in range(3000):
        stored, wanted = ([str(draw.randrange(1, 6)) for _ in range(draw.randrange(3))] for _ in range(2))
        source, text = sentence(stored), sentence(wanted)
        target = target_for(text, source, sentence(stored))
        assert target is None or numbers_of(target) == numbers_of(text)
        changed += target is not None and stored != wanted
    assert changed > 50


def test_a_match_that_is_dropped_makes_room_for_the_next_one(tmp_path: Path):
    segments = [
        Segment("Wait for 5 minutes.", "Warten Sie fünf Minuten."),
        Segment("Wait for 8 or more minutes.", "Warten Sie mindestens 8 Minuten."),
    ]
    build(tmp_path / "m", segments)
    memory = Memory.open(tmp_path / "m")
    (match,) = adapted_matches(memory, "Wait for 7 minutes.", min_score=60)
    assert (match.segment, match.target) == (segments[1], "Warten Sie mindestens 7 Minuten.")
    assert match.score == memory.find("Wait for 7 minutes.", min_score=60, most=2)[1].score
    assert match.adapted is not None
    assert match.adapted.source == "Wait for 7 or more minutes."
    (same,) = adapted_matches(memory, "wait for 5 minutes.")
    assert (same.score, same.adapted) == (100, None)
