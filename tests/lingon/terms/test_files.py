"""Files of terms: the forms that translation services and programs of translators write, and broken ones."""

from __future__ import annotations

import string
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingon.errors import CorpusError, LingonError, SettingsError
from lingon.terms.files import SUFFIXES, read_terms
from lingon.terms.term import Term, TermError, check_terms
from tests.support.term_files import written_terms

LETTERS = string.ascii_letters + "äß漢 \"',;|&<>.#=-"
TEXT = st.text(alphabet=LETTERS, min_size=1, max_size=8).filter(lambda text: text.strip())
SEVERAL = st.lists(TEXT, max_size=3).map(tuple)
PLAIN = st.builds(Term, TEXT, TEXT)
RATED = st.builds(Term, TEXT, TEXT, SEVERAL, forbid=SEVERAL)
WHOLE = st.builds(Term, TEXT, TEXT | st.just(""), SEVERAL, st.booleans(), SEVERAL, st.booleans())


def checked(terms: list[Term]) -> list[Term]:
    """Those of the terms that can be in one list, as it has them."""
    found: list[Term] = []
    for term in terms:
        try:
            found = check_terms([*found, term])
        except TermError:
            continue
    return found


def read(content: str | bytes, name: str = "a.tsv", source: str = "", target: str = "") -> list[Term]:
    raw = content.encode() if isinstance(content, str) else content
    return list(read_terms(name, source, target, content=raw))


def refusal(content: str | bytes, name: str = "a.tsv", source: str = "", target: str = "") -> str:
    with pytest.raises(LingonError) as raised:
        read(content, name, source, target)
    assert "\n" not in str(raised.value)
    return str(raised.value)


@pytest.mark.parametrize("name", ["a.tsv", "a.csv"])
@given(terms=st.lists(WHOLE, max_size=4).map(checked))
def test_a_table_has_all_that_terms_say(name: str, terms: list[Term]):
    assert read(written_terms(name, terms, "en", "de"), name, "en", "de") == terms


@given(terms=st.lists(RATED, max_size=4).map(checked))
def test_tbx_has_the_variants_and_the_forbidden_translations(terms: list[Term]):
    found = read(written_terms("a.tbx", terms, "en", "de"), "a.tbx", "en", "de")
    assert [as_sets(term) for term in found] == [as_sets(term) for term in terms]


def as_sets(term: Term) -> tuple[str, str, set[str], set[str]]:
    """A term with one space for each run of them, as XML has it. A variant that is the target is none."""
    source, target, *others = (" ".join(each.split()) for each in (term.source, term.target, *term.variants))
    return source, target, {*others} - {target}, {" ".join(each.split()) for each in term.forbid}


@given(terms=st.lists(PLAIN, max_size=4).map(checked))
def test_tmx_has_sources_and_targets(terms: list[Term]):
    found = read(written_terms("a.tmx", terms, "en", "de-AT"), "a.tmx")
    assert [as_sets(term) for term in found] == [as_sets(term) for term in terms]


def test_a_written_file_is_read_by_its_path(tmp_path: Path):
    terms = [Term("dog", "Köter"), Term("house", "Gebäude")]
    for suffix in SUFFIXES:
        path = tmp_path / f"terms{suffix.upper()}"
        path.write_bytes(written_terms(path.name, terms, "en", "de"))
        assert list(read_terms(path, "en", "de")) == terms


DOGS = [Term("dog", "Hund"), Term("big house", "Haus, groß")]


