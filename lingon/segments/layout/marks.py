"""The marks at the begin of a line: bullets, numbers and letters of a list, boxes, dashes of a dialogue.

They are cut off with the blanks after them and put back, since models drop, double or translate them.
"""

from __future__ import annotations

import re
from functools import cache

from lingon.segments.boundaries import next_visible

BLANKS = "\t \x1f\xa0\u1680\u2000-\u200a\u202f\u205f\u3000"  # of a line, as in a class of a regular expression
MOST = 8  # marks in a row, such as "> > - "
SIGNS = frozenset(["bullet", "sign", "dash", "box"])  # kinds of marks of which several may be in a row

DASHES = "-‐‑‒–—―"

_AFTER = rf"(?=[{BLANKS}]|\Z)"
_BULLETS = "•‣⁃◦▪▫▸►➢➤➜❖❑❏☐☑☒✓✔✗✘\uf0a7\uf0b7\uf0d8\uf0fc"  # of lists only; the last four as Word copies them
_SHAPES = "■□●◆◇▲△▼▽★☆◎"  # of lists where nothing like them follows
_SIGNS = "·∙・›»>*+#○◯▶→⇒※"  # need a blank after them
_CIRCLED = "①-⓿❶-➓⒈-⒛㈠-㈩㊀-㊉"
_SMALL = "(?=[ivx])x{0,3}(?:ix|iv|v?i{0,3})"
_LARGE = "(?=[IVX])X{0,3}(?:IX|IV|V?I{0,3})"
_NUMBER = r"\d{1,3}(?:\.\d{1,3}){0,5}"
_ITEM = rf"(?:{_NUMBER}|{_SMALL}|{_LARGE}|[^\W\d_])"

_MARK = re.compile(
    rf"(?P<bullet>[{_BULLETS}]\ufe0f?)"
    rf"|(?P<sign>(?:[{_SHAPES}](?![{_SHAPES}○◯])|(?:[{_SIGNS}]{{1,6}}|[-‐‑‒–—―−]{{1,3}}|[-=]>){_AFTER})\ufe0f?)"
    rf"|(?P<box>\[[ xX✓✔✗✘*~+-]?\]{_AFTER})"
    rf"|(?P<circled>[{_CIRCLED}])"
    rf"|(?P<bracketed>[(\[]{_ITEM}[)\]]{_AFTER}|（(?:{_ITEM}|[一二三四五六七八九十]{{1,3}})）)"
    rf"|(?P<closed>{_ITEM}\.?\){_AFTER}|{_ITEM}）|\d{{1,3}}\)(?=[^\W\d_]))"
    rf"|(?P<dashed>\d{{1,3}}(?:\.-|[-–/]){_AFTER})"
    rf"|(?P<number>{_NUMBER}\.{_AFTER}|(?:\d{{1,3}}|[一二三四五六七八九十]{{1,3}})、|\d{{1,3}}．)"
    rf"|(?P<letter>[a-hivx]\.(?=[{BLANKS}]{{1,4}}(?!\w{{1,2}}\.|Chr\.)(?![\d{BLANKS}])|\Z)"  # not "i. e.", "d. 1990"
    rf"|(?:(?=[ivx]{{2}}){_SMALL}|(?=[IVX]{{2}}){_LARGE})\.{_AFTER})"
)
_COUNT_OF = re.compile(r"# of\b")  # a heading of a column, in which the sign is a word
_DASH = re.compile(r"[—―](?=[^\W\d_]|[¿¡\"“«‹„‘(…])|[-–‐](?=([^\W\d_])([^\W\d_]|[\s'’,!?.]))")
_WORD = re.compile(r"[^\W\d_]{1,32}+")
_GUILLEMETS = {"»": "«", "›": "‹"}  # which may close what the line opens the other way round

MONTHS = """
    January February March April May June July August September October November December
    Januar Jänner Februar Feber März Mai Juni Juli Oktober Dezember
    januar februar marts april maj juni juli august september oktober november december mars mai desember
    janúar febrúar apríl maí júní júlí ágúst október nóvember
    tammikuuta helmikuuta maaliskuuta huhtikuuta toukokuuta kesäkuuta heinäkuuta elokuuta syyskuuta lokakuuta
    marraskuuta joulukuuta jaanuar veebruar märts aprill juuni juuli oktoober detsember
    ledna února března dubna května června července srpna září října listopadu prosince
    januára februára marca apríla mája júna júla augusta septembra októbra novembra decembra
    januarja februarja marca aprila maja junija julija avgusta septembra oktobra novembra decembra
    siječnja veljače ožujka travnja svibnja lipnja srpnja kolovoza rujna listopada studenoga prosinca
    januara februara marta aprila jula juna avgusta јануара фебруара марта априла маја јуна јула августа септембра
    октобра новембра децембра
    janvāris februāris aprīlis maijs jūnijs jūlijs augusts septembris oktobris novembris decembris
"""
"""Names of months in the languages that write a stop after the day: "1. May" is a date."""


def after_marks(text: str, begin: int, end: int) -> int:
    """Return where a line goes on after its marks and the blanks after them; end if it has nothing else."""
    seen = set[str]()
    for _ in range(MOST):
        found = mark_at(text, begin, end)
        if found is None or (found[1] in seen - SIGNS):
            break
        seen.add(found[1])
        begin = next_visible(text, found[0], end)
    return begin


def after_dash(text: str, begin: int, end: int) -> int:
    """Return where a sentence goes on after the dash of another voice, as in "Yes? - Come here."; else its begin."""
    if text[begin] not in DASHES or (found := mark_at(text, begin, end)) is None:
        return begin
    following = next_visible(text, found[0], end)
    return following if following < end else begin


def mark_at(text: str, begin: int, end: int) -> tuple[int, str] | None:
    """Return the end of the mark at a place and of which kind it is; None if there is none.

    Negative numbers, hashtags, emphasis, initials ("I. Newton") and dates ("1. May") have none.
    """
    if begin < end and (dash := _DASH.match(text, begin, end)) and _is_voice(dash):
        return dash.end(), "dash"
    found = _MARK.match(text, begin, end)
    if found is None or found.end() == begin or not found.lastgroup:
        return None
    if found[0] in _GUILLEMETS and text.find(_GUILLEMETS[found[0]], begin, end) >= 0:
        return None
    if found.lastgroup == "sign" and _COUNT_OF.match(text, begin, end):
        return None
    if found.lastgroup == "number":
        word = _WORD.match(text, next_visible(text, found.end(), end), end)
        if word is not None and word[0] in _months():
            return None
    return found.end(), found.lastgroup


def _is_voice(dash: re.Match[str]) -> bool:
    """Whether a dash at a word begins what somebody says: a long one always, a short one before a capital letter."""
    if dash[1] is None:
        return True
    return dash[1].isupper() and (not dash[2].isalpha() or dash[2].islower())


@cache
def _months() -> frozenset[str]:
    return frozenset(MONTHS.split())
