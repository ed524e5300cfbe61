"""The encodings of files of text and of XML: which one a file has, and how its translation is written.

A file in UTF-8 is read as such. Another one has a byte order mark, says its encoding, or is judged by its bytes. What
was judged is said in a note, since it may be wrong. charset-normalizer tells the encodings of other scripts apart; of
Latin ones it takes Windows-1250 for Windows-1252 in Swedish, Danish and Italian, so that these are judged here, by the
letters of languages.
"""

from __future__ import annotations

import codecs
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from lingon.documents.document import Document, UnreadableDocument

UTF_8 = "utf-8"
_MARKS = (
    (codecs.BOM_UTF8, UTF_8),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_NAMES = {f"cp125{number}": f"Windows-125{number}" for number in range(9)} | {
    "cp874": "Windows-874",
    "cp932": "Shift JIS",
    "cp949": "Korean (CP949)",
    "koi8_r": "KOI8-R",
    "iso8859-2": "ISO-8859-2",
}
_SUPERSETS = {"iso8859-1": "cp1252", "ascii": "cp1252", "iso8859-9": "cp1254", "gb2312": "gb18030", "gbk": "gb18030"}
"""What programs read instead of the encodings that files say, as browsers do (WHATWG Encoding, 4.2)."""

_OTHER_SCRIPTS = ["cp1251", "cp1253", "cp1255", "cp1256", "cp874", "koi8_r", "cp932", "gb18030", "big5", "cp949"]
_ALPHABETS: Mapping[str, Sequence[str]] = {
    "cp1252": [
        *("äöüß", "àâæçéèêëîïôœùûü", "áéíñóúü", "áâãàçéêíóôõú", "àèéìíîòóùú", "åäöé", "åæøéèêòôóäö", "éëïöüèáóíú"),
        *("áéíóúýðþæö", "àçéèíïóòúü", "äöõüšž"),
    ],
    "cp1250": [
        *("ąćęłńóśźż", "áčďéěíňóřšťúůýž", "áäčďéíĺľňóôŕšťúýž", "áéíóöőúüű", "ăâîşţ", "čćšžđ", "čšž"),
        *("äöüß", "ëç"),
    ],
    "cp1254": ["çğıöşüâîû\u0307"],
    "cp1257": ["ąčęėįšųūž", "āčēģīķļņšūž"],
}
"""The letters beyond ASCII that languages have, by the encodings for them; the likeliest encoding first."""

_WESTERN = frozenset("àáâãäåæçèéêëíîïñóôõöøùúûüœß")

_HIGH = re.compile(rb"[\x80-\xff]++")
_SIGNS = frozenset(
    "\u00a0\u00ad\u2013\u2014\u2018\u2019\u201a\u201c\u201d\u201e\u2020\u2021\u2022\u2026\u2030\u2039\u203a\u20ac\u2122"
    "\u00a1\u00a2\u00a3\u00a5\u00a7\u00a9\u00ab\u00ae\u00b0\u00b1\u00b2\u00b3\u00b4\u00b5\u00b7\u00bb\u00bc\u00bd"
    "\u00be\u00bf\u00d7"
)
"""The signs beyond ASCII that texts in any of these languages have."""

_INSIDE = re.compile(r"(?<=[^\W\d_])[^\x00-\x7f\w\u00ad\u00b7\u2010-\u2015\u2018\u2019](?=[^\W\d_])")
_ORDINAL = re.compile(r"[\u00aa\u00ba](?!\w)")  # after a number, or a short form such as n\u00ba
_LONG_RUN = 3  # bytes: words in another script than Latin have as many beyond ASCII beside each other
LEAST_OTHER = 40  # bytes beyond ASCII by which the encoding of another script is judged
SAMPLE_BYTES = 65_536  # by which an encoding is judged
MOST_CHAOS = 0.12  # of charset-normalizer: above it, it is not sure
LEAST_KNOWN = 0.97  # part of the letters beyond ASCII that the alphabet of one language must have
NUL_SHARE = 0.2  # part of the bytes of UTF-16 without a mark that are NUL, at least; a text with spaces has it
_CONTROLS = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class Encoding:
    """The encoding of a file.

    codec: its name for Python; mark: its byte order mark; stated: whether the file itself says it
    """

    codec: str
    mark: bytes = b""
    stated: bool = False

    @property
    def name(self) -> str:
        """Its name for people."""
        return _NAMES.get(self.codec, self.codec.upper().replace("_", "-"))

    @property
    def charset(self) -> str:
        """Its name for programs, such as the header of a file."""
        return self.name if self.codec.startswith("cp125") else codecs.lookup(self.codec).name.upper()

    @property
    def is_utf_8(self) -> bool:
        """Whether it is the usual one."""
        return self.codec == UTF_8

    def fault(self, text: str) -> str:
        """Return the first character of a text that it does not have, empty if it has all."""
        try:
            text.encode(self.codec)
        except UnicodeEncodeError as error:
            return text[error.start]
        return ""

    def written(self, text: str, notes: list[str], *, references: bool = False) -> bytes:
        """Return a text in this encoding, or in UTF-8 if it lacks a character; notes: gets a line that says which.

        references: whether a missing character is written as a reference of HTML, as pages do
        """
        if self.is_utf_8:
            return self.mark + text.encode()
        fault = "" if references else self.fault(text)
        if fault:
            notes.append(f"the file is in {self.name}; its translation is in UTF-8, for {self.name} has no {fault!a}")
            return text.encode("utf-8-sig" if self.mark else UTF_8)
        if not self.stated:
            notes.append(f"the file is in {self.name}, and so is its translation")
        return self.mark + text.encode(self.codec, "xmlcharrefreplace" if references else "strict")


def read_encoded(content: bytes, stated: str = "") -> tuple[str, Encoding]:
    """Return the text of a file and its encoding. Raises UnreadableDocument if that cannot be told.

    stated: the encoding that the file says
    """
    for mark, codec in _MARKS:
        if content.startswith(mark):
            return _decoded(content[len(mark) :], Encoding(codec, mark))
    if (wide := _without_mark(content)) is not None:
        return wide
    named = codec_of(stated)
    if named not in ("", UTF_8):
        encoding = Encoding(named, stated=True)
        if content.isascii() or not _is_utf_8(content):
            return _decoded(content, encoding)
    if _is_utf_8(content):
        return content.decode(), Encoding(UTF_8)
    return _decoded(content, _judged(content))


def _decoded(content: bytes, encoding: Encoding, subject: str = "the file") -> tuple[str, Encoding]:
    try:
        return content.decode(encoding.codec), encoding
    except UnicodeDecodeError as error:
        raise UnreadableDocument(f"{subject} is not {encoding.name}: {error.reason} at byte {error.start}") from None


def _is_utf_8(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


def _without_mark(content: bytes) -> tuple[str, Encoding] | None:
    """Return the text of a file in UTF-16 without a byte order mark, or None for another file."""
    sample = content[:SAMPLE_BYTES]
    first, second = sample[::2].count(0), sample[1::2].count(0)
    if len(content) % 2 or max(first, second) < NUL_SHARE * len(sample) or 8 * min(first, second) >= max(first, second):
        return None
    codec = "utf-16-le" if second > first else "utf-16-be"
    try:
        text = content.decode(codec)
    except UnicodeDecodeError:
        return None
    return None if _CONTROLS.search(text) else (text, Encoding(codec))


def codec_of(stated: str) -> str:
    """Return the codec of a stated encoding that writes ASCII as ASCII, empty for another one."""
    try:
        codec = codecs.lookup(stated.strip()).name if stated.isascii() else ""
        codec = _SUPERSETS.get(codec, codec)
        return codec if codec and "az<&09".encode(codec) == b"az<&09" else ""
    except (LookupError, ValueError, TypeError, AttributeError):
        return ""


def _judged(content: bytes) -> Encoding:
    """Return the encoding that the bytes of a file fit. Raises UnreadableDocument if several do, or none."""
    end = content.rfind(b"\n", 0, SAMPLE_BYTES) + 1 if len(content) > SAMPLE_BYTES else len(content)
    sample = content[: end or SAMPLE_BYTES]
    if sample.isascii():  # the first other character is far below
        position = next(_HIGH.finditer(content)).start()
        sample = content[position : position + SAMPLE_BYTES]
    runs = Counter[bool]()
    for run in _HIGH.finditer(sample):
        runs[len(run[0]) >= _LONG_RUN] += len(run[0])
    codec = _of_other_script(sample) if runs[True] >= runs[False] else _of_latin(sample)
    if not codec:
        error = _fault_of_utf_8(content)
        raise UnreadableDocument(f"the file is not UTF-8: {error}; its encoding cannot be told, save it in UTF-8")
    return Encoding(codec)


def _fault_of_utf_8(content: bytes) -> str:
    try:
        content.decode()
    except UnicodeDecodeError as error:
        return f"{error.reason} at byte {error.start}"
    return ""


def _of_other_script(sample: bytes) -> str:
    """Return the codec of a text of another script than Latin, empty if it is not sure."""
    from charset_normalizer import from_bytes  # 60 ms, which files in UTF-8 do not need

    if sum(len(run[0]) for run in _HIGH.finditer(sample)) < LEAST_OTHER:
        return ""
    best = from_bytes(sample, cp_isolation=_OTHER_SCRIPTS).best()
    if best is None or best.chaos > MOST_CHAOS or _CONTROLS.search(str(best)):
        return ""
    return best.encoding


def _of_latin(sample: bytes) -> str:
    """Return the codec with which the letters of a text are those of one language, empty if none fits."""
    found: list[tuple[float, str]] = []
    for codec, alphabets in _ALPHABETS.items():
        try:
            text = sample.decode(codec)
        except UnicodeDecodeError:
            continue
        if _CONTROLS.search(text):
            continue
        letters = Counter(sign for sign in _ORDINAL.sub("", text.lower()) if sign > "\x7f" and sign not in _SIGNS)
        total = letters.total() + len(_INSIDE.findall(text))  # signs inside words are letters of another encoding
        for alphabet in alphabets:
            found.append((sum(letters[letter] for letter in alphabet) / total if total else 1.0, codec))
        if codec == "cp1252" and sum(letters[letter] for letter in _WESTERN) >= LEAST_KNOWN * total:
            found.append((LEAST_KNOWN, codec))  # names of several languages, if no language alone fits better
    share, codec = max(found, key=lambda each: each[0], default=(0.0, ""))
    return codec if share >= LEAST_KNOWN else ""


# Files of XML in UTF-16, and in the encodings of eight bits that their declarations name, are read as UTF-8.
# They are written in their own encoding, in which a character that it lacks becomes a reference.

_DECLARED = re.compile(rb"""<\?xml\s[^<>]{0,200}?\bencoding\s{0,20}=\s{0,20}["']([A-Za-z0-9._-]{1,40})["']""")
_UTF_8 = frozenset(["utf-8", "ascii", "utf-16", "utf-16-le", "utf-16-be"])
"""What is read as UTF-8 if the file has no bytes of UTF-16: some programs change a file and not its declaration."""
_OF_EIGHT_BITS = re.compile(r"iso8859-\d{1,2}|cp125\d|koi8-[ru]|mac-\w{1,20}")
_BEGINS = {
    codecs.BOM_UTF16_LE: Encoding("utf-16-le", codecs.BOM_UTF16_LE),
    codecs.BOM_UTF16_BE: Encoding("utf-16-be", codecs.BOM_UTF16_BE),
    b"<\x00": Encoding("utf-16-le"),
    b"\x00<": Encoding("utf-16-be"),
}
"""The encodings of files in UTF-16 by their first two bytes."""

_CDATA, _CDATA_END = "<![CDATA[", "]]>"


def read_recoded(content: bytes, read: Callable[[bytes], Document]) -> Document:
    """Return the document of a file in any of these encodings. Raises UnreadableDocument.

    read: returns that of a file in UTF-8
    """
    encoding = _encoding_of(content)
    if encoding is None:
        return read(content)
    text, _ = _decoded(content[len(encoding.mark) :], encoding, "the XML in the file")
    document = read(text.encode())

    def write(translations: Sequence[str]) -> bytes:
        written = document.write(translations).decode()
        return encoding.mark + _encoded(written, encoding.codec)

    return replace(document, write=write)


def _encoding_of(content: bytes) -> Encoding | None:
    """Return the encoding of a file of XML, or None for UTF-8."""
    if content.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        raise UnreadableDocument("the XML in the file is UTF-32; it must be UTF-8 or UTF-16")
    if (found := _BEGINS.get(content[:2])) is not None:
        return found
    declared = _DECLARED.match(content)
    if declared is None:
        return None
    name = declared[1].decode()
    try:
        codec = codecs.lookup(name).name
    except LookupError:
        codec = ""
    if codec in _UTF_8:
        return None
    if not _OF_EIGHT_BITS.fullmatch(codec):
        raise UnreadableDocument(f"the XML in the file declares the encoding {name}; it must be UTF-8 or UTF-16")
    return Encoding(codec, stated=True)


def _encoded(text: str, encoding: str) -> bytes:
    """Return a text in an encoding, in which a character that it lacks is a reference, which CDATA cannot have."""
    found, at = list[bytes](), 0
    while (begin := text.find(_CDATA, at)) >= 0 and (end := text.find(_CDATA_END, begin)) >= 0:
        found.append(text[at:begin].encode(encoding, "xmlcharrefreplace"))
        found += [_encoded_in_cdata(text[begin:end], encoding)]
        at = end
    return b"".join([*found, text[at:].encode(encoding, "xmlcharrefreplace")])


def _encoded_in_cdata(text: str, encoding: str) -> bytes:
    try:
        return text.encode(encoding)
    except UnicodeEncodeError:
        parts = (_with_border(each, encoding) for each in text)
        return "".join(parts).encode(encoding)


def _with_border(character: str, encoding: str) -> str:
    """Return a character of CDATA, or a reference to it between the end of CDATA and a new begin."""
    if character.encode(encoding, "ignore"):
        return character
    return f"{_CDATA_END}&#{ord(character)};{_CDATA}"