@pytest.mark.parametrize(
    ("name", "content", "languages"),
    [
        ("a.tsv", "dog\tHund\nbig house\tHaus, groß\n", ("", "")),
        ("a.tsv", "\ufeffdog\tHund\r\n\r\n big house \tHaus, groß", ("", "")),
        ("a.tsv", "source\ttarget\ndog\tHund\nbig house\tHaus, groß\n", ("", "")),
        ("a.tsv", "en\tde\ndog\tHund\nbig house\tHaus, groß\n", ("", "")),
        ("a.tsv", "en\tde\ndog\tHund\nbig house\tHaus, groß\n", ("en-GB", "de")),
        ("a.tsv", "eng\tdeu\ndog\tHund\nbig house\tHaus, groß\n", ("en", "de")),
        ("a.csv", 'dog,Hund\nbig house,"Haus, groß"\n', ("", "")),
        ("a.csv", 'dog;Hund\r\n"big house";Haus, groß\r\n', ("", "")),
        ("a.csv", 'sep=|\ndog|Hund\n"big house"|"Haus, groß"\n', ("", "")),
        ("a.csv", 'dog,Hund,EN,DE\nbig house,"Haus, groß",EN,DE\n', ("en", "de")),
        ("a.csv", 'dog,Hund,EN,DE\nchien,Hund,FR,DE\nbig house,"Haus, groß",EN,DE\n', ("en", "de")),
        ("a.csv", 'dog,Hund,,\nbig house,"Haus, groß",,\n', ("", "")),
        ("a.csv", 'en,fr,de,pos\ndog,chien,Hund,noun\nbig house,maison,"Haus, groß",\n', ("en", "de")),
        ("a.csv", 'de,en\nHund,dog\n"Haus, groß",big house\n', ("en", "de")),
        ("a.csv", 'Translation,Source,notes\nHund,dog,\n"Haus, groß",big house,x\n', ("", "")),
        ("a.tsv", "dog\tHund\nbig house\tHaus, groß\n".encode("utf-16"), ("", "")),
    ],
)
def test_tables_of_services_are_read(name: str, content: str | bytes, languages: tuple[str, str]):
    assert read(content, name, *languages) == DOGS


def test_a_quotation_mark_is_text_in_a_table_with_tabs():
    assert read('"dog"\t5" disk\n') == [Term('"dog"', '5" disk')]


def test_a_term_may_be_without_a_target_where_the_table_says_what_is_forbidden():
    content = "source\ttarget\tvariant\tvariant\tcase\tforbid\tstems\ndog\t\t\t\texact\tKöter\tyes\nbank\t\n"
    assert read(content) == [Term("dog", "", (), exact=True, forbid=("Köter",), stems=True), Term("bank")]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.tsv", "dog\tHund\ncat\n", 'a.tsv: entry 2: "cat" has 1 column; it must have 2, a source and a target'),
        (
            "a.tsv",
            "dog\tHund\ncat\ta\tb\n",
            'a.tsv: entry 2: "cat" has 3 columns; it must have 2, a source and a target',
        ),
        ("a.csv", "a,b\nc,d,e,f\n", 'a.csv: entry 2: "c" has 4 columns; it must have 2, a source and a target'),
        (
            "a.csv",
            "source,target\ndog,Hund\ncat,Katze,x\n",
            'a.csv: entry 2: "cat" has 3 columns; there are names for 2',
        ),
        ("a.tsv", "dog\tHund\ncat\t\n", 'a.tsv: entry 2: "cat" has no target'),
        ("a.tsv", "dog\tHund\n\tKatze\n", "a.tsv: entry 2: its source is empty"),
        (
            "a.tsv",
            "dog\tHund\n\ncat\tKatze\nDog\tKöter\n",
            'a.tsv: entries 1 and 3: contradict each other: "Dog" is "Hund"',
        ),
        ("a.tsv", "dog\tHu\x00nd\n", 'a.tsv: entry 1: its target "Hu\\x00nd" has the control character U+0000 at 2'),
        ("a.csv", '"do\ng",Hund\n', 'a.csv: entry 1: its source "do\\ng" has the control character U+000A at 2'),
        ("a.csv", 'a,b\n"dog,Hund\n', "a.csv: row 2 is no CSV: unexpected end of data"),
        ("a.csv", 'a,b\n"dog"x,Hund\n', "a.csv: row 2 is no CSV: ',' expected after '\"'"),
        (
            "a.csv",
            "a,b\n" + "x" * 200_000 + ",b\n",
            f'a.csv: entry 2: its source "{"x" * 64}..." has 200,000 characters; at',
        ),
        (
            "a.tsv",
            "x" * 50_000_000 + "\tb",
            f'a.tsv: entry 1: its source "{"x" * 64}..." has 50,000,000 characters; at',
        ),
        ("a.tsv", b"dog\tH\xfcnd\n", "a.tsv: not UTF-8 (invalid start byte at byte 5)"),
        ("a.tsv", b"\xff\xfea", "a.tsv: not UTF-16 (truncated data at byte 2)"),
        ("a.csv", "source,target,case\na,b,big\n", 'a.csv: entry 1: the column case must be smart or exact, got "big"'),
        ("a.csv", "source,target,stems\na,b,1\n", 'a.csv: entry 1: the column stems must be no or yes, got "1"'),
        ("a.csv", "dog,Hund,en,de\nchat,Katze,fr,de\n", 'a.csv: entry 2: "chat" is of other languages than those'),
    ],
)
def test_a_bad_table_gets_one_line(name: str, content: str | bytes, message: str):
    assert refusal(content, name).startswith(message)


