"""Files of localisation that were translated, as another program reads them."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from translate.misc.multistring import multistring
from translate.storage import aresource, resx, tmx, ts2, xliff

from lingon.documents import read_document
from lingon.documents.plurals import categories
from lingon.documents.qt_and_resx import forms_of

TEXTS = {  # as a program shows them, by what is written in XML
    "Tom": "TOM",
    "Tom &amp; me": "TOM & ME",
    "It is &lt;b&gt;red&lt;/b&gt;": "IT IS <b>RED</b>",
    "Caf\u00e9": "CAF\u00c9",
    "A {0} b": "A {0} B",
}


def translated(name: str, text: str, target: str = "de") -> bytes:
    document = read_document(name, text.encode(), target)
    return document.write([upper(each) for each in document.texts])


def upper(text: str) -> str:
    """Return a text in capitals, but for its references and tags."""
    parts = text.replace("&", "\0&").replace("<", "\0<").replace(";", ";\0").replace(">", ">\0").split("\0")
    return "".join(part if part.startswith(("&", "<")) else part.upper() for part in parts)


@pytest.mark.parametrize("text", TEXTS)
def test_resources_of_net(text: str):
    content = f"<root><resheader/><data name='a'><value>{text}</value><comment>c</comment></data></root>"
    store = resx.RESXFile()
    store.parse(translated("a.resx", content))
    assert [unit.target for unit in store.units] == [TEXTS[text]]


@pytest.mark.parametrize("text", TEXTS)
def test_messages_of_qt(text: str):
    message = f"<message><source>{text}</source></message>"
    content = f"<TS version='2.1' language='de'><context><name>m</name>{message}</context></TS>"
    (unit,) = ts2.tsfile.parsestring(translated("a.ts", content)).units
    assert unit.target == TEXTS[text]
    assert unit.isfuzzy()


@pytest.mark.parametrize("language", ["de", "pl", "ar", "ja"])
def test_messages_of_qt_with_numbers(language: str):
    message = "<message numerus='yes'><source>%n a</source></message>"
    content = f"<TS version='2.1' language='{language}'><context><name>m</name>{message}</context></TS>"
    (unit,) = ts2.tsfile.parsestring(translated("a.ts", content)).units
    assert unit.target.strings == ["%N A"] * forms_of(language)


@pytest.mark.parametrize("text", TEXTS)
def test_translation_memories(text: str):
    unit = f"<tu><tuv xml:lang='en'><seg>{text}</seg></tuv></tu>"
    content = f"<tmx version='1.4'><header srclang='en'/><body>{unit}</body></tmx>"
    (found,) = tmx.tmxfile.parsestring(translated("a.tmx", content)).units
    assert found.target == TEXTS[text]


@pytest.mark.parametrize("text", TEXTS)
def test_xliff(text: str):
    unit = f"<trans-unit id='1'><source>{text}</source></trans-unit>"
    space = "urn:oasis:names:tc:xliff:document:1.2"
    body = f"<file original='a' source-language='en'><body>{unit}</body></file>"
    content = f"<xliff version='1.2' xmlns='{space}'>{body}</xliff>"
    (found,) = xliff.xlifffile.parsestring(translated("a.xlf", content)).units
    assert found.target == TEXTS[text]


ANDROID: Mapping[str, str] = {
    r"Don\'t \"go\"": 'DON\'T "GO"',
    '"It\'s  me"': "IT'S  ME",
    r"Caf\u00e9 \@home": "CAF\u00c9 @HOME",
    "<![CDATA[Tom & <b>me</b>]]>": "TOM & <b>ME</b>",
}


@pytest.mark.parametrize("text", ANDROID)
def test_strings_of_android(text: str):
    store = aresource.AndroidResourceFile()
    store.parse(translated("a.xml", f'<resources><string name="a">{text}</string></resources>'))
    assert [unit.target for unit in store.units] == [ANDROID[text]]


@pytest.mark.parametrize("language", ["de", "ar", "ja"])
def test_plurals_of_android(language: str):
    items = '<item quantity="one">a</item><item quantity="other">b</item>'
    content = f'<resources><plurals name="p">{items}</plurals></resources>'
    store = aresource.AndroidResourceFile()
    store.settargetlanguage(language)
    store.parse(translated("a.xml", content, language))
    (unit,) = store.units
    assert isinstance(unit.target, str)
    forms = unit.target.strings if isinstance(unit.target, multistring) else [unit.target]
    assert sorted(forms) == sorted("A" if each == "one" else "B" for each in categories(language))
