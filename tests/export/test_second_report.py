"""The report about a threshold as a table, as advice, as JSON and as a picture."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from xml.etree import ElementTree

from lingon.export.second_report import HEAD, advice, as_json, picture, rows
from lingon.export.second_threshold import BEST, BY_CONFIDENCE, CHOSEN, Point, Report, Threshold

NOTHING, ALL = Point(0, 0, 40.0, 20.0, 0, 0), Point(1, 1, 60.0, 30.0, 1, 1)
HALF = Point(0.2, 0.4, 52.0, 26.0, 0.6, 0.6, Threshold(0.345, 40))
ALONE = Point(0.2, 0.3, 50.0, 25.0, 0.5, 0.5, Threshold(0.3, 0))
KNOWN = Point(0.2, 0.5, 54.0, 27.0, 0.7, 0.7)
REPORT = Report(510, NOTHING, ALL, {CHOSEN: [HALF], BY_CONFIDENCE: [ALONE], BEST: [KNOWN]}, HALF, (0.55, 0.66))


def none_better() -> Report:
    """Return the report about a second translator without a gain."""
    point = replace(HALF, gain_chrf=math.nan, gain_bleu=math.nan)
    return replace(REPORT, all=replace(ALL, chrf=39.0), chosen=point, bounds=(math.nan, math.nan))


def test_the_table_has_a_row_for_each_share_between_none_and_all() -> None:
    found = rows(REPORT)
    assert all(len(row) == len(HEAD) for row in found)
    assert found == [
        ("0.0 %", "0.0 %", "40.00", "20.00", "0.0 %", "0.0 %", "", ""),
        ("20.0 %", "40.0 %", "52.00", "26.00", "60.0 %", "60.0 %", "0.345", "40"),
        ("100.0 %", "100.0 %", "60.00", "30.00", "100.0 %", "100.0 %", "", ""),
    ]


def test_the_advice_names_the_settings_the_cost_and_the_gain_on_held_out_text() -> None:
    settings, cost, worth, share = advice(REPORT)
    assert settings == "recommended: --second-below 0.345 --second-characters 40"
    assert cost == "cost: 200 of 1,000 sentences are sent, 40.0 % of the characters"
    assert "chrF 40.00 to 52.00, BLEU 20.00 to 26.00; all sent: 60.00 and 30.00" in worth
    assert "60.0 % of the gain in chrF (about 55.0 % to 66.0 %" in share
    assert "measured on 510 sentences, each with a threshold that was not chosen on it" in share


def test_nothing_is_recommended_without_a_gain() -> None:
    (line,) = advice(none_better())
    assert line.startswith("the second translator is no better: chrF 40.00 without it, 39.00 with all of 510")
    assert line.endswith("no threshold is recommended")


def test_the_json_has_all_figures_and_null_for_none() -> None:
    found = json.loads(json.dumps(as_json(REPORT), allow_nan=False))
    assert found["chosen"]["threshold"] == {"below": 0.345, "characters": 40}
    assert found["curves"][BEST][0]["threshold"] is None
    assert found["sentences"] == 510
    assert as_json(none_better())["chosen"]["gain_chrf"] is None


def test_the_picture_is_svg_with_each_curve_and_the_recommended_settings() -> None:
    drawn = ElementTree.fromstring(picture(REPORT, "a < b"))
    texts = [each.text for each in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert {"a < b", CHOSEN, BY_CONFIDENCE, BEST, "below 0.345, 40 characters"} <= set(texts)
    assert "510 sentences, chrF 40.0 to 60.0" in texts
    lines = [each for each in drawn.iter("{http://www.w3.org/2000/svg}path") if "line" in each.get("class", "")]
    assert len(lines) == 2 * len(REPORT.curves)  # each with a piece of it beside its name
    assert picture(REPORT, "a < b") == picture(REPORT, "a < b")
