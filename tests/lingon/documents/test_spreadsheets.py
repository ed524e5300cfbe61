"""Spreadsheets: which texts are translated, and that what formulas and tables name stays the same everywhere."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingon.documents import UnreadableDocument, read_document
from lingon.documents.document import MOST_FORMAT
from tests.support.documents import archive, files_of, main, ods, text_of, xlsx

SHEET, STRINGS, TABLE = "xl/worksheets/sheet1.xml", "xl/sharedStrings.xml", "xl/tables/table1.xml"
BOLD = "<rPr><b/></rPr>"


def string(text: str) -> str:
    return f'<si><t xml:space="preserve">{text}</t></si>'


def rich(*runs: tuple[str, str]) -> str:
    texts = (f'<r>{format}<t xml:space="preserve">{text}</t></r>' for format, text in runs)
    return f"<si>{''.join(texts)}</si>"


def table(*columns: str, more: str = "") -> str:
    found = "".join(f'<tableColumn id="1" name="{each}"/>' for each in columns)
    return f"<table>{found}{more}</table>"


def texts_of(content: bytes, name: str = "a.xlsx") -> list[str]:
    return list(read_document(name, content).texts)


def translated(content: bytes, translate: Callable[[str], str], name: str = "a.xlsx") -> dict[str, str]:
    document = read_document(name, content)
    return files_of(document.write(list(map(translate, document.texts))))


def german(**words: str) -> Callable[[str], str]:
    return lambda text: words.get(text, text)


def test_the_texts_of_cells_keep_their_formats_and_lines():
    runs = ("", "a "), (BOLD, "red car"), ("", " &amp; more")
    reading = "<rPh><t>x</t></rPh>"
    content = xlsx(string("One.\nTwo.") + rich(*runs).replace("</si>", f"{reading}</si>") + string("42"))
    assert texts_of(content) == ['One.<b i="0"/>Two.', 'a <f i="1">red car</f> &amp; more']
    answers = {'One.<b i="0"/>Two.': 'Eins.<b i="0"/>Zwei.'}
    files = translated(content, lambda text: answers.get(text, 'mehr &amp; <f i="1">rotes Auto</f>'))
    expected = string("Eins.\nZwei.") + rich(("", "mehr &amp; "), (BOLD, "rotes Auto")) + string("42")
    assert files[STRINGS] == main(f"<sst>{expected}</sst>")


def test_codes_of_characters_stay_as_they_are():
    content = xlsx(string("One._x000D_\nTwo _x0007_bells."))
    assert texts_of(content) == ['One.<b i="0"/>Two <v i="1"/>bells.']
    assert files_of(read_document("a.xlsx", content).write(texts_of(content))) == files_of(content)


def test_strings_in_cells_comments_and_drawings_are_translated_and_numbers_are_not():
    sheet = '<c t="inlineStr"><is><t>Tom</t></is></c><c><v>4</v></c><c t="str"><f>UPPER(A1)</f><v>TOM</v></c>'
    more = {
        "comments1": "<comments><author>Ann</author><text><r><t>A note</t></r></text></comments>",
        "drawings_drawing1": "<root><a:p><a:r><a:t>A box</a:t></a:r></a:p></root>",
        "charts_chart1": "<root><a:p><a:r><a:t>A chart</a:t></a:r></a:p><v>Data</v></root>",
    }
    content = xlsx("", sheet, **more)
    assert texts_of(content) == ["Tom", "A note", "A box", "A chart"]
    files = translated(content, str.swapcase)
    sheet = sheet.replace("<t>Tom", '<t xml:space="preserve">tOM')
    assert files[SHEET] == main(f"<worksheet>{sheet}</worksheet>")
    assert "<author>Ann</author>" in files["xl/comments1.xml"]
    assert "a NOTE" in files["xl/comments1.xml"]
    assert "<a:t>a BOX</a:t>" in files["xl/drawings/drawing1.xml"]
    assert "<v>Data</v>" in files["xl/charts/chart1.xml"]


def test_threaded_comments_are_translated_unless_they_count_the_characters_before_a_name():
    address = "http://schemas.microsoft.com/office/spreadsheetml/2018/threadedcomments"
    comment = "<threadedComment><text>{}</text>{}</threadedComment>"
    mention = "<mentions><mention startIndex='1'/></mentions>"
    root = f"<root>{comment.format('Salt &amp; more', '')}{comment.format('@Tom yes', mention)}</root>"
    name = "xl/threadedComments/threadedComment1.xml"
    content = xlsx("", threadedComments_threadedComment1=root)
    content = archive({**files_of(content), name: f'<x xmlns="{address}">{root}</x>'})
    assert texts_of(content) == ["Salt &amp; more"]
    files = translated(content, lambda _: "Salz &amp; mehr")
    assert files[name] == f'<x xmlns="{address}">{root.replace("Salt &amp; more", "Salz &amp; mehr")}</x>'


def test_headers_keep_their_codes():
    header = '&amp;L&amp;"Arial,Bold"&amp;14The report&amp;RPage &amp;P of Salt &amp;&amp; Pepper'
    content = xlsx("", f"<headerFooter><oddHeader>{header}</oddHeader></headerFooter>")
    (text,) = texts_of(content)
    assert text == 'The report<b i="0"/>Page <v i="1"/> of Salt &amp; Pepper'
    assert files_of(read_document("a.xlsx", content).write([text])) == files_of(content)
    files = translated(content, lambda text: text.replace("The report", "7 &amp; 8"))
    assert "&amp;14 7 &amp;&amp; 8&amp;R" in files[SHEET]
    files = translated(content, lambda text: text.replace("The report", "x" * 250))
    assert header in files[SHEET]  # a program refuses a longer one


def test_a_result_that_is_the_text_of_a_cell_becomes_its_translation():
    cells = '<c r="A2" t="str"><f>A1</f><v>Salt &amp; more</v></c><c t="str"><f t="shared" si="0"/><v>No</v></c>'
    files = translated(xlsx(string("Salt &amp; more"), cells), lambda _: "Salz &amp; mehr")
    assert files[SHEET] == main(f"<worksheet>{cells.replace('Salt &amp; more', 'Salz &amp; mehr')}</worksheet>")
    assert '<calcPr calcId="1" fullCalcOnLoad="1"/>' in files["xl/workbook.xml"]


def test_columns_of_tables_have_the_texts_of_their_header_cells():
    content = xlsx(string("Salt &amp; more") + string("Price"), tables_table1=table("Salt &amp; more", "Price", "3"))
    files = translated(content, lambda text: text.replace("Salt", "Salz").replace("Price", 'Der "Preis"'))
    assert 'name="Salz &amp; more"' in files[TABLE]
    assert "name='Der \"Preis\"'" in files[TABLE]
    assert 'name="3"' in files[TABLE]
    assert 'Der "Preis"' in files[STRINGS]


def test_columns_that_would_have_one_name_stay_as_they_are_with_their_cells():
    content = xlsx(string("Car") + string("Auto") + string("House"), tables_table1=table("Car", "Auto"))
    files = translated(content, german(Car="auto", House="Haus"))
    assert files[TABLE] == files_of(content)[TABLE]
    assert files[STRINGS] == files_of(content)[STRINGS].replace(string("House"), string("Haus"))


NAMING = [
    ("<c><f>IF(A1=&quot;open&quot;,1,2)</f></c>", {}),
    ("<c><f>SUM(Prices[[#This Row],[Open]])</f></c>", {}),
    ("<dataValidation><formula1>&quot;Yes, Open&quot;</formula1></dataValidation>", {}),
    ('<filter val="Open"/>', {}),
    ("", {"pivotCache_pivotCacheDefinition1": '<root><cacheField name="Open"/></root>'}),
    ("", {"tables_table1": table("Open", more="<totalsRowFormula>SUM([Open])</totalsRowFormula>")}),
]


@pytest.mark.parametrize(("sheet", "more"), NAMING)
def test_a_text_that_something_names_stays_as_it_is(sheet: str, more: dict[str, str]):
    content = xlsx(string("Open") + string("Open house"), sheet, **more)
    assert texts_of(content) == ["Open house"]
    assert 'name="Open"' in translated(content, str.upper).get(TABLE, 'name="Open"')


def test_cells_without_text_do_not_count_as_tags(monkeypatch: pytest.MonkeyPatch):
    content = xlsx(string("Tom"), "<c><v>4</v></c>" * 1000)
    monkeypatch.setattr("lingon.documents.document.MOST_TAGS", 100)
    assert texts_of(content) == ["Tom"]
    with pytest.raises(UnreadableDocument, match="tags; at most 100"):
        read_document("a.xlsx", xlsx("", '<c t="inlineStr"><is><t>Tom</t></is></c>' * 100))


@pytest.mark.parametrize("sheet", ["<c><v>4</c>", "<c><is><t>Tom</is></c>", "<is>" * 70 + "</is>" * 70])
def test_a_broken_workbook_is_refused_in_one_line(sheet: str):
    with pytest.raises(UnreadableDocument, match=r"^the XML in the file .+$"):
        read_document("a.xlsx", xlsx("", sheet))


WORDS = st.text("ab &<>\n_x0\u00e9\u4e00", max_size=6).map(
    lambda text: text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
)


@given(st.lists(st.lists(st.tuples(st.sampled_from(["", BOLD]), WORDS), max_size=4), max_size=4))
def test_a_workbook_whose_translations_are_its_texts_has_the_same_texts(cells: list[list[tuple[str, str]]]):
    content = xlsx("".join(rich(*runs) for runs in cells))
    document = read_document("a.xlsx", content)
    again = document.write(document.texts)
    assert texts_of(again) == list(document.texts)
    assert text_of(files_of(again)[STRINGS]) == text_of(files_of(content)[STRINGS])


def cell(text: str, attributes: str = 'office:value-type="string"') -> str:
    return f"<table:table-cell {attributes}><text:p>{text}</text:p></table:table-cell>"


def test_in_open_document_only_cells_that_hold_text_are_translated():
    note = "<office:annotation><text:p>A note</text:p></office:annotation>"
    number = cell("3 May", 'office:value-type="date"').replace("><text:p>", f">{note}<text:p>")
    formula = cell("Tom", 'office:value-type="string" table:formula="of:=[.A1]&amp;&quot;Open&quot;"')
    old = "<table:tracked-changes><table:table-cell><text:p>Old</text:p></table:table-cell></table:tracked-changes>"
    content = ods(cell("Tom") + number + formula + cell("open") + cell("One") * 2, before=old)
    assert texts_of(content, "a.ods") == ["Tom", "A note", "One", "One"]
    files = translated(content, str.upper, "a.ods")
    expected = files_of(content)["content.xml"].replace("One", "ONE").replace("A note", "A NOTE")
    assert files["content.xml"] == expected.replace(cell("Tom"), cell("TOM"))


def test_in_open_document_the_choices_of_a_list_stay():
    choices = '<table:content-validation table:condition="of:cell-content-is-in-list(&quot;Yes&quot;;&quot;No&quot;)"/>'
    assert texts_of(ods(cell("Yes") + cell("Yes, please"), before=choices), "a.ods") == ["Yes, please"]


def test_what_looks_like_a_name_in_a_value_of_a_column_stays():
    column = "<tableColumn id=' name=\"Tom\"'\n name = 'Tom' totalsRowLabel=\"Tom\"/>"
    files = translated(
        xlsx(string("Tom"), tables_table1=f"<table>{column}</table>"), lambda text: text.replace("Tom", 'K"m')
    )
    assert "<tableColumn id=' name=\"Tom\"' name='K\"m' totalsRowLabel='K\"m'/>" in files[TABLE]


@pytest.mark.parametrize("tables", [3, 40])
def test_columns_that_get_their_old_names_back_may_not_give_one_name_to_two_of_another_table(tables: int):
    changed = {"a0": "x", "b0": "X"} | {f"a{number}": f"a{number - 1}" for number in range(1, tables)}
    columns = {f"tables_table{number}": table(f"a{number - 1}", f"a{number}") for number in range(1, tables)}
    strings = "".join(map(string, changed))
    content = xlsx(strings, tables_table0=table("a0", "b0"), **columns)
    files = translated(content, lambda text: changed[text])
    names = [re.findall('name="([^"]*)"', files[f"xl/tables/table{number}.xml"]) for number in range(tables)]
    assert all(len({name.lower() for name in each}) == len(each) for each in names)
    assert names[0] == ["a0", "b0"]


def test_references_with_many_digits_and_halves_of_characters_are_read():
    digits = "9" * 5000
    column = f'<tableColumn name="a&#{digits};"/><tableColumn name="&#{"0" * 5000}65;"/>'
    sheet = '<c t="str"><f>A1</f><v>_xD800_ Tom</v></c>'
    files = translated(
        xlsx(string("_xD800_ Tom") + string("A"), sheet, tables_table1=f"<table>{column}</table>"), str.lower
    )
    assert "<v>_xD800_ tom</v>" in files[SHEET] or "<v>_xd800_ tom</v>" in files[SHEET]
    assert f'<tableColumn name="a&#{digits};"/><tableColumn name="a"/>' in files[TABLE]


def test_a_text_with_a_long_format_stays_as_it_is():
    long = f"<rPr><b a='{'a' * MOST_FORMAT}'/></rPr>"
    assert texts_of(xlsx(rich(("", "Tom"), (long, "and")) + string("I"))) == ["I"]


def test_a_digit_after_the_size_of_letters_has_a_blank_before_it():
    files = translated(
        xlsx("", "<oddHeader>&amp;12Tom&amp;L and 9</oddHeader>"), lambda text: text.replace("Tom", "7 Toms")
    )
    assert "<oddHeader>&amp;12 7 Toms&amp;L and 9</oddHeader>" in files[SHEET]
