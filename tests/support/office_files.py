"""Small documents of office programs, as archives."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Mapping
from xml.sax.saxutils import escape

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
    """A Word document; more: other files in the folder word, with the content of their root."""
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
    """A complex field."""
    begin, separate, end = (f'<w:r><w:fldChar w:fldCharType="{kind}"/></w:r>' for kind in ("begin", "separate", "end"))
    return f"{begin}<w:r><w:instrText>{code}</w:instrText></w:r>{separate}{''.join(result)}{end}"


def pptx(*paragraphs: str) -> bytes:
    """A presentation with one slide; paragraphs: the runs of each."""
    body = "".join(f"<a:p>{each}</a:p>" for each in paragraphs)
    slide = f'<p:sld xmlns:p="p" xmlns:a="{DRAWING}"><p:txBody>{body}</p:txBody></p:sld>'
    return archive({"ppt/presentation.xml": "<p/>", "ppt/slides/slide1.xml": slide})


def odt(body: str) -> bytes:
    root = f'<office:x xmlns:office="{OASIS}:office:1.0" xmlns:text="{OASIS}:text:1.0">{body}</office:x>'
    return archive({"mimetype": "application/vnd.oasis.opendocument.text", "content.xml": root})


def text_of(xml: str) -> str:
    """The text of a file, without its tags."""
    return re.sub("<[^>]*>", "", xml)


def xlsx(strings: str, sheet: str = "", **more: str) -> bytes:
    """A workbook; strings: the elements si, sheet: what is in the worksheet, more: other files in xl, "_" for "/"."""
    files = {"sharedStrings": f"<sst>{strings}</sst>", "worksheets_sheet1": f"<worksheet>{sheet}</worksheet>", **more}
    files = {"workbook": '<workbook><sheets/><calcPr calcId="1"/></workbook>', **files}
    return archive({f"xl/{name.replace('_', '/')}.xml": main(content) for name, content in files.items()})


def main(root: str) -> str:
    """The element of a workbook, in its namespace."""
    name, mark, rest = root.partition(">")
    return f'{name} xmlns="{SHEET}" xmlns:a="{DRAWING}"{mark}{rest}'


def ods(cells: str, before: str = "") -> bytes:
    """A spreadsheet of OpenDocument with one row; before: elements before the table."""
    spaces = "".join(f' xmlns:{each}="{OASIS}:{each}:1.0"' for each in ("office", "text", "table"))
    body = f"{before}<table:table><table:table-row>{cells}</table:table-row></table:table>"
    root = f"<office:x{spaces}>{body}</office:x>"
    return archive({"mimetype": "application/vnd.oasis.opendocument.spreadsheet", "content.xml": root})
