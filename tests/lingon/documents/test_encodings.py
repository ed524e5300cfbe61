"""The encodings of text files: which are told, which are refused, and how a translation is written."""

from __future__ import annotations

import codecs

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingon.documents import UnreadableDocument, read_document
from lingon.documents.encodings import SAMPLE_BYTES, read_encoded

LATIN = {
    "de": ("cp1252", "Die Übersetzung der Straße war für alle schön."),
    "fr": ("cp1252", "Où est la forêt\u00a0? Je l\u2019ai déjà cherchée, ça va."),
    "es": ("cp1252", "¿Dónde está el niño? Mañana, señor."),
    "en": ("cp1252", "I don\u2019t know \u2026 \u201cHello\u201d, he said."),
    "names": ("cp1252", "A façade in Málaga, the señor of Ålesund and Motör São"),
    "sv": ("cp1252", "Där är en ö och då är det många."),
    "da": ("cp1252", "Jeg ved ikke, hvor øen er, sig æblet på."),
    "it": ("cp1252", "Perché non è già qui? Così è la città."),
    "pt": ("cp1252", "Não sei onde ele está. Então diga, irmão, nº 5."),
    "pl": ("cp1250", "Nie wiem, gdzie jest. Powiedz mu prawdę o ciążach."),
    "cs": ("cp1250", "Nevím, kde teď je. Řekni mu pravdu o té věci."),
    "hu": ("cp1250", "Nem tudom, hol van a kulcs, őrült vagy? Így szólt."),
    "ro": ("cp1250", "Nu ştiu unde este. Spune-i adevărul, băiat."),
    "hr": ("cp1250", "Reci mu istinu, čovječe, možeš li."),
    "tr": ("cp1254", "Şimdi nerede olduğunu bilmiyorum, çocuğum."),
    "lt": ("cp1257", "Aš nežinau, kur jis yra. Pasakyk tiesą, vaikų."),
}
OTHER = {
    "ru": (
        "cp1251",
        "Я не знаю, где он сейчас. Скажи правду.",
    ),
    "el": (
        "cp1253",
        "Δεν ξέρω πού είναι. Πες την αλήθεια.",
    ),
    "he": (
        "cp1255",
        "אני לא יודע איפה הוא עכשיו.",
    ),
    "ar": (
        "cp1256",
        "لا أعرف أين هو الآن. قل له الحقيقة.",
    ),
    "ja": ("cp932", "彼が今どこにいるのか知りません。"),
    "zh": (
        "gb18030",
        "我不知道他现在在哪里。告诉他真相。",
    ),
    "ko": ("cp949", "그가 지금 어디에 있는지 모르겠어요."),
}


@pytest.mark.parametrize("times", [3, 40])
@pytest.mark.parametrize(("codec", "text"), [*LATIN.values(), *OTHER.values()], ids=[*LATIN, *OTHER])
def test_the_encoding_of_a_file_is_told_by_its_bytes(codec: str, text: str, times: int):
    whole = f"1\n00:00:01,000 --> 00:00:02,000\n{text}\n\n" * times
    found, encoding = read_encoded(whole.encode(codec))
    assert (encoding.codec, found) == (codec, whole)


@pytest.mark.parametrize("codec", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("text", ["Tom\n", "He drinks coffee. \u2026", "Zo\u00eb and \u4e00 are here"])
def test_utf_16_is_told_without_a_byte_order_mark(codec: str, text: str):
    assert read_encoded(text.encode(codec))[0] == text


@pytest.mark.parametrize(
    ("mark", "codec"),
    [
        (codecs.BOM_UTF8, "utf-8"),
        (codecs.BOM_UTF16_LE, "utf-16-le"),
        (codecs.BOM_UTF16_BE, "utf-16-be"),
        (codecs.BOM_UTF32_LE, "utf-32-le"),
        (codecs.BOM_UTF32_BE, "utf-32-be"),
    ],
)
def test_a_byte_order_mark_says_the_encoding_and_stays(mark: bytes, codec: str):
    content = mark + "Zo\u00eb \u4e00".encode(codec)
    text, encoding = read_encoded(content)
    assert (text, encoding.written(text, [])) == ("Zo\u00eb \u4e00", content)


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")))
def test_what_is_utf_8_is_read_as_utf_8(text: str):
    if not text.startswith("\ufeff"):
        assert read_encoded(text.encode())[0] == text


@pytest.mark.parametrize(
    "content",
    [
        b"\xff",
        b"PK\x03\x04\x00\xff\xfe\x81",
        bytes(range(256)) * 10,
        "\u041f\u0440\u0438\u0432\u0435\u0442".encode("cp1251"),
        b"Tom \xe9 \x81",
        "\u0142\u00e6".encode() + b"\xe9",
    ],
)
def test_an_encoding_that_is_not_sure_is_refused_in_one_line(content: bytes):
    with pytest.raises(UnreadableDocument, match=r"^the file is not UTF-8: .* at byte \d+; "):
        read_encoded(content)


def test_a_letter_far_below_tells_the_encoding():
    content = (b"Tom is here.\n" * SAMPLE_BYTES) + "Zo\u00eb".encode("cp1252")
    assert read_encoded(content)[0].endswith("Zo\u00eb")


STATEMENTS = [
    '<meta charset="{}">',
    "<meta charset={}>",
    '<meta http-equiv="Content-Type" content="text/html; charset={}">',
    '<?xml version="1.0" encoding="{}"?>',
]


@pytest.mark.parametrize("statement", STATEMENTS)
@pytest.mark.parametrize("charset", ["windows-1252", "ISO-8859-1", "Shift_JIS", "koi8-r"])
def test_a_page_is_written_in_the_encoding_that_it_says(statement: str, charset: str):
    page = f"<html><head>{statement.format(charset)}</head><p>The sea</p></html>"
    document = read_document("a.html", page.encode())
    written = document.write([document.texts[0].replace("The sea", "Gr\u00fc\u00dfe \u20ac \u0142 \u4e00")])
    codec = {"ISO-8859-1": "cp1252"}.get(charset, charset)
    expected = page.replace("The sea", "Gr\u00fc\u00dfe \u20ac \u0142 \u4e00").encode(codec, "xmlcharrefreplace")
    assert (written, document.notes) == (expected, [])


@pytest.mark.parametrize("charset", ["utf-16", "utf-8", "unknown", "rot13", "base64", "\u00e9", "idna"])
def test_a_page_that_states_another_encoding_than_its_own_is_utf_8(charset: str):
    page = f"<meta charset={charset}><p>Zo\u00eb</p>"
    document = read_document("a.html", page.encode())
    assert document.write(document.texts) == page.encode()


@pytest.mark.parametrize("name", ["a.txt", "a.md", "a.html"])
def test_a_file_in_another_encoding_keeps_it_and_says_so(name: str):
    content = "Tom drinks in the caf\u00e9.\n"
    document = read_document(name, content.encode("cp1252"))
    assert document.write([document.texts[0].replace("drinks", "trinkt \u00fcberall")]) == content.replace(
        "drinks", "trinkt \u00fcberall"
    ).encode("cp1252")
    assert document.notes == ["the file is in Windows-1252, and so is its translation"]
