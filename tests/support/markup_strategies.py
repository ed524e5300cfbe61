"""Texts with markup, well-formed or not, for properties."""

from __future__ import annotations

from hypothesis import strategies as st

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
