"""Localisation files of keys and texts with shipped models: what programs put in stays, in a file that they read."""

from __future__ import annotations

import csv
import io
import json
import plistlib
import re
from collections import Counter
from collections.abc import Callable, Iterator

import javaproperties
import openstep_plist
import pytest
import yaml
from fluent.syntax import ast, parse

from lingon import Model
from tests.support.repository import ROOT

SENTENCES = [
    "Welcome back, @!",
    "@ has sent you a message.",
    "Do you really want to delete @?",
    "The file @ could not be opened, because @ is reading it.",
    "Click <b>Save</b> to keep the changes of @.",
    "Your order @ was shipped on @.",
    "Please enter the password of <i>@</i> first.",
]
"""In place of each @ is a placeholder of the format."""

PLIST = (
    '<plist version="1.0"><dict>{}</dict></plist>',
    "<key>{}</key><dict><key>NSStringFormatSpecTypeKey</key><string>NSStringPluralRuleType</string>"
    "<key>other</key><string>{}</string></dict>",
)


def _fluent(text: str) -> list[str]:
    resource = parse(text)
    assert not [entry for entry in resource.body if isinstance(entry, ast.Junk)]
    values = [entry.value for entry in resource.body if isinstance(entry, ast.Message) and entry.value]
    return [text[value.span.start : value.span.end] for value in values if value.span]


def _plist(text: str) -> list[str]:
    return [each["other"] for each in plistlib.loads(text.encode()).values()]


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


FORMATS: dict[str, tuple[str, Callable[[dict[str, str]], str], Callable[[str], list[str]]]] = {
    "a.json": ("{{name}}", json.dumps, lambda text: list(json.loads(text).values())),
    "a.arb": ("{name}", json.dumps, lambda text: list(json.loads(text).values())),
    "messages.json": (
        "$NAME$",
        lambda texts: json.dumps({key: {"message": text} for key, text in texts.items()}),
        lambda text: [each["message"] for each in json.loads(text).values()],
    ),
    "a.properties": (
        "{0}",
        lambda texts: "".join(f"{key} = {text}\n" for key, text in texts.items()),
        lambda text: list(javaproperties.loads(text).values()),
    ),
    "a.strings": (
        "%@",
        lambda texts: "".join(f'"{key}" = "{text}";\n' for key, text in texts.items()),
        lambda text: list(openstep_plist.loads(text, use_numbers=False).values()),
    ),
    "a.stringsdict": (
        "%d",
        lambda texts: PLIST[0].format("".join(PLIST[1].format(key, _escaped(text)) for key, text in texts.items())),
        _plist,
    ),
    "en.yml": (
        "%{name}",
        lambda texts: "en:\n" + "".join(f'  {key}: "{text}"\n' for key, text in texts.items()),
        lambda text: list(next(iter(yaml.safe_load(text).values())).values()),
    ),
    "a.ftl": ("{ $name }", lambda texts: "".join(f"{key} = {text}\n" for key, text in texts.items()), _fluent),
    "a.csv": (
        "{name}",
        lambda texts: "source,target\n" + "".join(f'"{text}",\n' for text in texts.values()),
        lambda text: [row[1] for row in list(csv.reader(io.StringIO(text)))[1:]],
    ),
}


@pytest.fixture(scope="module", params=["en-de", "en-fr"])
def model(request: pytest.FixtureRequest) -> Iterator[Model]:
    with Model(str(ROOT / "models" / request.param)) as found:
        yield found


@pytest.mark.parametrize("name", FORMATS)
def test_each_text_keeps_its_placeholders_and_tags_in_a_file_that_its_parser_reads(model: Model, name: str):
    placeholder, written, read = FORMATS[name]
    texts = {f"k{number}": text.replace("@", placeholder) for number, text in enumerate(SENTENCES)}
    content = written(texts)
    result = model.translate_document(name, content.encode(), beam_size=1)
    assert result.failures == ()
    found = read(result.content.decode())
    kept = re.compile(rf"{re.escape(placeholder)}|</?[bi]>")
    for text, translation in zip(texts.values(), found, strict=True):
        assert Counter(kept.findall(translation)) == Counter(kept.findall(text)), translation
        assert kept.sub("", translation) != kept.sub("", text)


def test_each_arm_of_a_message_is_translated(model: Model):
    text = "{n, plural, =0 {You have no new messages} one {You have # new message} other {You have # new messages}}"
    result = model.translate_document("a.arb", json.dumps({"a": text}).encode(), beam_size=1)
    (found,) = json.loads(result.content).values()
    arms = re.findall(r"(=0|one|many|other) \{([^{}]*)\}", found)
    assert [arm for arm, _ in arms] in (["=0", "one", "other"], ["=0", "one", "many", "other"])
    assert [translation.count("#") for _, translation in arms] == [0, *[1] * (len(arms) - 1)]
    assert "You have" not in found