@pytest.mark.parametrize(
    ("content", "source", "target", "message"),
    [
        ("en,fr\na,b\n", "en", "de", "a.csv: has no column de; its columns are en, fr"),
        ("en,de\na,b\n", "en", "en-GB", "a.csv: source and target are both in the column en"),
    ],
)
def test_a_table_without_a_language_says_so(content: str, source: str, target: str, message: str):
    assert refusal(content, "a.csv", source, target) == message


@pytest.mark.parametrize("languages", [("", "de"), ("en", ""), ("en", "de")])
def test_a_language_that_is_not_named_is_that_of_the_first_other_column(languages: tuple[str, str]):
    assert read("de,en,fr\nHund,dog,chien\n", "a.csv", *languages) == [Term("dog", "Hund")]


def test_a_table_without_entries_has_no_terms():
    assert read("") == read("source\ttarget\n") == read("\n\n", "a.csv") == []


TBX_2 = """<?xml version='1.0'?>
<!DOCTYPE martif SYSTEM "TBXBasiccoreStructV02.dtd">
<martif type="TBX-Basic" xml:lang="en"><martifHeader/><text><body>
<termEntry id="1"><langSet xml:lang="en-US"><tig><term>dog</term></tig></langSet>
<langSet xml:lang="de">
<tig><term>Köter</term><termNote type="administrativeStatus">deprecatedTerm-admn-sts</termNote></tig>
<tig><term>Vierbeiner</term></tig>
<ntig><termGrp><term>Hund</term>
<termNote type="administrativeStatus">preferredTerm-admn-sts</termNote></termGrp></ntig>
</langSet></termEntry>
<termEntry id="2"><langSet xml:lang="en"><tig><term>cat</term></tig></langSet></termEntry>
<termEntry id="3"><langSet xml:lang="en"><tig><term>bus</term></tig><tig><term>big <hi>coach</hi></term></tig></langSet>
<langSet xml:lang="de"><tig><term>Bus</term></tig></langSet></termEntry>
</body></text></martif>"""
TBX_3 = """
<tbx xmlns="urn:iso:std:iso:30042:ed-2" xmlns:min="http://www.tbxinfo.net/ns/min" type="TBX-Min" xml:lang="en">
<tbxHeader><fileDesc/></tbxHeader><text><body>
<conceptEntry id="c1"><langSec xml:lang="en"><termSec><term>dog</term></termSec></langSec>
<langSec xml:lang="de">
<termSec><term>Hund</term><min:administrativeStatus>preferredTerm-admn-sts</min:administrativeStatus></termSec>
<termSec><term>Vierbeiner</term><min:administrativeStatus>admittedTerm</min:administrativeStatus></termSec>
<termSec><term>Köter</term><min:administrativeStatus>supersededTerm-admn-sts</min:administrativeStatus></termSec>
</langSec></conceptEntry></body></text></tbx>"""


def test_tbx_of_version_2_has_preferred_and_deprecated_terms():
    dog = Term("dog", "Hund", ("Vierbeiner",), forbid=("Köter",))
    assert read(TBX_2, "a.tbx", "en", "de") == [dog, Term("bus", "Bus"), Term("big coach", "Bus")]


def test_tbx_of_version_3_has_them_in_elements_of_their_own():
    assert read(TBX_3, "a.tbx") == [Term("dog", "Hund", ("Vierbeiner",), forbid=("Köter",))]


def tmx(*units: str, header: str = 'srclang="en"') -> str:
    return f'<tmx version="1.4"><header {header}/><body>{"".join(f"<tu>{each}</tu>" for each in units)}</body></tmx>'


