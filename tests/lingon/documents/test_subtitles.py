"""Subtitles: sentences that go over cues, lines, speakers and marks."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingon.documents import UnreadableDocument, read_document
from lingon.documents.subtitles import _TAGS, LINE_CHARACTERS, balanced


def srt(*texts: str, gap: float = 0.1) -> str:
    """Cues of two seconds."""
    cues = []
    for place, text in enumerate(texts):
        begin, end = (place * (2 + gap), place * (2 + gap) + 2)
        times = " --> ".join(f"00:{int(each) // 60:02}:{each % 60:06.3f}".replace(".", ",") for each in (begin, end))
        cues.append(f"{place + 1}\n{times}\n{text}\n")
    return "\n".join(cues)


def texts_of(content: str, name: str = "a.srt") -> list[str]:
    return list(read_document(name, content.encode()).texts)


def translated(content: str, *translations: str, name: str = "a.srt") -> str:
    return read_document(name, content.encode()).write(translations).decode()


def test_a_sentence_over_two_cues_is_one_text_and_is_divided_at_their_border():
    content = srt("I would like to know", "where the <i>station</i> is.", "Tom is here.")
    assert texts_of(content) == [
        'I would like to know <v i="0"/>where the <s i="0">station</s> is.',
        "Tom is here.",
    ]
    found = translated(content, 'Ich wüsste gern, <v i="0"/>wo der <s i="0">Bahnhof</s> ist.', "Tom ist da.")
    assert found == srt("Ich wüsste gern,", "wo der <i>Bahnhof</i> ist.", "Tom ist da.")


@pytest.mark.parametrize(
    ("texts", "gap"),
    [(["Who is", "there?"], 2.5), (["Is it you?", "no"], 0.1), (["Who is", "- It is Tom."], 0.1), (["", "Tom"], 0.1)],
    ids=["pause", "end", "speaker", "empty"],
)
def test_cues_that_do_not_go_on_are_texts_of_their_own(texts: list[str], gap: float):
    content = srt(*texts, gap=gap)
    assert all("<v" not in text for text in texts_of(content))
    assert translated(content, *texts_of(content)) == content


def test_a_cue_does_not_become_empty():
    content = srt("I would like to know", "where he", "is.")
    everything = 'Ich wüsste gern, wo er ist.<v i="0"/><v i="1"/>'
    assert translated(content, everything) == srt("Ich wüsste gern,", "wo er", "ist.")
    marked = srt("He <i>is", "there</i> now.")
    assert texts_of(marked) == ['He <s i="0">is <v i="0"/>there</s> now.']
    assert translated(marked, 'Da ist er nun.<s i="0"> <v i="0"/></s>') == srt("Da ist", "er nun.")


def test_speakers_keep_their_lines_and_dashes():
    content = srt("- Are you tired?\n- No.")
    assert texts_of(content) == ['Are you tired?<b i="0"/>No.']
    assert translated(content, 'Bist du müde?<b i="0"/>Nein.') == srt("- Bist du müde?\n- Nein.")


def test_lines_are_as_many_as_before_or_as_few_more_as_keep_them_short():
    long = "Das Wetter war sehr schön, als wir mit unseren Freunden gingen."
    assert translated(srt("The weather was nice\nwhen we went."), long) == srt(
        "Das Wetter war sehr schön, als\nwir mit unseren Freunden gingen."
    )
    assert translated(srt("The weather was nice."), long).count("\n") == srt("a").count("\n") + 1
    wide = "The weather was very nice when we went to the beach with them."
    assert len(wide) > LINE_CHARACTERS
    assert translated(srt(wide), long) == srt(long)


@pytest.mark.parametrize("kept", ["{{ user name }}", "{% if x %}", "{0, date, long form}"])
@pytest.mark.parametrize("before", range(0, 60, 7))
def test_no_line_ends_within_a_string_that_is_kept(kept: str, before: int):
    words = "wo " * (before // 3)
    (found,) = re.findall(r",\d+\n(.*)\Z", translated(srt("a\nb " * 20), f"{words}{kept} {'da ' * 9}."), re.DOTALL)
    assert kept in found
    assert "\n" in found.strip()


def test_webvtt_keeps_its_header_notes_settings_and_marks():
    content = (
        "WEBVTT - Title\r\n\r\nNOTE Tom wrote this\r\nin May\r\n\r\nintro\r\n00:01.000 --> 00:02.000 align:start\r\n"
        "<v Tom>It is <00:01.500>raining.\r\n\r\nSTYLE\r\n::cue {}\r\n"
    )
    assert texts_of(content, "a.vtt") == ['It is <v i="0"/>raining.']
    assert translated(content, 'Es <v i="0"/>regnet.', name="a.vtt") == content.replace("It is ", "Es ").replace(
        "raining", "regnet"
    )


def test_words_around_tags_that_cross_are_kept():
    content = srt("He <b>reads <i>the</b> old</i> book.")
    assert texts_of(content) == ['He <s i="0">reads <v i="0"/>the</s> old<v i="1"/> book.']
    assert translated(content, *texts_of(content)) == content


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_cue_ends_where_the_next_one_begins_without_a_blank_line(end: str):
    content = srt("The sea is near.", "It is cold.", "He is\n12").replace("\n\n", "\n").replace("\n", end)
    assert texts_of(content) == ["The sea is near.", "It is cold.", "He is 12"]
    assert translated(content, *texts_of(content)) == content


def test_references_of_webvtt_are_characters_of_the_text_and_those_of_subrip_are_text():
    cue = "00:01.000 --> 00:02.000\nTom &amp; <i>Mary</i> say &lt;&quot;no.&quot;\n\n00:02.000 --> 00:03.000\nI see.\n"
    first, second = texts_of(f"WEBVTT\n\n{cue}", "a.vtt")
    assert (first, second) == ('Tom &amp; <s i="0">Mary</s> say &lt;"no."', "I see.")
    written = translated(f"WEBVTT\n\n{cue}", first.replace("say", "sagen"), second, name="a.vtt")
    assert written == f"WEBVTT\n\n{cue.replace('say', 'sagen').replace('&quot;', chr(34))}"
    assert texts_of(srt("Tom &amp; I.")) == ["Tom &amp;amp; I."]


def test_a_file_without_cues_is_refused_unless_it_is_empty_or_webvtt():
    with pytest.raises(UnreadableDocument, match=r"^the file has no subtitles$"):
        read_document("a.srt", b"Only a text.\n")
    for content in (b"", b"\n", b"WEBVTT\n\nNOTE none\n"):
        assert read_document("a.vtt", content).write([]) == content


def test_control_characters_in_marks_are_no_borders():
    content = srt("The <i\0>sea</i> is {\\\1}near", "the house.")
    (text,) = texts_of(content)
    assert translated(content, text) == srt("The <i>sea</i> is {\\}near", "the house.")


def test_a_file_that_is_no_text_is_refused():
    with pytest.raises(UnreadableDocument, match="not UTF-16"):
        read_document("a.srt", b"\xff\xfe1")


def test_marks_inside_each_other_are_kept_however_many_there_are():
    content = srt("<b>" * 2000 + "Tom" + "</b>" * 2000)
    assert translated(content, *texts_of(content)) == content


CUE = st.lists(
    st.sampled_from(["Tom", "sea.", "<i>", "</i>", "<b>", "old", "&", "- ", "\n", "{\\an8}", "<3", "42", "\u4e00"]),
    max_size=9,
).map(" ".join)


@given(st.lists(CUE, max_size=6), st.sampled_from([0.1, 3.0]))
def test_subtitles_whose_translations_are_their_texts_keep_times_words_and_marks(texts: list[str], gap: float):
    content = srt(*texts, gap=gap)
    found = translated(content, *texts_of(content))
    assert re.findall("(?m)^.*-->.*$", found) == re.findall("(?m)^.*-->.*$", content)
    assert found.split() == content.split()


@pytest.mark.parametrize("text", ["word\n", "- word\n", "<i>word</i>\n", "{\\an8}a word\n"])
def test_a_cue_may_have_any_number_of_lines(text: str):
    content = srt("Tom,", text * 1500)
    assert translated(content, *texts_of(content)) == content


@given(
    st.lists(st.sampled_from(["I", "saw", "an", "extraordinarily", "<i>long</i>", "{\\an8}train"])), st.integers(1, 6)
)
def test_lines_end_at_the_blanks_that_are_nearest_to_equal_lengths(words: list[str], count: int):
    text = " ".join(words)
    lines = balanced(text, count, _TAGS)
    assert " ".join(lines) == text
    rest = text
    for left, line in zip(range(count, 1, -1), lines, strict=False):
        wanted = visible(rest) / left
        ends = [visible(rest[: blank.start()]) for blank in re.finditer(" ", rest)]
        assert line == rest or abs(visible(line) - wanted) == min(abs(end - wanted) for end in ends)
        rest = rest[len(line) + 1 :]


def visible(text: str) -> int:
    return len(re.sub(r"<[^<>]*>|\{[^{}]*\}", "", text))


@pytest.mark.parametrize("digits", ["9" * 5000, "0" * 5000 + "38"])
def test_a_reference_of_webvtt_may_have_any_number_of_digits(digits: str):
    (text,) = texts_of(f"WEBVTT\n\n{srt(f'Tom &#{digits}; I')}", "a.vtt")
    assert text == f"Tom {'&amp;' if digits.endswith('38') else chr(0xFFFD)} I"


ENDS = ["\n", "\r\n"]


def upper(content: str, name: str = "a.srt") -> str:
    """The file with its texts in capitals, without what is between angle brackets."""
    texts = [
        re.sub(r"<[^<>]*>|[^<]+", lambda part: part[0] if part[0][0] == "<" else part[0].upper(), text)
        for text in texts_of(content, name)
    ]
    return translated(content, *texts, name=name)


@pytest.mark.parametrize("end", ENDS)
def test_text_after_blank_lines_in_a_cue_is_translated(end: str):
    content = srt("The sea is near.\n\nIt is cold.\n \n\nTom", "And he\nis here.", gap=3).replace("\n", end)
    assert texts_of(content) == ['The sea is near.<b i="0"/>It is cold.<b i="1"/>Tom', "And he is here."]
    words = {
        "THE SEA": "The sea",
        "IS": "is",
        "NEAR": "near",
        "IT": "It",
        "COLD": "cold",
        "TOM": "Tom",
        "AND HE": "And he",
        "HERE": "here",
    }
    found = upper(content)
    for capitals, small in words.items():
        found = found.replace(capitals, small)
    assert found == content


def test_notes_and_names_of_webvtt_end_a_cue_and_other_text_belongs_to_it():
    body = "00:01.000 --> 00:02.000\nThe sea\n\nis near.\n\nNOTE no text\n\nintro\n00:03.000 --> 00:04.000\nTom\n"
    content = f"WEBVTT\n\n{body}"
    assert texts_of(content, "a.vtt") == ['The sea<b i="0"/>is near.', "Tom"]
    assert upper(content, "a.vtt").lower() == content.lower()


AROUND = [
    ("<i>", "</i>"),
    ('<font color="#ffff00">', "</font>"),
    ("{\\an8}<b><i>", "</i></b>"),
    ("{\\i1}", "{\\i0}"),
    ("{\\an8}", ""),
    ("\u266a ", " \u266a"),
    ("- <i>", "</i>"),
    ("<i>- ", "</i>"),
    ("<i>", ""),
]


@pytest.mark.parametrize(("before", "after"), AROUND)
def test_a_format_around_a_whole_cue_or_line_stays_around_its_whole_translation(before: str, after: str):
    content = srt(f"{before}It is{after}", f"{before}raining.{after}", gap=3)
    assert texts_of(content) == ["It is", "raining."]
    assert translated(content, "Es", "regnet.") == srt(f"{before}Es{after}", f"{before}regnet.{after}", gap=3)
    lines = srt(f"{before}The sea is near,{after}\n{before}and it is cold.{after}")
    plain = "".join(re.sub("<b[^>]*>", " ", text) for text in texts_of(lines))
    assert plain == "The sea is near, and it is cold."
    whole = srt(f"{before}The sea is near,\nand it is cold.{after}")
    assert texts_of(whole) == ["The sea is near, and it is cold."]
    assert translated(whole, "Das Meer ist nah, es ist kalt.") == srt(f"{before}Das Meer ist nah,\nes ist kalt.{after}")


def test_formats_around_both_lines_are_around_both_lines_of_the_translation():
    content = srt("<i>Please close</i>\n<i>the window.</i>")
    assert texts_of(content) == ["Please close the window."]
    assert translated(content, "Bitte schlie\u00dfen Sie das Fenster.") == srt(
        "<i>Bitte schlie\u00dfen</i>\n<i>Sie das Fenster.</i>"
    )
    sentence = srt("<i>I said to</i>\nthe old man.")
    assert texts_of(sentence) == ['<s i="0">I said to</s> the old man.']
    apart = srt("<i>It is late.</i>\nThe sea is near.")
    assert texts_of(apart) == ['It is late.<b i="0"/>The sea is near.']
    assert upper(apart) == srt("<i>IT IS LATE.</i>\nTHE SEA IS NEAR.")


def test_a_format_around_two_cues_of_a_sentence_stays_around_each():
    content = srt("<i>I would like to know</i>", "<i>where he is.</i>")
    assert texts_of(content) == ['I would like to know <v i="0"/>where he is.']
    written = translated(content, 'Ich w\u00fcsste gern, <v i="0"/>wo er ist.')
    assert written == srt("<i>Ich w\u00fcsste gern,</i>", "<i>wo er ist.</i>")


@pytest.mark.parametrize("mark", ["- ", "-", "\u2013 ", "\u2014", "-- ", ">> "])
@pytest.mark.parametrize("end", ["\n", "\\N"])
def test_each_voice_keeps_its_lines(mark: str, end: str):
    content = srt(f"{mark}The sea is near{end}and cold.{end}{mark}No.")
    assert texts_of(content) == ['The sea is near and cold.<b i="0"/>No.']
    assert translated(content, 'Ein Meer ist da und es ist so.<b i="0"/>Nein.') == srt(
        f"{mark}Ein Meer ist da{end}und es ist so.{end}{mark}Nein."
    )


def test_voices_of_webvtt_are_sentences_of_their_own():
    cue = "00:01.000 --> 00:02.000\n<v Tom>I am here</v> <v.loud Mary>So am I</v>\n<v Tom>and there"
    content = f"WEBVTT\n\n{cue}\n"
    assert texts_of(content, "a.vtt") == ['I am here<b i="0"/>So am I<b i="1"/>and there']
    written = translated(content, 'Hier<b i="0"/>Ich auch<b i="1"/>und da', name="a.vtt")
    assert written == content.replace("I am here", "Hier").replace("So am I", "Ich auch").replace("and there", "und da")


def test_hard_blanks_and_line_breaks_of_other_subtitles_are_no_text():
    content = srt("The\\hsea is\\Nnear.")
    assert texts_of(content) == ["The sea is near."]
    assert translated(content, "Das Meer ist nah.") == srt("Das Meer\\Nist nah.")


@pytest.mark.parametrize("end", ENDS)
def test_a_new_line_ends_as_the_lines_of_the_file(end: str):
    content = srt("The weather was nice.").replace("\n", end)
    long = "Das Wetter war sehr sch\u00f6n, als wir mit unseren Freunden gingen."
    assert translated(content, long).count(end) == content.count(end) + 1
    assert translated(content, long).replace(end, "").count("\n") == 0


@pytest.mark.parametrize("codec", ["cp1252", "utf-16", "utf-16-le", "utf-16-be", "utf-8-sig"])
def test_subtitles_keep_their_encoding_which_is_said(codec: str):
    text = srt("Tom drinks in the caf\u00e9 \u2026", "It is Zo\u00eb.", gap=3)
    document = read_document("a.srt", text.encode(codec))
    assert document.texts == ["Tom drinks in the caf\u00e9 \u2026", "It is Zo\u00eb."]
    assert document.write(document.texts) == text.encode(codec)
    assert [note.partition(",")[0] for note in document.notes] == (
        []
        if codec == "utf-8-sig"
        else ["the file is in Windows-1252"]
        if codec == "cp1252"
        else [f"the file is in {WIDE[codec]}"]
    )


WIDE = {"utf-16": "UTF-16-LE", "utf-16-le": "UTF-16-LE", "utf-16-be": "UTF-16-BE"}


def test_a_translation_that_the_encoding_lacks_is_written_in_utf_8():
    document = read_document("a.srt", srt("The caf\u00e9.").encode("cp1252"))
    assert document.write(["\u041a\u0430\u0444\u0435."]).decode() == srt("\u041a\u0430\u0444\u0435.")
    assert document.notes == [
        "the file is in Windows-1252; its translation is in UTF-8, for Windows-1252 has no '\\u041a'"
    ]


def test_webvtt_is_always_written_in_utf_8():
    content = "WEBVTT\n\n00:01.000 --> 00:02.000\nThe caf\u00e9.\n"
    document = read_document("a.vtt", content.encode("cp1252"))
    assert document.write(document.texts).decode() == content
    assert document.notes == ["the file is in Windows-1252; its translation is in UTF-8, as WebVTT demands"]


@pytest.mark.parametrize("path", ["C:\\New\\a.txt", "C:\\a\\New\\b", "\\\\host\\Nets\\a"])
def test_a_path_has_no_line_break(path: str):
    assert texts_of(srt(f"Open {path} now.")) == [f"Open {path} now."]


@pytest.mark.parametrize("line", ["-" * 4, "-" * 10, "\u2014" * 8])
def test_a_line_of_dashes_is_no_voice(line: str):
    content = srt(f"<b>{line}</b> is here.\n{line} too.")
    (text,) = texts_of(content)
    assert text.count(line) == 2
    assert translated(content, text) == content
