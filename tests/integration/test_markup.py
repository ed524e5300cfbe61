"""Markup through the shipped model: tags come with the translations of their words, and do not change these."""

from __future__ import annotations

import random
import re
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any
from xml.etree import ElementTree

import pytest

from lingon.client.messages import text_results, translate_request
from lingon.serving.in_process import LocalTranslator
from lingon.translation.v1 import translation_pb2 as pb
from tests.support.documents import tagged, tags_of, without_tags
from tests.support.repository import scaled
from tests.support.shipped_model import LINES, MODEL

SENTENCES = [line for line in LINES if not set(line) & set("<>&{}%/")][: scaled(150, 500)]


@pytest.fixture(scope="module")
def translator() -> Iterator[LocalTranslator]:
    with LocalTranslator(MODEL, precision="fp32") as opened:
        yield opened


def translate(translator: LocalTranslator, texts: Sequence[str], **options: Any) -> list[str]:
    request = translate_request(pb.TranslateRequest, texts, [], {"beam_size": 1, **options})
    return [result.text for result in text_results(translator.translate(request))]


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("<p>Tom lives in <b>Boston</b>.</p>", "<p>Tom wohnt in <b>Boston</b>.</p>"),
        ("I bought a <a href='?a&b'>red car</a>.", "Ich habe mir ein <a href='?a&b'>rotes Auto</a> gekauft."),
        ("<i>He has <b>two dogs</b></i> and a cat.", "<i>Er hat <b>zwei Hunde</b></i> und eine Katze."),
        ("<ul><li>Where is <b>the station</b>?<li>Tom", "<ul><li>Wo ist <b>der Bahnhof</b>?<li>Tom"),
        ("I know that he cannot <u>swim</u>.", "Ich weiß, dass er nicht <u>schwimmen</u> kann."),
        ("I will <b>help</b> you tomorrow.", "Ich werde dir morgen <b>helfen</b>."),
        ("I can't <b>find</b> my keys.", "Ich kann meine Schlüssel nicht <b>finden</b>."),
        ("I CAN'T <b>FIND</b> MY KEYS.", "ICH KANN MEINE SCHLÜSSEL NICHT <b>FINDEN</b>."),
        ("YOU MUST <i>READ</i> THIS BOOK.", "DU MUSST DIESES BUCH <i>LESEN</i>."),
        ("I want to <b>drink</b> a glass of {name}.", "Ich möchte ein Glas {name} <b>trinken</b>."),
        ("I must <b>read</b> <code>x y</code> now.", "Ich muss <code>x y</code> jetzt <b>lesen</b>."),
        ("He said <b>&quot;hello&quot;</b> to me.", "Er sagte mir <b>„Hallo“</b>."),
        ("He said &quot;<b>hello</b>&quot; to me.", "Er sagte mir „<b>Hallo</b>“."),
        ("<b>Stop!</b> he said.", "<b>Hör auf!</b> Er sagte."),
        ("<b>Yes. I know that.</b> But no.", "<b>Ja. Ich weiß das.</b> Aber nein."),
        ("Please open your '<b>Basic</b>' plan.", "Öffnen Sie bitte Ihren „<b>Basic</b>“-Plan."),
    ],
)
def test_tags_come_with_the_translations_of_their_words(translator: LocalTranslator, source: str, target: str):
    assert translate(translator, [source], format="html") == [target]


@pytest.mark.parametrize(
    "kept", ["{count}", "{{ name }}", "${x}", "%s", "https://example.org/a", "20192", "{{ a b }}{c}"]
)
@pytest.mark.parametrize(
    "text",
    [
        "Hello <b>{}</b>, how are you?",
        "<i>Hello <b>{}</b></i>, how are you?",
        "<b>{}</b> is in <i>the garden</i>.",
        "The '<b>{}</b>' plan is <b><i>{}</i></b>.",
        "Press <b>{}</b><img src='a'/>, then <i>go home</i>.",
        "<b>Tom lives in <i>{}</i>.</b> He is happy.",
    ],
)
def test_tags_stay_right_around_a_string_that_is_kept(translator: LocalTranslator, kept: str, text: str):
    source = text.replace("{}", kept)
    (result,) = translate(translator, [source], format="html")
    assert without_tags(result).count(kept) == source.count(kept)
    inner = re.compile(rf"<(\w)>{re.escape(kept)}</\1>")
    assert [found[0] for found in inner.finditer(result)] == [found[0] for found in inner.finditer(source)]
    assert not text.startswith("Press") or f"{kept}</b><img src='a'/>" in result


def test_tags_in_the_arms_of_a_message_stay_in_them(translator: LocalTranslator):
    text = "{n, plural, one {<i>a file</i>} other {<b>#</b> files in <u>the house</u>}}"
    (result,) = translate(translator, [text], format="html")
    assert result == "{n, plural, one {<i>Eine Datei</i>} other {<b>#</b> Dateien <u>im Haus</u>}}"


def words(text: str) -> list[str]:
    """The words of a text, with the marks at them: an element without text may have spaces on both sides."""
    return re.sub(r"\s*([^\w\s])\s*", r"\1", text).split()


def test_any_nesting_comes_exactly_once_and_does_not_change_the_translation(translator: LocalTranslator):
    rng = random.Random(7)
    pages = [tagged(sentence, rng) for sentence in SENTENCES * scaled(1, 3)]
    plain = translate(translator, [re.sub(" +", " ", without_tags(page)) for page in pages])  # not columns
    results = translate(translator, pages, format="html")
    for page, result, text in zip(pages, results, plain, strict=True):
        assert Counter(tags_of(result)) == Counter(tags_of(page)), result
        ElementTree.fromstring(f"<all>{result}</all>")
        assert words(without_tags(result)) == words(text.replace("&", "&amp;"))


def test_a_page_is_translated_the_same_alone_and_among_others(translator: LocalTranslator):
    rng = random.Random(3)
    pages = [tagged(sentence, rng) for sentence in SENTENCES[:40]]
    alone = [translate(translator, [page], format="html")[0] for page in pages]
    assert translate(translator, pages, format="html") == alone


def test_a_long_sentence_with_many_tags_takes_time_linear_in_its_length(
    translator: LocalTranslator,
):
    """With weights between all of its words this took ten seconds and 2.5 GB."""
    text = "<p>" + "the man who lives in the house <b>that</b> we see " * 600 + "</p>"
    began = time.process_time()
    (result,) = translate(translator, [text], format="html", split_sentences="off", long_text="split")
    assert result.count("<b>") == result.count("</b>") == 600
    assert time.process_time() - began < 60
