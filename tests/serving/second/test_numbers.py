"""Numbers that a large model writes as its language does."""

from __future__ import annotations

import random

import pytest

from lingon.serving.second.numbers import with_numbers_of


@pytest.mark.parametrize(
    ("answer", "kept", "found"),
    [
        ("Es waren 4.000 Leute.", ["4,000"], "Es waren 4,000 Leute."),
        ("Es waren 4000 Leute.", ["4,000"], "Es waren 4,000 Leute."),
        ("Es waren 4 000 Leute.", ["4,000"], "Es waren 4,000 Leute."),
        ("Il y en avait 4\u202f000.", ["4,000"], "Il y en avait 4,000."),
        ("Es waren 1.234.567 Leute.", ["1234567"], "Es waren 1234567 Leute."),
        ("um 2.30 Uhr", ["2:30"], "um 2:30 Uhr"),
        ("2,4 und 4.000", ["4,000", "2.4"], "2.4 und 4,000"),
        ("4.000 und 4.000", ["4,000"], "4,000 und 4.000"),
        ("4,000 und 4.000", ["4,000"], "4,000 und 4.000"),
        ("4,000 und 4.000", ["4,000", "4,000"], "4,000 und 4,000"),
        ("4.000 und 4,000", ["4.000", "4,000"], "4.000 und 4,000"),
    ],
)
def test_a_number_is_written_as_it_is_kept(answer: str, kept: list[str], found: str):
    assert with_numbers_of(answer, kept) == found


@pytest.mark.parametrize(
    ("answer", "kept"),
    [
        ("Es sind 15 Meter.", ["1.5"]),
        ("Es sind 1,50 Meter.", ["1.5"]),
        ("um 23.0 Uhr", ["2:30"]),
        ("Es waren 40.00 Leute.", ["4,000"]),
        ("Es waren 14.000 Leute.", ["4,000"]),
        ("Es waren 4.000 Leute.", ["{4,000}"]),
        ("im Jahr 2 3000 Leute", ["23,000"]),
        ("ohne Zahl", ["4,000"]),
        ("Es waren 4.000 Leute.", []),
    ],
)
def test_another_number_and_a_string_that_is_none_stay(answer: str, kept: list[str]):
    assert with_numbers_of(answer, kept) == answer


@pytest.mark.parametrize(
    ("answer", "kept", "found"),
    [
        ("Es kostet $1.250,50.", ["$1,250.50"], "Es kostet $1,250.50."),
        ("Es kostet 1.250,50 $.", ["$1,250.50"], "Es kostet $1,250.50."),
        ("Es kostet 1250,50\u00a0€.", ["€1,250.50"], "Es kostet €1,250.50."),
        ("Es kostet 4.000 £.", ["£4,000"], "Es kostet £4,000."),
        ("Es kostet ¥12.000.", ["¥12,000"], "Es kostet ¥12,000."),
        ("Es kostet 1.250,50 US$.", ["US$ 1,250.50"], "Es kostet US$ 1,250.50."),
        ("Es sind −1.250,5 Grad.", ["-1,250.5"], "Es sind -1,250.5 Grad."),
        ("Es fehlen -5,50 $.", ["-$5.50"], "Es fehlen -$5.50."),
        ("Es fehlen -5,50 $.", ["$-5.50"], "Es fehlen $-5.50."),
        ("+4.000 und ±0,5", ["+4,000", "±0.5"], "+4,000 und ±0.5"),
        ("Es stieg um 12,5 %.", ["12.5"], "Es stieg um 12.5 %."),
        ("Es stieg um 12,5 %.", ["12.5%"], "Es stieg um 12.5%."),
        ("12,5‰ und 3,5 °C", ["12.5‰", "3.5°C"], "12.5‰ und 3.5°C"),
        ("1.000–2.000 Leute", ["1,000-2,000"], "1,000-2,000 Leute"),
        ("1.000 – 2.000 $", ["$1,000-2,000"], "$1,000-2,000"),
        ("£1.000–£2.000", ["£1,000", "£2,000"], "£1,000–£2,000"),
        ("1.000–2.000 Leute", ["1,000", "2,000"], "1,000–2,000 Leute"),
        ("100.000 ₹", ["₹1,00,000"], "₹1,00,000"),
        ("5,50 und $5,50", ["$5.50", "5.50"], "5.50 und $5.50"),
        ("$5.50 und 5,50", ["$5.50", "5.50"], "$5.50 und 5.50"),
    ],
)
def test_an_amount_is_written_as_it_is_kept(answer: str, kept: list[str], found: str):
    assert with_numbers_of(answer, kept) == found


@pytest.mark.parametrize(
    ("answer", "kept"),
    [
        ("Es kostet 1.250,50 €.", ["$1,250.50"]),
        ("Es kostet 1.250,50 Dollar.", ["$1,250.50"]),
        ("Es kostet $1.250,05.", ["$1,250.50"]),
        ("Es kostet $1250500.", ["$1,250.500"]),
        ("Es sind 1.250,5 Grad.", ["-1,250.5"]),
        ("Es sind +3,5 Grad.", ["-3.5"]),
        ("COVID-1,5", ["-1.5"]),
        ("1.000–3.000 Leute", ["1,000–2,000"]),
    ],
)
def test_another_amount_stays(answer: str, kept: list[str]):
    assert with_numbers_of(answer, kept) == answer


def _shown(value: int, decimals: str, thousands: str, point: str) -> str:
    return f"{value:,}".replace(",", thousands) + (point + decimals if decimals else "")


@pytest.mark.parametrize("seed", range(200))
def test_amounts_of_any_form_are_written_as_they_are_kept_and_nothing_else_is_changed(seed: int):
    drawn = random.Random(seed)
    kept, written, answer = list[str](), list[str](), list[str]()
    for number in drawn.sample(range(1, 10**7), 4):
        decimals = drawn.choice(["", "5", "50", "05"])
        unit, sign = drawn.choice(["", "$", "£", "€", "¥", "US$"]), drawn.choice(["", "-", "+"])
        english = f"{sign}{unit}{_shown(number, decimals, ',', '.')}"
        thousands = drawn.choice([".", "", "\u00a0", "'"])
        german = sign.replace("-", "−") + _shown(number, decimals, thousands, ",")
        if unit:
            blank = drawn.choice(["", " ", "\u00a0"])
            german = drawn.choice(
                [f"{german}{blank}{unit}", f"{unit}{blank}{german}" if not sign else f"{german} {unit}"]
            )
        word = f" {drawn.choice(['Wort', 'und', 'Jahr'])} "
        kept.append(english)
        answer.append(german + word)
        written.append(english + word)
    drawn.shuffle(kept)
    found = with_numbers_of("".join(answer), kept)
    assert found == "".join(written)
    assert with_numbers_of(found, kept) == found
    for each in kept:  # what the answer has already is counted
        assert with_numbers_of(found, [*kept, each]) == found
