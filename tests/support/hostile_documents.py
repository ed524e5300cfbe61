"""Documents made to take long: patterns of tokens that each kind of file gives a meaning, in files of any size.

Each family has the tokens of one place in one kind of file. A pattern repeats some of them there, so that what a reader
looks for again at each token makes its time grow faster than the file. Nothing in it is a list of known faults.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from lingon.documents import UnreadableDocument, read_document, suffix_of
from tests.support.documents import DRAWING, archive, main, ods, odt, word
from tests.support.timing import Growth, MeasuredWork, growth_of

COMMON = ("a", " ", "é", "1", ".", "\n", "漢", "\u0301", "-", '"', "'", "word ")
ALPHABETS: dict[str, Sequence[str]] = {
    "plain": (
        *COMMON, "1234", "A. ", "“", "”", "(", ")", "{", "}", "{a, plural, one {", "{a,select,x{", "#", "%s", "%",
        "@", "a@a.b", "/", "a/", "\\", "C:\\", "http://a", "www.", "<", ">", "<a ", "。", "「", "」", "🍕", "\u200b",
        "_", "__", "=", ":a", ", ", "\r\n", "\u2029", "…", "?! ", "Mr. ", "A B ", "\xa0", "&",
    ),
    "html": (
        *COMMON, "<", ">", "<b>", "</b>", "<p>", "</p>", "<i", "</", "/>", "=", '="', "='", "<a b='", "<!--",
        "-->", "--", "<![CDATA[", "]]>", "<?", "<!", "&", "&amp;", "&amp", "&#", ";", "&#x41;", "<script>",
        "</script>", "<title>", "</title", "<br>", "<li>", "<td>", "<tr>", "<sup>", "</sup>", "<a>", "</a>",
        "<code>", "</code>", "</i>", "<pre>", "<i translate=no>", "<i translate=yes>", "<x class=notranslate ",
        "<textarea>", "<p translate=no>", "1234", "http://a/",
    ),
    "xml": (
        *COMMON, "&amp;", "&#65;", "&#x41;", "&#000065;", "<b/>", "<b c='d'/>", "<i>x</i>", "<i> </i>", "<p>x</p>",
        "<k/>", "<!-- x -->", "<!---->", "<?p?>", "<![CDATA[x]]>", "<![CDATA[]]>", "<i translate='no'>x</i>",
        "<k>x</k>", "<s>x</s>", "1234", "http://a/",
    ),
}  # fmt: skip
"""Tokens by format. Each of XML is well-formed."""

ELEMENTS = {
    "plain": (("(", ")"), ("“", "”"), ("{a, plural, one {", "}}"), ("{", "}"), ("<a>", "</a>")),
    "html": (
        ("<b>", "</b>"), ("<div>", "</div>"), ("<i translate=no>", "</i>"), ("<b translate=yes>", "</b>"),
        ("<k>", ""),
    ),
    "xml": (
        ("<b>", "</b>"), ("<k>", "</k>"), ("<s>", "</s>"), ("<b translate='no'>", "</b>"),
        ("<b translate='yes'>", "</b>"),
    ),
}  # fmt: skip
"""Pairs that may be nested, by format: the opening and the closing text."""


FOUND = {
    "plain": ("é1234", "é1234 ", "“。", "“A! ", '"1234', "http://a/é ", "{a, plural, one {#} other {"),
    "html": ("<i>a</i>", "<code>a</code>", "a<br>", "&#1", "<a>1</a>", "<b translate=no>x"),
    "xml": ("<i>a</i>", "<b/>a", "<![CDATA[x]]>", "<b c='d'/>"),
}
"""Units by format that were slow once, or are near to those."""


@dataclass(frozen=True, slots=True)
class TextPattern:
    """A text of any length: the first parts are repeated, then the second ones, then those of the end as often.

    before, after: once each
    """

    before: str
    repeated: tuple[str, str, str]
    after: str

    def text(self, length: int) -> str:
        """Return a text of about so many characters."""
        times = length // max(sum(map(len, self.repeated)), 1)
        return self.before + "".join(part * times for part in self.repeated) + self.after


def text_patterns(kind: str, seed: int) -> Iterator[TextPattern]:
    """Yield those of FOUND, then patterns without end. kind: of ALPHABETS."""
    yield from (TextPattern("", (unit, "", ""), "") for unit in FOUND[kind])
    chance = random.Random(f"{kind} {seed}")

    def some(most: int) -> str:
        return "".join(chance.choices(ALPHABETS[kind], k=chance.randint(0, most)))

    while True:
        begin, end = chance.choice(ELEMENTS[kind]) if chance.random() < 0.3 else ("", "")
        unit = some(4)
        if begin or unit:
            yield TextPattern(some(1), (begin + unit, some(2) if chance.random() < 0.3 else "", end), some(1))


def strings(kind: str, seed: int, count: int) -> list[str]:
    """Return strings of the same tokens, some of them repetitions of one that end with another."""
    chance = random.Random(f"strings {kind} {seed}")
    found = []
    for number in range(count):
        token = chance.choice(ALPHABETS[kind])
        found.append((token * number)[:64] + "".join(chance.choices(ALPHABETS[kind], k=chance.randint(1, 3))))
    return [string for string in found if string.strip()]


TIMES = "1\n00:00:01,000 --> 00:00:03,000\n"

# fmt: off
MARKUP = [
    '<', '>', '</', '<a>', '</a>', '<a/>', '<a ', "<a b='", '<a b="', '/>', '<!--', '-->', '<!', '<?', '?>',
    '<![CDATA[', ']]>', '&', '&amp;', '&#', '&#x', ';', '9', '=', '/',
]
WORDS = [
    'Tom ', 'a', ' ', '\t', '\n', '.', '1', '-', '"', "'", '\\', '(', ')', '[', ']', '{', '}', 'é', '😀',
]
XML_TEXT = [
    'Tom ', 'a', ' ', '\t', '\n', '.', '1', '-', '"', "'", '&amp;', '&lt;', '&#10;', '_x000a_', '_x', 'é', '[', ']',
    '&amp;#', '<!--a-->', '<?a b?>', '<![CDATA[<]]>', '\\',
]
UNREAD = [
    '<', '>', '/>', '<x:lang ', '<lang', "<a b='", '<a b="', " lang='a'", "'", '"', 'a', ' ', '\n', '&', '=',
    "<c t='str'>", '<f>', '<tableColumn ', "name='", 'name="', '<filter ', 'val=', '<is>', '</f>',
]
NOTES = ['<x:lang ', '<w:lang', '<x:noProof ', ' lang="', 'a', '>', '/>', '"', ' ']
VALUE = [
    'a', ' ', '"', '>', '/>', '&lt;', '&amp;', '&#10;', '=', ' lang=', '[', ']', '&quot;', ',', '@', '-->', 'é',
]
ATTRIBUTES = [
    " a#='b'", ' b#=""', '  ', '\n', '\t', " c#='&lt;'", " xmlns:d#='e'", ' f#=">"', " g# = 'h'",
]
HEADER = [
    '&amp;', '&amp;1', '1', '&amp;"', '"', '&amp;L', '&amp;K', '&amp;K01+000', 'Tom ', '\n', '&amp;&amp;', ',',
]
FORMULA = [
    '"', '""', '[', ']', "'", "'[", "']", '[[', ']]', '@', '#', ',', 'Tom', '&amp;', '&quot;', '"Tom"', '[Tom]',
]
WORD = [
    '<w:r><w:t>Tom </w:t></w:r>', '<w:r><w:rPr><w:b/></w:rPr><w:t>Tom</w:t></w:r>', '<w:r><w:br/></w:r>',
    '<w:proofErr/>', "<w:r><w:rPr><w:lang w:val='a'/><w:b w:c='#'/></w:rPr><w:t>a</w:t></w:r>",
    '<w:r><w:t>1</w:t><w:tab/><w:t>.</w:t></w:r>', "<w:bookmarkStart w:id='1'/>", "<w:bookmarkEnd w:id='1'/>",
    "<w:bookmarkStart w:id='#'/>", "<w:bookmarkEnd w:id='#'/>", "<w:r><w:fldChar w:fldCharType='begin'/></w:r>",
    "<w:r><w:instrText>PAGE</w:instrText></w:r>",
    "<w:fldSimple w:instr='REF a'><w:r><w:t>Tom</w:t></w:r></w:fldSimple>",
    "<w:r><w:fldChar w:fldCharType='separate'/></w:r>", "<w:r><w:fldChar w:fldCharType='end'/></w:r>",
    '<w:hyperlink><w:r><w:t>Tom</w:t></w:r></w:hyperlink>', '<w:ins/>', "<w:commentRangeStart w:id='#'/>",
    "<w:commentRangeEnd w:id='#'/>", '<w:r><w:noBreakHyphen/></w:r>', '<w:sdt/>', '<w:pPr/>',
    '<w:del><w:r><w:t>a</w:t></w:r></w:del>', '<w:r><w:t>Tom\t</w:t></w:r>', '<w:r><w:drawing/></w:r>', '<!--a-->',
]
WORD_FRAMES = [
    '<w:ins>{}</w:ins>', '<w:sdt><w:sdtContent>{}</w:sdtContent></w:sdt>', '<w:r><w:p>{}</w:p></w:r>',
    '<w:del>{}</w:del>',
]
RUN = [
    '<w:t>a</w:t>', '<w:br/>', '<w:tab/>', '<w:noBreakHyphen/>', '<w:t>Tom\t</w:t>', '<w:drawing/>',
    '<w:rPr><w:b/></w:rPr>',
]
PROPERTIES = [
    '<w:lang/>', "<w:noProof w:val='#'/>", '<w:b/>', "<w:i a='#'/>", '<w:c><w:lang/></w:c>', ' ', '<!--a-->',
]
SLIDE = [
    '<a:r><a:t>Tom </a:t></a:r>', "<a:r><a:rPr lang='a' b='#'/><a:t>a\t</a:t></a:r>", '<a:br/>', '<a:fld/>',
    '<a:pPr/>', '</a:p><a:p>', "<a:r><a:rPr dirty='0'><a:b/></a:rPr><a:t>Tom</a:t></a:r>",
]
OPEN = [
    'Tom ', '<text:s/>', "<text:s text:c='9'/>", "<text:span a='#'>Tom </text:span>", '<text:span>a</text:span>',
    '<text:tab/>', '\n', '<text:a>Tom</text:a>', "<text:bookmark-start text:name='#'/>",
    "<text:bookmark-end text:name='#'/>", '<text:line-break/>', '<text:note><text:p>Tom</text:p></text:note>',
    '<office:annotation/>', '<text:soft-page-break/>', '1', '</text:p><text:p>',
    "<text:bookmark-start text:name='a'/>", "<text:bookmark-end text:name='a'/>", '<!--a-->', '  ',
]
OPEN_FRAMES = [
    "<text:span a='b'>{}</text:span>", '<text:a>{}</text:a>', '<text:note><text:p>{}</text:p></text:note>',
]
CELLS = [
    '<table:table-cell/>', '<table:table-cell><text:p>Tom</text:p></table:table-cell>',
    '</table:table-row><table:table-row>', "<table:table-cell table:formula='#'><text:p>a</text:p></table:table-cell>",
    '<text:p>Tom #</text:p>', "<table:table-cell table:formula='of:=&quot;Tom&quot;'/>",
    '<table:table-cell><text:p>1</text:p><text:p>Tom</text:p></table:table-cell>',
]
STRINGS = [
    '<si><t>Tom #</t></si>', '<si><r><t>Tom</t></r><r><rPr><b/></rPr><t>a</t></r></si>', '<si/>', '<si><rPh/></si>',
]
SHEET = [
    '<c/>', "<c t='str'><f>A1</f><v>Tom</v></c>", "<c t='str'><f/><v>Tom</v></c>",
    "<c t='inlineStr'><is><t>Tom #</t></is></c>", ' ', '<f>"Tom"</f>', '<f>A[[Tom]]</f>', "<filter val='#'/>",
    '<oddHeader>Tom &amp;L</oddHeader>', '<v>1</v>', "<c t='str'>1</c>", "<cacheField name='a#'/>",
    '<formula1>&quot;a,b&quot;</formula1>', '<row/>', "<!--<c t='str'-->", '<c r=\'#\' t="str"/>',
]
COLUMNS = [
    "<tableColumn name='Tom #'/>", "<tableColumn name='a#' totalsRowLabel='b'/>", "<tableColumn a='b'/>", ' ',
]
CODES = [
    'Tom ', 'a', '\n', '.', ' ', '1', '<x/>', '<g>Tom </g>', "<bpt id='#'>a</bpt>", "<ept id='#'>a</ept>",
    "<bx rid='1'/>", "<ex rid='1'/>", "<bx rid='#'/>", "<ex rid='#'/>", "<ph ctype='lb'/>",
    "<mrk mtype='protected'>a</mrk>", '<!--a-->', "</source></trans-unit><trans-unit id='#'><source>",
    "</source><target state='new'/></trans-unit><trans-unit><source>",
]
SEGMENTS = [
    "<mrk mtype='seg' mid='#'>Tom </mrk>", "<mrk mtype='seg' mid='1'>a</mrk>", "<mrk mtype='seg'/>", '<g>Tom </g>', ' ',
    "<mrk mtype='seg' mid='#'><ph>a<sub>Tom</sub></ph></mrk>", 'Tom ', '<x/>', '<![CDATA[a]]>', '\n', '&lt;b&gt;',
    "</seg-source><target><mrk mtype='seg' mid='1'/></target></trans-unit><trans-unit><source/><seg-source>",
    "</seg-source><target state='new'><mrk mtype='seg' mid='#'>a</mrk></target></trans-unit>"
    "<trans-unit maxwidth='1' size-unit='char'><source/><seg-source>",
]
CODED = [
    'Tom ', 'a', '&lt;b>', '&lt;/b>', '&lt;', '<ph><sub>Tom</sub></ph>', '<sub>a</sub>', "<it i='#'/>", '<hi>a</hi>',
    "<bpt i='#'>a</bpt>", "<ept i='#'/>", "<sm id='#' translate='no'/>", "<em startRef='#'/>", '{1>', '&lt;1}', '{1}',
]
VARIANTS = [
    '<tuv xml:lang="en"><seg>Tom #</seg></tuv>', '<tuv xml:lang="de"><seg/></tuv>', '<tuv><seg>a</seg></tuv>', '\n  ',
    '</tu><tu>', '<tuv xml:lang="fr"/>', '<prop>a</prop>', '<!--a-->', '</tu><tu srclang="fr">',
]
RESOURCES = [
    '<string name="a#">Tom #</string>', '<string name="a" translatable="false">a</string>', '\n    ', '<!--a-->',
    '<plurals name="p"><item quantity="one">Tom</item>\n<item quantity="other">a</item></plurals>', '<item>a</item>',
    '<plurals name="q"><item quantity="few">a</item></plurals>', '<string-array><item>Tom</item></string-array>',
]
STRING = [
    'Tom ', 'a', '\\', "\\'", "'", '"', '\\n', '\\u0041', '\\u', '@', '?', '%1$s', '&lt;b>', '&lt;', '<b>a</b>', '\n  ',
    ' ', '<xliff:g>a</xliff:g>', '<br/>', '&e;', '<![CDATA[<b>]]>', '<!--a-->', '<?a b?>', '&amp;', '&#160;',
]
MESSAGES = [
    '<message><source>Tom #</source></message>', '<message numerus="yes"><source>%n a</source><translation/></message>',
    '<message><source>&amp;a</source><translation type="unfinished">\n</translation></message>', '<context>', '\n  ',
    '</context>', '<message><source>a</source><translation>b</translation></message>', '<!--a-->',
]
KEYS = [
    '&amp;', '&amp;a', 'A', 'Tom ', '&amp;amp;', '%1', '{', '}', '...', '<byte/>', '&lt;a b="&amp;c">', '@', 'x', ' ',
    '/',
]
DATA = [
    '<data name="a#"><value>Tom #</value></data>', '<data name="b.Text"><value>&amp;a</value></data>', '<data/>', '\n',
    '<data name="c" type="System.Int32"><value>a</value></data>', '<value>Tom</value>', '<!--a-->', '<metadata/>',
]
SUBTITLES = [
    '00:00:01,000 --> 00:00:02,000', '\n\n1\n00:00:01,000 --> 00:00:03,000\n', '-->', '00:00', '00:00:01,000', '\n1\n',
    '\n', '\r\n', '- ', '<i>', '</i>', '<', '>', '{\\an8}', '{\\', '}', '<00:00>', '<v Tom>', 'Tom ', 'a ', 'a', '.',
    '...', ')', '&amp;', '&', ' ', '\t', '\x00', '\x01', '1', '<c.', '[', '♪', '\n- ', '\x0b', '&#9',
]
DIALOGUES = [
    '{\\i1}', '{\\i0}', '{', '}', '{\\p1}', '{\\p0}', '\\p1', '\\p', '\\N', '\\n', '\\h', '\\', 'Tom ', 'a', '.', ' ',
    '- ', '{\\k2}', '♪', '{a}',
    ',', '\x00', '\x01', '\nDialogue: 0:00:03.00,0:00:04.00,a,', '\nComment: a\n', '[', '\n',
]
ENTRIES = [
    '#, c-format\nmsgid "%s %d"\nmsgstr ""\n\n',
    'msgid "a" "b"\nmsgstr ""\n\n', '#| msgid "a"\n', '"a" ', '"Language: \\n"\n',
    '#, python-brace-format, kde-format\nmsgid "{a} %1"\nmsgstr ""\n\n', '"Plural-Forms: nplurals=1; plural=0;\\n"\n',
    'msgid "Tom #"\nmsgstr ""\n\n', 'msgid "a <b>"\nmsgid_plural "b\\n"\nmsgstr[0] ""\n\n', '#, fuzzy\n', '#~ a\n',
    '# \n', '\n', 'msgctxt "a"\nmsgid "Tom"\nmsgstr ""\n', 'msgid ""\n"Tom\\n"\n"a"\nmsgstr ""\n\n',
    'msgid "a"\nmsgstr "b"\n',
]
MESSAGE = [
    'Tom ', 'a', ' ', '\\n', '\\r', '\\t', '\\000', '\\x41', '\\"', '\\\\', '<b>', '</b>', '<i/>', '<', '>', '&', '%s',
    '.', '"\n"', ' \\n', '_', '%d', '%(a)s', '%1$s', '%', '%%', '{a}', '{', '}', '%<a>s', '%1%', '$a', '~a', '`', '``',
    ':a:`', '|', '|a|', '*', '**', '[', '](a)', '_', '`_', '[a]_', '![',
]
PLURALS = [
    'Plural-Forms: ', 'nplurals', '=', '1', ';', ' ', '\\n', 'Content-Type: ', 'charset=', 'utf-8', '\\t', '"\n"', '?',
    'n', '%', '0', ':', '(', ')', 'plural=', 'Language: ', '!', '|', '&',
]
MARKDOWN = [
    '{#a}', '{: ', '{', '}', '{a=b ', '{% ', '%}', '[[', ']]', '[[a|b]]', '==', '==a', '~a~', '^a^', '^',
    '\\(', '\\)', '\\]',
    '\\(a^', '[a]{.b', '[a]{.b}', '\n[^a]: ', '\n*[a]: ',
    '*', '**', '_', '__', '~~', '`', '``', '[', ']', '[a]', '[a](b)', '](', '![', '![a](b)', '(', ')', '<', '>', '\\',
    '\\[', '$', '$$', '$a$', '|', '-', '*a', 'a*', '_a', 'a_', '**a', 'a**', 'a|', '&', '&amp;', '&#1;', ':', '[^a]',
    '"', "'", '!', '=', '+', '#', '~', '[a](b "', "(b 'c')", '[x]', '[][a]', '[a][', '<b ', '<a>', '</a>',
    '<http://a>', '<http:', '<!--', '-->', "<a b='", '<a b="', '<?', '<![CDATA[', '<!A', '<br>', 'Tom ', 'a', ' ', '1',
    '.', '\\\\', '\\`', ']:', '<a@b.c>', '{', '}', '%', 'é', '--->', '[#](b)',
]
BLOCKS = [
    '!!! note "a"\n    ', '\n    a\n', '??? a\n', '=== "a"\n\n    ', '::: a b\n', '[^a]: b\n\n    c\n',
    '\n', '\n\n', '  \n', '    ', '\t', '===\n', '---\n', '```\n', '~~~\n', '- ', '> ', '# ', '1. ', '* ', '+ ',
    ':::\n', '[a]: b\n', '[a#]: b\n', '[^a]: ', '|-|\n', '|a|\n', 'a|b\n', '-|-\n', '<div>\n', '<!--\n', 'a\n',
    'Tom\n', '[!NOTE]\n', '\r\n', '\\\n', '"\n', "'\n", "[a]: b '", '[a]: <', '- [ ] ', "<a b='c'>\n", '+++\n', '| ',
    '  ', '2) ', '#\n', '- a\n',
]
LOCALISED = [
    'Tom ', 'a', ' ', '{', '}', '{n, plural, ', 'one {', 'other {', '{name}', '{0}', '{7}', '#', "'", "''", "'{", '<b>',
    '</b>', '<', '$', '$a$', '$t(', ')', '%', '%#@a@', '%arg', '_', '.', '/', '-', 'aB', ':', ', ', '&amp;', '@', '1',
    'http://', '(', '{{', '}}', '=0 {', 'select,', ',', '|',
]
JSON = [
    '"a#": "Tom",', '"a": "Tom",', '{', '}', '[', ']', '"', ',', ':', '"a":', '"Tom"', '1', 'null', ' ', '\n', '\\',
    '\\u',     '"a_one": "Tom", "a_other": "b",', '"a#_other": "Tom", "a#_one": "b",', '{"one": "Tom", "other": "a"},',
    '"a#_plural": "Tom", "a#": "b",', '{},', '[],', '"\\u00e9",', '"@a": {},', '"\\/",',
]
JAVA = [
    'a#=Tom\n', 'a = Tom \\\n', '\\', '\\\n', '\n', ' ', '=', ':', '# ', '!', '\\u00e9', '\\u', '\t', '\r', 'a', 'Tom',
    '\\:', 'a', '\u00e9', '\f', '\\\r\n   ',
]
STRINGS_OF_APPLE = [
    '"a" = "Tom";', '"a#"="b";\n', '"', ';', '=', '/*', '*/', '//', '\n', '*', '/', '\\', '\\U00e9', '\\n', "'", 'a',
    ' ', '"Tom";', '/* a */',
]
PLIST = [
    '<key>a#</key><dict><key>NSStringFormatSpecTypeKey</key><string>a</string><key>other</key><string>Tom</string></dict>',
    '<key>a</key><string>Tom</string>', '<key>b</key><dict>', '</dict>', ' ', '<!--', '-->', '&amp;',
    '<key>other</key><string>a</string>', '<key>NSStringLocalizedFormatKey</key><string>Tom</string>', '<true/>',
]
CATALOGUE = [
    '"Tom #" : {},', '"a#" : {"localizations" : {"en" : {"stringUnit" : {"state" : "new", "value" : "Tom"}}}},',
    '"b#" : {"localizations" : {"de" : {"stringUnit" : {"state" : "new", "value" : ""}}}},', ' ', '\n',
    '"c#" : {"localizations" : {"en" : {"variations" : {"plural" : {"one" : {"stringUnit" : {"state" : "a", '
    '"value" : "b"}}, "other" : {"stringUnit" : {"state" : "a", "value" : "Tom"}}}}}}},',
    '"d#" : {"shouldTranslate" : false},',
]
YAML = [
    'a#: Tom\n', '  a#: Tom\n', '- Tom\n', '  - ', '|\n', '>\n', '|-\n', '    Tom a\n', '\n', '# a\n', '"', "'",
    'a: ', ': ', '[', ']', '{', '}', ', ', '&a ', '*a', '!!str ', '!a ', '? ', '---\n', ' ', '\t', 'Tom ', 'a', '\\',
    '"Tom",', '"a#": b,',
    '{one: Tom, other: a},', '- one: Tom\n  other: a\n', '%', '@', '-', '\r\n', '...\n', '<<: *a\n',
]
FLUENT = [
    'a# = Tom\n', 'a =', '\n    ', '\n', '{ $n }', '{ "a" }', '{', '}', ' Tom ', 'a', ' ', '[one] ', '*[other] ',
    '{ $n ->', '\n   *[other] Tom\n }', '# a\n', '-b = Tom\n', '    .a = Tom\n', '{ -b }', '"', '=', '.', '[', '*', '-',
    '>', '\r\n',
    '{ $n ->\n [one] a\n *[other] Tom\n }\n', '(', ')', '{ A($n, b: 1) }',
]
CELLS_OF_TABLES = [
    'Tom', 'a', ',', ';', '\t', '\n', '\r\n', '"', '""', '"Tom"', ' ', '"Tom\n",', ',,', 'Tom,a\n',
    '\r', "'",
]
# fmt: on


MEMSOURCE = 'xmlns:m="http://www.memsource.com/mxlf/2.0"'
TUV = '<tuv xml:lang="en"><seg>{}</seg></tuv>'
LEAST_BYTES, MOST_BYTES = 4_000, 512_000  # of the repeated text
EVENTS = "[Events]\nFormat: Start, End, Style, Text\nDialogue: 0:00:01.00,0:00:02.00,a,"
NUMBER = "#"  # in a token: a number that is new each time
Wrap = Callable[[str], bytes]


@dataclass(frozen=True, slots=True, eq=False)
class Family:
    """Patterns of one place in one kind of file.

    suffix: of the file
    place: in words
    wrap: makes a file of the text in the place
    tokens: that patterns are made of
    frames: texts that may be around a pattern, several times
    """

    suffix: str
    place: str
    wrap: Wrap
    tokens: Sequence[str]
    frames: Sequence[str] = ()


@dataclass(frozen=True, slots=True, eq=False)
class HostilePattern:
    """A file of any size: what is before, each unit as often as the size asks for in turn, and what is after."""

    family: Family
    before: str
    units: tuple[str, ...]
    after: str

    def content(self, size: int) -> bytes:
        """Return a file in which the repeated units have about so many bytes."""
        count = max(size // sum(len(unit.encode()) for unit in self.units), 1)
        parts = [unit.split(NUMBER) for unit in self.units]
        repeated = (str(number).join(part) for part in parts for number in range(count))
        return self.family.wrap("".join([self.before, *repeated, self.after]))

    def __str__(self) -> str:
        units = " ".join(f"n*{unit!r}" for unit in self.units)
        return f"{self.family.suffix}, {self.family.place}: {self.before!r} {units} {self.after!r}"


def patterns(seed: int, suffix: str = "") -> Iterator[HostilePattern]:
    """Yield patterns without end, of each family in turn. suffix: of their files, all if it is empty."""
    choices = random.Random(seed)
    families = [family for family in FAMILIES if suffix in ("", family.suffix)]
    while True:
        for family in families:
            alphabet = choices.choices(family.tokens, k=choices.choice([1, 1, 2, 3, 5]))
            units = tuple(_some(choices, alphabet, 1, 3) for _ in range(choices.choice([1, 1, 1, 2, 2, 3])))
            before, after = (_some(choices, family.tokens, 0, 2) for _ in range(2))
            for _ in range(choices.choice([0, 1, 1, 2, 8]) if family.frames else 0):
                begin, end = choices.choice(family.frames).split("{}")
                before, after = begin + before, after + end
            yield HostilePattern(family, before, units, after)


def _some(choices: random.Random, tokens: Sequence[str], least: int, most: int) -> str:
    return "".join(choices.choices(tokens, k=choices.randint(least, most)))


def growth(pattern: HostilePattern, worth: float) -> Growth:
    """Return the growth of the time of all work on a file. worth: see `growth_of`."""

    def prepare(size: int) -> MeasuredWork:
        return partial(_read_and_write, f"a{pattern.family.suffix}", pattern.content(size))

    return growth_of(prepare, LEAST_BYTES, worth=worth, most=MOST_BYTES, refusals=(UnreadableDocument,))


def _read_and_write(name: str, content: bytes) -> None:
    suffix_of(content)
    document = read_document(name, content, "de")
    assert document.characters >= 0
    document.write(document.texts)


def _in(wrap: Callable[[str], bytes], frame: str) -> Wrap:
    begin, end = frame.split("{}", 1)
    return lambda body: wrap(begin + body + end)


def _docx(body: str) -> bytes:
    return archive({"word/document.xml": word(body)})


def _pptx(body: str) -> bytes:
    return archive({"ppt/slides/slide1.xml": f'<p:sld xmlns:p="p" xmlns:a="{DRAWING}">{body}</p:sld>'})


def _xliff(body: str) -> bytes:
    unit = f'<trans-unit id="1"><source>{body}</source></trans-unit>'
    return f'<xliff version="1.2"><file><body>{unit}</body></file></xliff>'.encode()


def _xliff_2(body: str) -> bytes:
    return f'<xliff version="2.0"><file><unit><segment><source>{body}</source></segment></unit></file></xliff>'.encode()


def _sdl(body: str) -> bytes:
    unit = f"<trans-unit id='1'><source/><seg-source>{body}</seg-source></trans-unit>"
    return f'<xliff version="1.2"><file><body>{unit}</body></file></xliff>'.encode()


def _qt(body: str) -> bytes:
    return f"<TS><context><message><source>{body}</source></message></context></TS>".encode()


def _android(body: str) -> bytes:
    prolog = '<!DOCTYPE resources [<!ENTITY e "Tom">]>'
    space = 'xmlns:xliff="urn:oasis:names:tc:xliff:document:1.2"'
    return f"{prolog}<resources {space}><string>{body}</string></resources>".encode()


def _book(name: str, frame: str) -> Wrap:
    return _in(lambda body: archive({"mimetype": "application/epub+zip", name: body}), frame)


def _xlsx(name: str, frame: str) -> Wrap:
    """Return what makes a workbook. name: of the file with the pattern, frame: around it."""
    files = {
        "workbook": '<workbook a="b"><calcPr a="b"/></workbook>',
        "sharedStrings": '<sst a="b"><si><t>Tom</t></si></sst>',
        "worksheets/a": '<worksheet a="b"><c t="str"><f>A1</f><v>Tom</v></c></worksheet>',
        "tables/a": '<table a="b"><tableColumn name="Tom"/></table>',
    }

    def wrap(body: str) -> bytes:
        return archive({f"xl/{each}.xml": main(content) for each, content in (files | {name: body}).items()})

    return _in(wrap, frame)


def _text(frame: str) -> Wrap:
    return _in(str.encode, frame)


def _places(suffix: str, wrap: Callable[[str], bytes], element: str, text: str) -> list[Family]:
    """Return the places that XML has beside elements. element: an empty one, text: around a text."""
    begin, end = text.split("{}")
    whole = f"{begin}Tom{end}"
    return [
        Family(suffix, "a text", _in(wrap, text), XML_TEXT),
        Family(suffix, "a comment", _in(wrap, f"{begin}<!--{{}}-->Tom{end}"), UNREAD),
        Family(suffix, "an instruction", _in(wrap, f"{begin}<?a {{}}?>Tom{end}"), UNREAD),
        Family(suffix, "CDATA", _in(wrap, f"{begin}Tom<![CDATA[{{}}]]>{end}"), UNREAD),
        Family(suffix, "a value", _in(wrap, f"<{element} b='{{}}'/>{whole}"), VALUE),
        Family(suffix, "a start tag", _in(wrap, f"<{element} {{}}/>{whole}"), ATTRIBUTES),
    ]


FAMILIES = [
    Family(".txt", "a file", str.encode, [*WORDS, *MARKUP]),
    Family(".html", "a page", str.encode, [*WORDS, *MARKUP]),
    Family(".docx", "a paragraph", _in(_docx, "<w:p><w:r><w:t>Tom</w:t></w:r>{}</w:p>"), WORD, WORD_FRAMES),
    Family(".docx", "a run", _in(_docx, "<w:p><w:r><w:rPr><w:b/></w:rPr>{}<w:t>Tom</w:t></w:r></w:p>"), RUN),
    Family(".docx", "properties", _in(_docx, "<w:p><w:r><w:rPr>{}</w:rPr><w:t>Tom</w:t></w:r></w:p>"), PROPERTIES),
    Family(
        ".docx",
        "a comment in properties",
        _in(_docx, "<w:p><w:r><w:rPr><!--{}--></w:rPr><w:t>a</w:t></w:r></w:p>"),
        NOTES,
    ),
    Family(".docx", "paragraphs", _in(_docx, "<w:p>{}</w:p>"), [*WORD, "</w:p><w:p>"]),
    *_places(".docx", _docx, "w:b", "<w:p><w:r><w:t>Tom {}</w:t></w:r></w:p>"),
    Family(".pptx", "a paragraph", _in(_pptx, "<a:p><a:r><a:t>Tom</a:t></a:r>{}</a:p>"), SLIDE),
    *_places(".pptx", _pptx, "a:b", "<a:p><a:r><a:t>Tom {}</a:t></a:r></a:p>"),
    Family(".pptx", "the tag of properties", _in(_pptx, "<a:p><a:r><a:rPr{}/><a:t>a</a:t></a:r></a:p>"), ATTRIBUTES),
    Family(".odt", "a paragraph", _in(odt, "<text:p>Tom {}</text:p>"), OPEN, OPEN_FRAMES),
    Family(".odt", "a format", _in(odt, "<text:p>Tom <text:span a='{}'>Tom<text:s/></text:span></text:p>"), VALUE),
    *_places(".odt", odt, "text:b", "<text:p>Tom {}</text:p>"),
    Family(".odp", "a slide", _in(odt, "<text:p>Tom {}</text:p>"), OPEN, OPEN_FRAMES),
    Family(".ods", "a row", ods, CELLS),
    Family(".ods", "a formula", _in(ods, "<table:table-cell table:formula='{}'/>"), [*VALUE, *FORMULA[:1]]),
    *_places(".ods", ods, "text:b", "<table:table-cell><text:p>Tom {}</text:p></table:table-cell>"),
    Family(".xlsx", "strings", _xlsx("sharedStrings", '<sst a="b">{}</sst>'), STRINGS),
    Family(".xlsx", "a string", _xlsx("sharedStrings", '<sst a="b"><si><t>Tom {}</t></si></sst>'), XML_TEXT),
    Family(
        ".xlsx",
        "a run",
        _xlsx("sharedStrings", '<sst a="b"><si><r><rPr><b/></rPr><t>Tom {}</t></r></si></sst>'),
        XML_TEXT,
    ),
    Family(".xlsx", "a sheet", _xlsx("worksheets/a", '<worksheet a="b">{}</worksheet>'), SHEET),
    Family(".xlsx", "a formula", _xlsx("worksheets/a", '<worksheet a="b"><f>{}</f></worksheet>'), FORMULA),
    Family(
        ".xlsx",
        "a header",
        _xlsx("worksheets/a", '<worksheet a="b"><oddHeader>Tom {}</oddHeader></worksheet>'),
        HEADER,
    ),
    Family(".xlsx", "a comment", _xlsx("worksheets/a", '<worksheet a="b"><!--{}--></worksheet>'), UNREAD),
    Family(".xlsx", "a table", _xlsx("tables/a", '<table a="b">{}</table>'), COLUMNS),
    Family(
        ".xlsx",
        "a column",
        _xlsx("tables/a", '<table a="b"><tableColumn {}/></table>'),
        [*ATTRIBUTES, " name='a'"],
    ),
    Family(".xlsx", "a comment in a table", _xlsx("tables/a", '<table a="b"><!--{}--></table>'), UNREAD),
    Family(
        ".xlsx",
        "the workbook",
        _xlsx("workbook", '<workbook a="b"><calcPr {}/></workbook>'),
        [*ATTRIBUTES, *VALUE],
    ),
    Family(".epub", "a page", _book("a.xhtml", "{}"), [*WORDS, *MARKUP]),
    Family(
        ".epub",
        "the contents",
        _book("a.ncx", '<ncx xmlns="http://www.daisy.org/z3986/2005/ncx/">{}</ncx>'),
        ["<text>Tom &amp; #</text>", "<text>a</text>", "<b/>", " "],
    ),
    Family(".srt", "a file", str.encode, SUBTITLES),
    Family(".srt", "a cue", _text(f"{TIMES}Tom {{}}\n"), [each for each in SUBTITLES if "\n\n" not in each]),
    Family(".srt", "a line", _text(f"{TIMES}Tom {{}}\n"), [each for each in SUBTITLES if "\n" not in each]),
    Family(
        ".srt",
        "a second cue",
        _text(f"{TIMES}Tom\n\n{TIMES.replace('01', '03')}a {{}}\n"),
        ["Tom ", "a ", "a", "<i>", "</i>", "\n"],
    ),
    Family(".vtt", "a file", _text(f"WEBVTT\n\n{TIMES}Tom\n\n{{}}"), SUBTITLES),
    Family(
        ".vtt",
        "a cue",
        _text(f"WEBVTT\n\n{TIMES}Tom {{}}\n"),
        [each for each in SUBTITLES if "\n\n" not in each],
    ),
    Family(".ass", "a file", _text(f"{EVENTS}{{}}"), DIALOGUES),
    Family(".ass", "a dialogue", _text(f"{EVENTS}Tom {{}}\n"), [each for each in DIALOGUES if "\n" not in each]),
    Family(".xlf", "a unit", _in(_xliff, "Tom {}"), CODES, ["<g>{}</g>", "<mrk>{}</mrk>"]),
    *_places(".xlf", _xliff, "x", "Tom {}"),
    Family(".xlf", "a unit of version 2", _in(_xliff_2, "Tom {}"), [*CODES[:13], *CODED]),
    Family(".sdlxliff", "segments", _sdl, SEGMENTS, ["<g>{}</g>"]),
    Family(".sdlxliff", "a text in a code", _in(_xliff, "<ph><sub>{}</sub></ph>"), CODED),
    Family(
        ".mxliff",
        "a unit",
        _text(f'<xliff version="1.2" {MEMSOURCE}><trans-unit><source>{{}}</source></trans-unit></xliff>'),
        CODED,
    ),
    Family(".mqxliff", "a unit", _in(_xliff, "Tom {}"), CODES),
    Family(".tmx", "a unit", _text("<tmx><body><tu>{}</tu></body></tmx>"), VARIANTS),
    Family(".tmx", "a text", _text(f"<tmx><body><tu>{TUV}</tu></body></tmx>"), CODED, ["<hi>{}</hi>"]),
    *_places(".tmx", _text(f"<tmx><body><tu>{TUV}</tu></body></tmx>"), "x", "Tom {}"),
    Family(".ts", "messages", _text("<TS><context>{}</context></TS>"), MESSAGES),
    Family(".ts", "a message", _in(_qt, "Tom {}"), [*KEYS, *XML_TEXT]),
    *_places(".ts", _qt, "x", "Tom {}"),
    Family(".resx", "data", _text("<root><data/>{}</root>"), DATA),
    Family(".resx", "a value", _text('<root><data name="a.Text"><value>&amp;a {}</value></data></root>'), KEYS),
    Family(".resw", "a value", _text("<root><data><value>Tom {}</value></data></root>"), XML_TEXT),
    Family(".xml", "resources", _text("<resources>{}</resources>"), RESOURCES),
    Family(".xml", "a string", _in(_android, "Tom {}"), STRING, ["<b>{}</b>", "<xliff:g>{}</xliff:g>"]),
    Family(
        ".xml",
        "a plural",
        _text("<resources><plurals>{}</plurals></resources>"),
        [*RESOURCES[5:6], '<item quantity="one">Tom</item>', '<item quantity="#"/>', "\n  "],
    ),
    Family(
        ".xml",
        "entities",
        _text('<!DOCTYPE a [<!ENTITY e "Tom">{}]><resources a="&e;"/>'),
        ["<!ENTITY e# 'a'>", "<!--a-->", "\n"],
    ),
    Family(".xml", "entities in a value", _text('<!DOCTYPE a [<!ENTITY e "Tom">]><resources a="{}"/>'), ["&e;", "a"]),
    *_places(".xml", _android, "x", "Tom {}"),
    Family(".xml", "any other", _text("<a>{}</a>"), XML_TEXT),
    Family(".xml", "before the root", _text("{}<a>Tom</a>"), ["<!--a-->", "<?a b?>", "\n", "<!--", "a", "-->"]),
    Family(".svg", "a drawing", _text("<svg><text>{}</text></svg>"), XML_TEXT),
    Family(".dita", "a topic", _text("<topic><p>{}</p></topic>"), XML_TEXT),
    Family(".po", "a file", str.encode, ENTRIES),
    Family(".po", "a message", _text('msgid "Tom {}"\nmsgstr ""\n'), MESSAGE),
    Family(".po", "a page", _text('#: a.rst:1\nmsgid "Tom {}"\nmsgstr ""\n'), MESSAGE),
    Family(".po", "a page of Markdown", _text('#: a.md:1\nmsgid "Tom {}"\nmsgstr ""\n'), MESSAGE),
    Family(
        ".po",
        "a message with arguments",
        _text('#, c-format, python-brace-format, kde-format, sh-format\nmsgid "Tom {}"\nmsgstr ""\n'),
        MESSAGE,
    ),
    Family(
        ".po",
        "a plural with arguments",
        _text('#, boost-format, lisp-format\nmsgid "Tom {}"\nmsgid_plural "a"\nmsgstr[0] ""\n'),
        MESSAGE,
    ),
    Family(".po", "a header", _text('msgid ""\nmsgstr "{}"\n\nmsgid "Tom"\nmsgstr ""\n'), PLURALS),
    Family(".md", "a file", str.encode, [*MARKDOWN, *BLOCKS]),
    Family(".md", "blocks", str.encode, BLOCKS),
    Family(".md", "a paragraph", _text("Tom {}\n"), MARKDOWN),
    Family(".md", "a paragraph with references", _text("[a]: b\n\nTom {}\n"), MARKDOWN),
    Family(".md", "a list", _text("- Tom {}\n"), [*MARKDOWN, *BLOCKS]),
    Family(".md", "a cell", _text("|a|\n|-|\n|Tom {}|\n"), MARKDOWN),
    Family(".json", "a file", str.encode, JSON, ['"a": [{}],', "[{}],"]),
    Family(".json", "an object", _text('{"a": "Tom", {} "b": "Tom"}'), JSON),
    Family(".json", "an array", _text('["Tom", {} "a"]'), JSON),
    Family(".json", "a text", _text('["Tom {}"]'), LOCALISED),
    Family(".json", "a message", _text('{"a": {"message": "Tom {}"}}'), LOCALISED),
    Family(".json", "texts", lambda body: b'["' + body.replace("a", '", "').encode() + b'"]', LOCALISED),
    Family(".arb", "a file", _text('{"a": "Tom", {} "b": "Tom"}'), JSON),
    Family(".arb", "a plural", _text('{"a": "{n, plural, one {Tom {}} other {Tom}}"}'), LOCALISED),
    Family(".properties", "a file", str.encode, JAVA),
    Family(".properties", "a value", _text("a = Tom {0} {}\n"), LOCALISED),
    Family(".strings", "a file", str.encode, STRINGS_OF_APPLE),
    Family(".strings", "a text", _text('"a" = "Tom {}";'), LOCALISED),
    Family(".stringsdict", "a dictionary", _text('<plist version="1.0"><dict>{}</dict></plist>'), PLIST),
    Family(".xcstrings", "entries", _text('{"sourceLanguage": "en", "strings": {{}"z": {}}}'), CATALOGUE),
    Family(".yml", "a file", str.encode, YAML),
    Family(".yml", "texts", _text("en:\n  a: Tom\n{}"), YAML),
    Family(".yml", "a list", _text('en: [Tom, {} "a"]\n'), YAML),
    Family(".yml", "a text", _text('en:\n  a: "Tom {}"\n'), LOCALISED),
    Family(".ftl", "a file", str.encode, FLUENT),
    Family(".ftl", "a pattern", _text("a = Tom {}\n"), FLUENT),
    Family(".ftl", "a variant", _text("a = { $n ->\n *[other] Tom {}\n }\n"), FLUENT),
    Family(".csv", "a file", _text("source,target\n{}"), CELLS_OF_TABLES),
    Family(".csv", "a first row", _text("source{}\nTom\n"), CELLS_OF_TABLES),
    Family(".tsv", "a file", _text("source\tx\n{}"), CELLS_OF_TABLES),
]
SUFFIXES = tuple(dict.fromkeys(family.suffix for family in FAMILIES))
