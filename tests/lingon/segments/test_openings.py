"""An initial or a title before a name ends no sentence, and neither does a quotation before what is said of it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lingon.segments.boundaries import TITLES
from lingon.segments.layout import Split, cut
from tests.support.repository import scaled
from tests.support.timing import LINEAR, growth_of

LANGUAGES = """
    aa ab ace af ak am ar arz as ast av ay az ba be bg bh bi bm bn bo br bs ca ce ceb ch cr cs cu cv cy da de
    dv dz ee el en eo es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi hr ht hu hy ia id ig ik is it
    iu ja jv ka kg ki kk kl km kn ko ks ku kv kw ky la lb lg li ln lo lt lv mg mi mk ml mn mr ms mt my na nb
    nds ne nl nn no nv ny oc om or os pa pl ps pt qu rm rn ro ru rw sa sc sd se sg si sk sl sm sn so sq sr ss
    st su sv sw ta te tg th ti tk tl tn to tr ts tt tw ty ug uk ur uz ve vi vo wa wo xh yi yo za zh zu
"""
OPENINGS = ["", "“", "„", "«", "(", "¿", "- ", "1. ", "• ", "a) ", "- “"]
NAMES = {"M": "Dupont", "A": "Rossi", "J. R. R": "Tolkien", "É": "Zola", "A. M": "Bell", "J.-P": "Martin"}


def segments(text: str, language: str) -> list[str]:
    return [text[begin:end] for begin, end in cut(text, Split.SENTENCES, language) if begin < end]


@pytest.mark.parametrize("language", LANGUAGES.split())
def test_an_initial_at_the_begin_goes_with_the_name_after_it(language: str):
    for initial, name in list(NAMES.items())[:5]:
        for opening in OPENINGS:
            first = segments(f"{opening}{initial}. {name} was here", language)
            assert len(first) == 1, first
            assert first[0].endswith(f"{initial}. {name} was here")


@pytest.mark.parametrize("language", LANGUAGES.split())
def test_a_title_at_the_begin_or_within_goes_with_the_name_after_it(language: str):
    for title in f"{TITLES['']} {TITLES.get(language, '')}".split():
        if title in "abcdefgh":  # which may be the letter of an item too, and is kept then
            continue
        for opening in OPENINGS:
            (found,) = segments(f"{opening}{title}. Boston 12 was here", language)
            assert found.endswith(f"{title}. Boston 12 was here")
        (found,) = segments(f"Tom saw {title}. Boston here", language)
        assert found.endswith("here")


@settings(max_examples=scaled(100, 2_000))
@given(st.sampled_from(["د", "أ", "أ.د", "م"]), st.sampled_from(["أحمد", "محمد", "علي"]))
def test_arabic_titles_of_one_letter_go_with_the_name(title: str, name: str):
    assert segments(f"{title}. {name} هنا. ذهب إلى البيت.", "ar") == [f"{title}. {name} هنا.", "ذهب إلى البيت."]


@pytest.mark.parametrize("language", ["en", "de", "fr", "es", "it", "ru", "vi", "ar", "xx"])
def test_short_sentences_still_end_at_their_stop(language: str):
    assert segments("Tom left the house. He was sad.", language) == ["Tom left the house.", "He was sad."]
    assert segments("Come here! Tom is there.", language)[0] == "Come here!"


@pytest.mark.parametrize("close", ["」", "』"])
@pytest.mark.parametrize("end", ["。", "！", "？", ""])
@pytest.mark.parametrize("rest", ["と言った。", "って聞いた。", "などと書いた。", "なんて言わない。"])
def test_what_is_said_of_a_japanese_quotation_stays_with_it(close: str, end: str, rest: str):
    opening = {"」": "「", "』": "『"}[close]
    sentence = f"{opening}行く{end}{close}{rest}"
    assert segments(f"{sentence}彼は来た。", "ja") == [sentence, "彼は来た。"]


def test_a_sentence_after_a_japanese_quotation_is_its_own():
    assert segments("「はい。」彼は来た。", "ja") == ["「はい。」", "彼は来た。"]
    assert segments("「はい。」とても良い。", "ja") == ["「はい。」", "とても良い。"]


@pytest.mark.parametrize("piece", ["M. ", "A.", "Dr. ", "“A. ", "「。」と", "J. Tom. "])
def test_the_time_grows_linearly_with_the_text(piece: str):
    def prepare(size: int):
        text = piece * (size // len(piece))
        return lambda: sum(1 for _ in cut(text, Split.SENTENCES, "fr"))

    growth = growth_of(prepare, 2**12, worth=0.002, most=2**17)
    assert growth.ratio <= LINEAR or growth.twice < 0.05
