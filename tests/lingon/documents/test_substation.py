"""Subtitles of SubStation Alpha: which texts are translated, and that all else stays byte for byte."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingon.documents import UnreadableDocument, read_document, suffix_of

HEAD = (
    "[Script Info]\nTitle: The sea\n\n[V4+ Styles]\nFormat: Name, Fontname\nStyle: Default,Arial\n\n"
    "[Events]\nFormat: Layer, Start, End, Style, Name, MarginL, MarginR, MarginV, Effect, Text\n"
)


def ass(*texts: str, styles: str = "", effect: str = "") -> str:
    """Dialogues of two seconds; styles: a letter for each, the same one for all if it is empty."""
    lines = []
    for place, text in enumerate(texts):
        times = ",".join(f"0:{each // 60:02}:{each % 60:02}.00" for each in (2 * place, 2 * place + 2))
        lines.append(f"Dialogue: 0,{times},{styles[place] if styles else 'a'},,0,0,0,{effect},{text}\n")
    return HEAD + "".join(lines)


def texts_of(content: str) -> list[str]:
    return list(read_document("a.ass", content.encode()).texts)


def translated(content: str, *translations: str) -> str:
    return read_document("a.ass", content.encode()).write(translations).decode()


def test_texts_of_dialogues_are_translated_and_all_else_stays():
    content = ass("Tom, the old man, is here.", "No.") + "Comment: 0,0:00:00.00,0:00:00.00,a,,0,0,0,,A comment\n"
    assert texts_of(content) == ["Tom, the old man, is here.", "No."]
    assert translated(content, "Tom ist da.", "Nein.") == content.replace(
        "Tom, the old man, is here.", "Tom ist da."
    ).replace("No.", "Nein.")
    assert suffix_of(content.encode()) == ".ass"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{\\i1}It is raining{\\i0}", "It is raining"),
        ("{\\an8\\fad(200,200)}It is raining", "It is raining"),
        ("{\\i1}It is raining", "It is raining"),
        ("{a comment}It is raining{another one}", "It is raining"),
        ("{\\p1}m 0 0 l 100 0{\\p0}It is raining", "It is raining"),
        ("{\\pos(1,2)\\p2}m 0 0 l a b{\\r\\p0}It is raining", "It is raining"),
        ("\\h\\hIt is raining", "It is raining"),
    ],
)
def test_override_tags_around_a_text_stay_around_its_translation(text: str, words: str):
    content = ass(text)
    assert [each.strip() for each in texts_of(content)] == [words]
    assert translated(content, "Es regnet").replace("Es regnet", words).replace("  ", "") == ass(
        text.replace("\\h", "")
    ).replace("  ", "")


def test_override_tags_of_words_follow_the_words():
    content = ass("Where is the {\\b1}old man{\\b0}?")
    assert texts_of(content) == ['Where is the <s i="0">old man</s>?']
    assert translated(content, 'Wo ist <s i="0">der Alte</s>?') == ass("Wo ist {\\b1}der Alte{\\b0}?")


def test_lines_are_joined_and_a_translation_has_as_many():
    content = ass("The old man\\Nis here.", "a" * 50)
    assert texts_of(content) == ["The old man is here.", "a" * 50]
    assert translated(content, "Der alte Mann ist da.", "b " * 50) == ass(
        "Der alte\\NMann ist da.", ("b " * 50).strip()
    )


def test_a_sentence_goes_on_in_the_next_dialogue_of_its_style():
    content = ass("I would like", "OPEN", "to know.", styles="aba")
    assert texts_of(content) == ['I would like <v i="0"/>to know.', "OPEN"]
    assert translated(content, 'Ich m\u00f6chte <v i="0"/>wissen.', "OFFEN") == ass(
        "Ich m\u00f6chte", "OFFEN", "wissen.", styles="aba"
    )


@pytest.mark.parametrize("effect", ["fx", "karaoke", "template line"])
def test_karaoke_stays_and_is_said(effect: str):
    content = ass("{\\k20}Love {\\k30}me", "{\\kf20}do ") + ass("The sea", effect=effect).removeprefix(HEAD)
    document = read_document("a.ass", content.encode())
    assert document.texts == ["do"]
    assert document.write(document.texts).decode() == content
    assert document.notes == ["dialogues of karaoke stay as they are: 2"]


def test_the_older_form_is_read():
    dialogue = "Dialogue: Marked=0,0:00:01.00,0:00:02.00,a,,Tom\r\n"
    content = f"[Script Info]\n[Events]\nFormat: Marked, Start, End, Style, Name, Text\n{dialogue}"
    assert read_document("a.ssa", content.encode()).write(["Tim"]).decode() == content.replace(",Tom", ",Tim")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("Tom", "the file has no subtitles of SubStation Alpha"),
        ("[Events]\nDialogue: a,b\n", "line 2 of the file is a dialogue of other fields than its format says"),
        ("[Events]\nFormat: Text, Start\n", "line 2 of the file must name Text last of at most 64 fields"),
    ],
)
def test_a_broken_file_is_refused_in_one_line(content: str, message: str):
    with pytest.raises(UnreadableDocument) as error:
        read_document("a.ass", content.encode())
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)


TEXT = st.lists(
    st.sampled_from(
        ["Tom", "sea.", "{\\i1}", "{\\i0}", "{\\an8}", "\\N", "- ", "{note}", "{\\p1}m 0 0{\\p0}", ",", "{", "42"]
    ),
    max_size=9,
).map(" ".join)


@given(st.lists(TEXT, max_size=6))
def test_dialogues_whose_translations_are_their_texts_keep_times_words_and_tags(texts: list[str]):
    content = ass(*texts)
    found = translated(content, *texts_of(content))
    assert re.findall("(?m)^Dialogue:.{24}", found) == re.findall("(?m)^Dialogue:.{24}", content)
    assert found.replace("\\N", " ").split() == content.replace("\\N", " ").split()
