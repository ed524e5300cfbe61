"""Files of terms, written for the tests that read them: tables in Lingon's own form, TBX-Basic 3 and TMX 1.4."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from xml.sax.saxutils import escape, quoteattr

from lingon.terms.concepts import DEPRECATED, PREFERRED, STATUS
from lingon.terms.tables import CASE, EXACT, FORBID, SOURCES, STEMS, TARGETS, VARIANT, YES
from lingon.terms.term import Term

ADMITTED = "admittedTerm-admn-sts"  # a variant, in TBX


def written_terms(name: str, terms: Sequence[Term], source: str, target: str) -> bytes:
    """Return a file of the form that its name says."""
    suffix = name.lower()[-4:]
    if suffix in (".tsv", ".csv"):
        return _table(terms, tabs=suffix == ".tsv").encode()
    return (_tbx if suffix == ".tbx" else _tmx)(terms, source, target).encode()


def _table(terms: Sequence[Term], *, tabs: bool) -> str:
    variants = max((len(term.variants) for term in terms), default=0)
    forbidden = max((1, *(len(term.forbid) for term in terms)))  # with this column a target may be empty
    rows = [[SOURCES[0], TARGETS[0], *[VARIANT] * variants, CASE, *[FORBID] * forbidden, STEMS]]
    for term in terms:
        exact, stems = EXACT if term.exact else "", YES if term.stems else ""
        several = _filled(term.variants, variants), _filled(term.forbid, forbidden)
        rows.append([term.source, term.target, *several[0], exact, *several[1], stems])
    if tabs:
        return "".join("\t".join(row) + "\n" for row in rows)
    written = io.StringIO(newline="")
    csv.writer(written, lineterminator="\n").writerows(rows)
    return written.getvalue()


def _filled(texts: Sequence[str], count: int) -> list[str]:
    return [*texts, *[""] * (count - len(texts))]


def _tbx(terms: Iterable[Term], source: str, target: str) -> str:
    entries = "".join(
        f'<conceptEntry id="c{number}">\n{_section(source, [(term.source, "")])}{_section(target, _statuses(term))}'
        "</conceptEntry>\n"
        for number, term in enumerate(terms, start=1)
    )
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<tbx xmlns="urn:iso:std:iso:30042:ed-2" style="dca" type="TBX-Basic" xml:lang={quoteattr(source)}>\n'
        "  <tbxHeader><fileDesc><sourceDesc><p>Terms</p></sourceDesc></fileDesc></tbxHeader>\n"
        f"  <text>\n<body>\n{entries}</body>\n  </text>\n</tbx>\n"
    )


def _statuses(term: Term) -> list[tuple[str, str]]:
    preferred = PREFERRED if term.variants or term.forbid else ""
    right = [(term.target, preferred)] if term.target else []
    return [*right, *((each, ADMITTED) for each in term.variants), *((each, DEPRECATED) for each in term.forbid)]


def _section(language: str, terms: Iterable[tuple[str, str]]) -> str:
    written = "".join(
        f"  <termSec>\n    <term>{escape(text)}</term>\n"
        + (f'    <termNote type="{STATUS}">{status}</termNote>\n' if status else "")
        + "  </termSec>\n"
        for text, status in terms
    )
    return f"<langSec xml:lang={quoteattr(language)}>\n{written}</langSec>\n"


def _tmx(terms: Iterable[Term], source: str, target: str) -> str:
    units = "".join(
        f"<tu>\n  <tuv xml:lang={quoteattr(source)}><seg>{escape(term.source)}</seg></tuv>\n"
        f"  <tuv xml:lang={quoteattr(target)}><seg>{escape(term.target)}</seg></tuv>\n</tu>\n"
        for term in terms
    )
    head = f'<header segtype="phrase" o-tmf="x" adminlang="en" srclang={quoteattr(source)} datatype="plaintext"/>'
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<tmx version="1.4">\n{head}\n<body>\n{units}</body>\n</tmx>\n'