def tuv(language: str, text: str, attribute: str = "xml:lang") -> str:
    return f'<tuv {attribute}="{language}"><seg>{text}</seg></tuv>'


def test_tmx_has_the_texts_of_segments_without_their_markup():
    unit = (
        tuv("en", 'a <bpt i="1">&lt;b></bpt>big<ept i="1">&lt;/b></ept>  <hi>house</hi>'),
        tuv("de", "ein &amp; Haus"),
    )
    assert read(tmx("".join(unit)), "a.tmx") == [Term("a big house", "ein & Haus")]


def test_the_language_with_the_very_tag_is_taken_before_another_of_its_kind():
    unit = tuv("en", "dog") + tuv("de-AT", "Hund AT") + tuv("de", "Hund", "lang")
    assert read(tmx(unit), "a.tmx", "en", "de") == [Term("dog", "Hund")]
    assert read(tmx(unit), "a.tmx", "en-GB", "de-at") == [Term("dog", "Hund AT")]


def test_the_source_of_a_file_is_the_only_other_language_if_it_says_none():
    assert read(tmx(tuv("en", "dog") + tuv("de", "Hund"), header='srclang="*all*"'), "a.tmx", "", "de") == [
        Term("dog", "Hund")
    ]


@pytest.mark.parametrize(
    ("content", "languages", "message"),
    [
        ("<tmx><body><tu>", "", "a.tmx: line 1, column 16: the XML is not well-formed: no element found"),
        ("<tmx>\n<body>&x;</body></tmx>", "", "a.tmx: line 2, column 7: the XML is not well-formed: undefined entity"),
        ("<html/>", "", "a.tmx: must be TBX or TMX, whose roots are tbx, martif and tmx, got html"),
        ("plain", "", "a.tmx: line 1, column 1: the XML is not well-formed: syntax error"),
        (
            '<!DOCTYPE tmx [<!ENTITY a "b">]><tmx/>',
            "",
            "a.tmx: the XML in the file has a document type with declarations, which are not read",
        ),
        (
            tmx(tuv("en", "a") + tuv("de", "b") + tuv("fr", "c")),
            "",
            "a.tmx: has the languages en, de, fr; say which is the source and which the target",
        ),
        (
            tmx(tuv("en", "a") + tuv("de", "b")),
            "en fr",
            "a.tmx: has no entry in en and fr; its languages are en, de",
        ),
        (tmx(tuv("en", "a") + tuv("de", " ")), "en de", 'a.tmx: entry 1: "a" has no target'),
        (tmx(tuv("en", " ") + tuv("de", "a")), "en de", "a.tmx: entry 1: its source is empty"),
        (
            tmx(tuv("en", "a") + tuv("de", "b"), tuv("en", "x"), tuv("en", "A") + tuv("de", "c")),
            "en de",
            'a.tmx: entries 1 and 3: contradict each other: "A" is "b" in the one and "c" in the other',
        ),
        ("<tmx>" + "<a>" * 64 + "</a>" * 64 + "</tmx>", "", "a.tmx: has elements in more than 64 others"),
        (tmx("<x/>" * 10_000), "", "a.tmx: entry 1: has more than 10,000 elements and texts"),
    ],
)
def test_bad_xml_gets_one_line(content: str, languages: str, message: str):
    assert refusal(content, "a.tmx", *(languages.split() or ("", ""))) == message


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path):
    with pytest.raises(CorpusError, match=r"none.tsv: No such file or directory$"):
        read_terms(tmp_path / "none.tsv")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(CorpusError, match=r"folder.csv: Is a directory$"):
        read_terms(tmp_path / "folder.csv")
    with pytest.raises(SettingsError, match=r"^a: a file of terms must end in .tsv, .csv, .tbx, .tmx, got no ending$"):
        read_terms("a", content=b"")


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path):
    path = tmp_path / "large.tsv"
    with path.open("wb") as file:
        file.truncate((256 << 20) + 1)
    with pytest.raises(
        CorpusError, match=r"large.tsv: has 268,435,457 bytes; a file of terms has at most 268,435,456$"
    ):
        read_terms(path)


def test_nothing_is_returned_of_a_file_with_an_error():
    with pytest.raises(TermError):
        read_terms("a.tsv", content=b"dog\tHund\ncat\n")
