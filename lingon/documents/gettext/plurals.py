"""The plural forms of languages: which numbers have which form, by the formula of a header or of the language.

GNU gettext, manual, 11.2.6; the formulas are those of its table and of Unicode CLDR as gettext writes them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from gettext import c2py  # reads the formula of a header, and refuses a long one

_ONE = "nplurals=2; plural=(n != 1);"
_FORMULAS = {
    "nplurals=1; plural=0;": "bo dz id ig ja jv kde km ko lo ms my sah ses sg su th to vi wo yo yue zh",
    "nplurals=2; plural=(n > 1);": "ak am as bh bn fa fil fr gu guw hi hy kab kn ln mg nso oc pa pt-br si ti tl wa zu",
    "nplurals=3; plural=(n%10==1 && n%100!=11 ? 0 : n%10>=2 && n%10<=4 && (n%100<12 || n%100>14) ? 1 : 2);": (
        "be bs hr ru sh sr uk"
    ),
    "nplurals=3; plural=(n==1) ? 0 : (n>=2 && n<=4) ? 1 : 2;": "cs sk",
    "nplurals=3; plural=(n==1 ? 0 : n%10>=2 && n%10<=4 && (n%100<12 || n%100>14) ? 1 : 2);": "csb pl szl",
    "nplurals=3; plural=(n%10==1 && n%100!=11 ? 0 : n%10>=2 && (n%100<10 || n%100>=20) ? 1 : 2);": "lt sgs",
    "nplurals=3; plural=(n%10==1 && n%100!=11 ? 0 : n != 0 ? 1 : 2);": "lv ltg",
    "nplurals=3; plural=(n==1 ? 0 : (n==0 || (n%100>0 && n%100<20)) ? 1 : 2);": "mo ro",
    "nplurals=4; plural=(n%100==1 ? 0 : n%100==2 ? 1 : n%100==3 || n%100==4 ? 2 : 3);": "sl dsb hsb",
    "nplurals=2; plural=(n%10!=1 || n%100==11);": "is mk",
    "nplurals=6; plural=(n==0 ? 0 : n==1 ? 1 : n==2 ? 2 : n%100>=3 && n%100<=10 ? 3 : n%100>=11 ? 4 : 5);": "ar ars",
    "nplurals=5; plural=(n==1 ? 0 : n==2 ? 1 : n<7 ? 2 : n<11 ? 3 : 4);": "ga",
    "nplurals=4; plural=(n==1 || n==11) ? 0 : (n==2 || n==12) ? 1 : (n > 2 && n < 20) ? 2 : 3;": "gd",
    "nplurals=4; plural=(n==1) ? 0 : (n==2) ? 1 : (n != 8 && n != 11) ? 2 : 3;": "cy",
    "nplurals=4; plural=(n==1 ? 0 : n==0 || (n%100>1 && n%100<11) ? 1 : (n%100>10 && n%100<20) ? 2 : 3);": "mt",
}
_BY_LANGUAGE = {language: formula for formula, languages in _FORMULAS.items() for language in languages.split()}
_FORMULA = re.compile(r"\s*+nplurals\s*+=\s*+(\d{1,2})\s*+;\s*+plural\s*+=\s*+([^;]{1,900})")
MOST_FORMS = 10
MOST_NUMBER = 1000  # up to which numbers are looked at


@dataclass(frozen=True, slots=True)
class Forms:
    """The forms of a plural.

    count: of them; one: that of the number 1; alone: whether no other number has that
    """

    count: int
    one: int
    alone: bool

    def texts(self, *, alike: bool) -> list[int]:
        """Return for each form whether it is the singular, 0, or the plural, 1.

        alike: whether the singular has the same arguments as the plural: else it says the number, and is for 1 alone
        """
        singular = self.count > 1 and (self.alone or alike)
        return [int(not (singular and form == self.one)) for form in range(self.count)]


def formula_of(language: str) -> str:
    """Return the value of Plural-Forms for a language; empty if the language is empty."""
    tag = language.lower().replace("_", "-")
    base = tag.partition("-")[0]
    return (_BY_LANGUAGE.get("-".join(tag.split("-")[:2])) or _BY_LANGUAGE.get(base, _ONE)) if tag else ""


def forms_of(formula: str) -> Forms | None:
    """Return the forms that a value of Plural-Forms describes; None if it describes none."""
    found = _FORMULA.match(formula)
    if found is None or not 1 <= int(found[1]) <= MOST_FORMS:
        return None
    count = int(found[1])
    try:
        compute = c2py(found[2].strip())
        forms: Sequence[int] = [int(compute(number)) for number in range(MOST_NUMBER + 1)]
    except (ValueError, ArithmeticError, RecursionError):
        return None
    if not all(0 <= form < count for form in forms):
        return None
    return Forms(count, forms[1], forms.count(forms[1]) == 1)
