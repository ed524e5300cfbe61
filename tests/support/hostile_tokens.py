"""The tokens of the documents of `hostile_documents`: what has a meaning in some place of a file.

"#" stands for a number that is new each time.
"""

from __future__ import annotations

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
