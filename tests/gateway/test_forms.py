"""Forms, queries and JSON as programs without an encoder of their own send them: all text is UTF-8."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from lingon.gateway.body import MAX_FIELDS, MULTIPART, URLENCODED, read_form, read_query
from lingon.gateway.problem import Problem
from tests.support.gateway import gateway

TEXT = "Café; 10% & more"
REST = {"/v2/translate": "target_lang=DE", "/translate": "source=en&target=de", "/language/translate/v2": "target=de"}
NAMES = {"/v2/translate": "text", "/translate": "q", "/language/translate/v2": "q"}
PARTS = f"{MULTIPART}; boundary=x"
MARK = b"\xef\xbb\xbf"


def part(disposition: str | bytes, content: bytes = b"Tom") -> bytes:
    """Return a part of a form with the boundary x."""
    shown = disposition.encode() if isinstance(disposition, str) else disposition
    return b"--x\r\nContent-Disposition: form-data; " + shown + b"\r\n\r\n" + content + b"\r\n"


def of(*parts: bytes) -> bytes:
    return b"".join(parts) + b"--x--\r\n"


@pytest.mark.parametrize("path", REST)
async def test_a_form_and_a_query_are_utf_8_whether_percent_encoded_or_not(path: str):
    raw = f"{NAMES[path]}={TEXT.replace('&', '%26')}&format=text&{REST[path]}"
    coded = f"{NAMES[path]}={quote(TEXT)}&format=text&{REST[path]}"
    fields = [pair.split("=") for pair in (*REST[path].split("&"), "format=text")]
    parts = [part(f'name="{NAMES[path]}"', TEXT.encode()), *(part(f'name="{n}"', v.encode()) for n, v in fields)]
    async with gateway() as http:
        replies = [
            await http.send("POST", path, raw.encode(), URLENCODED),
            await http.send("POST", path, coded.encode(), f"{URLENCODED}; charset=UTF-8"),
            await http.send("POST", f"{path}?{coded}"),
            await http.send("POST", path, of(*parts), PARTS),
        ]
    for reply in replies:
        assert reply.status == 200, reply.body
        assert TEXT in reply.body.decode(), reply.body


@pytest.mark.parametrize(
    ("query", "body", "kind"),
    [
        ("", b"source=en&q=Caf\xe9&target=de", URLENCODED),
        ("", b"source=en&q=Caf%E9&target=de", URLENCODED),
        ("?source=en&q=Caf%E9&target=de", b"", ""),
        ("", of(part('name="source"', b"en"), part('name="q"', b"Caf\xe9")), PARTS),
    ],
)
async def test_a_byte_that_is_no_utf_8_is_refused_and_named_with_its_field(query: str, body: bytes, kind: str):
    async with gateway() as http:
        reply = await http.send("POST", f"/translate{query}", body, kind)
    assert (reply.status, reply.json["error"]) == (400, "q must be in UTF-8, got the byte 0xE9 at position 3")


@pytest.mark.parametrize("kind", [URLENCODED, PARTS])
async def test_a_form_that_declares_another_charset_is_refused(kind: str):
    async with gateway() as http:
        reply = await http.send("POST", "/translate", b"q=Tom", f"{kind}; charset=ISO-8859-1")
    assert (reply.status, reply.json["error"]) == (415, "a form must be in UTF-8, got the charset 'ISO-8859-1'")


@pytest.mark.parametrize("kind", ["application/json", ""])
async def test_json_may_begin_with_a_byte_order_mark(kind: str):
    body = MARK + '{"q": "Café", "source": "en", "target": "de"}'.encode()
    message = MARK + '{"texts": ["Café"], "options": null}'.encode()  # null is left to the reader of protobuf
    async with gateway() as http:
        reply = await http.send("POST", "/translate", body, kind)
        native = await http.send("POST", "/v1/translate", message, kind)
    assert reply.json == {"translatedText": "Café"}
    assert native.json["results"][0]["hypotheses"][0]["text"] == "Café"


@pytest.mark.parametrize(
    ("query", "fields"),
    [
        (b"a=1;b=2&c", [("a", "1;b=2"), ("c", "")]),
        (b"&a=b=c&&a=+%2B%2", [("a", "b=c"), ("a", " +%2")]),
        (b"%C3%A9=\xc3\xa9", [("é", "é")]),
        (b"", []),
    ],
)
def test_only_an_ampersand_separates_fields(query: bytes, fields: list[tuple[str, str]]):
    assert read_query(query) == fields
    assert read_form(URLENCODED, query) == (fields, None)


@pytest.mark.parametrize(
    ("disposition", "name"),
    [
        ('filename="Café.txt"', "Café.txt"),
        (b'filename="Caf\xe9.txt"', "Café.txt"),  # curl on Windows
        ("filename*=UTF-8''Caf%C3%A9.txt", "Café.txt"),  # older versions of Python's requests
        ("filename=\"=?utf-8?B?Q2Fmw6kudHh0?=\"; filename*=utf-8''Caf%C3%A9.txt", "Café.txt"),  # .NET
        ("filename*=iso-8859-1'de'Caf%E9.txt; filename=c.txt", "Café.txt"),
        ('filename=""', ""),
    ],
)
def test_a_file_has_the_name_that_its_client_gives_it(disposition: str | bytes, name: str):
    shown = disposition.encode() if isinstance(disposition, str) else disposition
    fields, file = read_form(PARTS, of(part('name="q"', b"1"), part(b'name="file"; ' + shown, b"\xff\r\n")))
    assert (fields, file) == ([("q", "1")], (name, b"\xff\r\n"))


@pytest.mark.parametrize(
    ("kind", "body", "message"),
    [
        (PARTS, of(*[part('name="file"; filename="a"')] * 2), "a form may have 1 file at most, got 2"),
        (PARTS, of(*[part('name="q"')] * (MAX_FIELDS + 1)), "a form may have 2,000 fields at most, got 2,001"),
        (URLENCODED, b"&" * MAX_FIELDS, "a form may have 2,000 fields at most, got 2,001"),
        (PARTS, of(part('filename="a"')), "a part has no name in its Content-Disposition"),
        (PARTS, of(part("name=\"f\"; filename*=utf-7''a")), "UTF-8 or ISO-8859-1, got the charset 'utf-7'"),
        (PARTS, of(part("name=\"f\"; filename*=utf-8''%FF")), "filename* must be in UTF-8, got the byte 0xFF"),
        (PARTS, of(part(b'name="\xff"')), "the name of a field must be in UTF-8, got the byte 0xFF at position 0"),
        (MULTIPART, of(), "its Content-Type has no boundary"),
        (PARTS, b"q=Tom", "the body is not a form: "),
    ],
)
def test_a_form_that_is_broken_or_too_large_is_refused(kind: str, body: bytes, message: str):
    with pytest.raises(Problem) as caught:
        read_form(kind, body)
    assert message in str(caught.value)
    assert caught.value.http_status == 400
