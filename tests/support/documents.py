"""Documents of office programs, localisation files and marked-up texts, made for tests."""

from __future__ import annotations

import io
import random
import re
import zipfile
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any
from xml.sax.saxutils import escape

from hypothesis import strategies as st

from lingon.documents import read_document

WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
DRAWING = "http://schemas.openxmlformats.org/drawingml/2006/main"
SHEET = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
OASIS = "urn:oasis:names:tc:opendocument:xmlns"


def archive(files: Mapping[str, str | bytes]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as written:
        for name, content in files.items():
            written.writestr(name, content)
    return packed.getvalue()


def files_of(packed: bytes) -> dict[str, str]:
    with zipfile.ZipFile(io.BytesIO(packed)) as read:
        return {name: read.read(name).decode(errors="replace") for name in read.namelist()}


def docx(body: str, **more: str) -> bytes:
    """Return a Word document. more: other files in the folder word, with the content of their root."""
    files = {"[Content_Types].xml": "<Types/>", "word/media/image.png": b"\x89PNG\r\n", "word/styles.xml": "<styles/>"}
    files |= {f"word/{name}.xml": word(text) for name, text in {"document": body, **more}.items()}
    return archive(files)


def word(body: str) -> str:
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<w:root xmlns:w="{WORD}">{body}</w:root>'


def paragraph(*runs: str) -> str:
    return f'<w:p w:rsidR="00A1"><w:pPr><w:jc w:val="left"/></w:pPr>{"".join(runs)}</w:p>'


def run(text: str, properties: str = "") -> str:
    properties = f"<w:rPr>{properties}</w:rPr>" if properties else ""
    return f'<w:r>{properties}<w:t xml:space="preserve">{escape(text)}</w:t></w:r>'


def field(code: str, *result: str) -> str:
    """Return a complex field."""
    begin, separate, end = (f'<w:r><w:fldChar w:fldCharType="{kind}"/></w:r>' for kind in ("begin", "separate", "end"))
    return f"{begin}<w:r><w:instrText>{code}</w:instrText></w:r>{separate}{''.join(result)}{end}"


def pptx(*paragraphs: str) -> bytes:
    """Return a presentation with one slide. paragraphs: the runs of each."""
    body = "".join(f"<a:p>{each}</a:p>" for each in paragraphs)
    slide = f'<p:sld xmlns:p="p" xmlns:a="{DRAWING}"><p:txBody>{body}</p:txBody></p:sld>'
    return archive({"ppt/presentation.xml": "<p/>", "ppt/slides/slide1.xml": slide})


def odt(body: str) -> bytes:
    root = f'<office:x xmlns:office="{OASIS}:office:1.0" xmlns:text="{OASIS}:text:1.0">{body}</office:x>'
    return archive({"mimetype": "application/vnd.oasis.opendocument.text", "content.xml": root})


def text_of(xml: str) -> str:
    """Return the text of a file, without its tags."""
    return re.sub("<[^>]*>", "", xml)


def xlsx(strings: str, sheet: str = "", **more: str) -> bytes:
    """Return a workbook. strings: the elements si, sheet: what is in the worksheet, more: other files in xl, "_" for
    "/".
    """
    files = {"sharedStrings": f"<sst>{strings}</sst>", "worksheets_sheet1": f"<worksheet>{sheet}</worksheet>", **more}
    files = {"workbook": '<workbook><sheets/><calcPr calcId="1"/></workbook>', **files}
    return archive({f"xl/{name.replace('_', '/')}.xml": main(content) for name, content in files.items()})


def main(root: str) -> str:
    """Return the element of a workbook, in its namespace."""
    name, mark, rest = root.partition(">")
    return f'{name} xmlns="{SHEET}" xmlns:a="{DRAWING}"{mark}{rest}'


def ods(cells: str, before: str = "") -> bytes:
    """Return a spreadsheet of OpenDocument with one row. before: elements before the table."""
    spaces = "".join(f' xmlns:{each}="{OASIS}:{each}:1.0"' for each in ("office", "text", "table"))
    body = f"{before}<table:table><table:table-row>{cells}</table:table-row></table:table>"
    root = f"<office:x{spaces}>{body}</office:x>"
    return archive({"mimetype": "application/vnd.oasis.opendocument.spreadsheet", "content.xml": root})


OTHER = (
    '\u00f6"\\ #: n/\u4e2d\U0001f600;,|-'  # characters that formats escape, and their quotes, comments and delimiters
)
TOKENS = [
    "q",
    "q",
    " ",
    "a",
    "\u00e9",
    "<b>",
    "</b>",
    "{name}",
    "%s",
    '"',
    "\\",
    "# ",
    ": ",
    "/",
    "&amp;",
    "=",
    ",",
    "!",
]


def values(*more: str) -> st.SearchStrategy[str]:
    """Return texts with signs of all kinds, whose `q` may become another text. more: parts, such as a line break."""
    return st.lists(st.sampled_from([*TOKENS, *more]), max_size=8).map(lambda parts: "Tom " + "".join(parts) + "q.")


def other(text: str) -> str:
    """Return the value of a file after `rewritten`."""
    return text.replace("q", OTHER)


def with_others(value: Any) -> Any:
    if isinstance(value, str):
        return other(value)
    if isinstance(value, list):
        return [with_others(each) for each in value]
    return {key: with_others(each) for key, each in value.items()} if isinstance(value, dict) else value


def rewritten(name: str, content: str | bytes, target: str = "", column: str = "") -> bytes:
    """Return a file with other texts than its own, which have all signs that the format might not write."""
    escaped = OTHER.replace("&", "&amp;").replace("<", "&lt;")
    return translated(name, content, lambda text: text.replace("q", escaped), target, column=column)


def translated(
    name: str,
    content: str | bytes,
    translate: Callable[[str], str] = str,
    target: str = "",
    column: str = "",
) -> bytes:
    """Return a file with translations of its texts, which are as they were unless `translate` says otherwise."""
    document = read_document(name, content.encode() if isinstance(content, str) else content, target, column=column)
    return document.write(list(map(translate, document.texts)))


def texts_of(name: str, content: str | bytes, target: str = "", column: str = "") -> list[str]:
    """Return the texts of a file that are translated."""
    return list(
        read_document(name, content.encode() if isinstance(content, str) else content, target, column=column).texts
    )


PARTS = [
    *"<>&;/!?-='\"[] \n\t\xa0\ufffcaö.",
    *(
        "<b>",
        "</b>",
        "<i class='x'>",
        "</i>",
        "<p>",
        "</p>",
        "<br/>",
        "<img src=a>",
        "<code>",
        "</code>",
        "<!--",
        "-->",
    ),
    *("<script>", "</script>", "<title>", "</title>", "&amp;", "&lt;", "&nbsp", "&#228;", "&#x0;", "&c;", "<![CDATA["),
    *(
        "]]>",
        '<i translate="no">',
        "<b translate=yes>",
        "<a href='",
        "Hello",
        "two words",
        "</",
        "<?x?>",
        "<li>",
        "H2O",
    ),
]
ANY_TEXT = st.one_of(st.text(), st.lists(st.sampled_from(PARTS), max_size=30).map("".join))
WELL_FORMED = st.recursive(
    st.sampled_from(
        ["one", "Two words. ", " ", "&amp;", "&#228;", "<x/>", "<!-- c -->", "<![CDATA[<b>]]>", "\n", "H2O"]
    ),
    lambda inner: st.builds(
        lambda name, parts: f"<{name} k='>'>{''.join(parts)}</{name}>",
        st.sampled_from("abp"),
        st.lists(inner, max_size=4),
    ),
    max_leaves=20,
)


MOST_DEEP = 3
_TAG = re.compile(r"</?[^>]*>")


def tagged(sentence: str, rng: random.Random) -> str:
    """Return a sentence with elements and points, each with an `id` of its own, and with spaces between words."""
    return _with_elements(sentence.split(), rng, count(), MOST_DEEP)


def tags_of(text: str) -> list[str]:
    """Return the tags of a text in order."""
    return _TAG.findall(text)


def without_tags(text: str) -> str:
    """Return a text without its tags."""
    return _TAG.sub("", text)


def _with_elements(words: list[str], rng: random.Random, numbers: count[int], depth: int) -> str:
    parts, at = list[str](), 0
    while at < len(words):
        length = rng.randint(1, len(words) - at)
        inside = words[at : at + length]
        if depth and rng.random() < 0.5:
            number = next(numbers)
            parts.append(f'<b id="{number}">{_with_elements(inside, rng, numbers, depth - 1)}</b>')
        else:
            parts.append(" ".join(inside))
        if rng.random() < 0.1:
            parts.append(f'<img id="{next(numbers)}"/>')
        at += length
    return " ".join(parts)
