"""YAML files of texts, such as those of Rails: the strings are translated where they are.

Keys, comments, anchors, numbers and all else are copied byte for byte. The language at the root of a file of Rails
becomes that of the translation, and forms of a plural that it has and the file lacks are added before `other`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lingon.documents.document import Document, Edit
from lingon.documents.localisation.edits import Entry, document_of, replacing, text_and_encoder
from lingon.documents.localisation.messages import Message
from lingon.documents.localisation.plurals import is_plural, lacking, language_of
from lingon.documents.localisation.yaml_scalars import ScalarStyle
from lingon.documents.localisation.yaml_tree import Node, read_documents
from lingon.language_tags import is_same_tag


def read_yaml(content: bytes, target: str = "") -> Document:
    """Return a YAML file; raises UnreadableDocument. target: the language to translate to; empty if not known."""
    text, encode = text_and_encoder(content)
    roots = read_documents(text)
    style, edits, notes = ScalarStyle(text), list[Edit[str]](), list[str]()
    for root in roots:
        language = _language(root)
        if language is not None and not target:
            notes.append(f"the file says {language.text} at its root still: the target language was not given")
        elif language is not None and not is_same_tag(language.text, target):
            edits.append(Edit(language.begin, language.end, style.alone(language)(target)))
    entries = (entry for root in roots for entry in _entries(root, style, target))
    found = document_of(text, entries, encode, edits)
    found.notes.extend(notes if found.texts else ())
    return found


def _language(root: Node) -> Node | None:
    """Return the key that says the language of a file of Rails; raises UnreadableDocument if there are several."""
    keys = [member.key for member in root.members if member.key is not None and member.kind == "mapping"]
    if root.kind != "mapping" or len(keys) != len(root.members) or not language_of([key.text for key in keys]):
        return None
    return keys[0]


def _entries(root: Node, style: ScalarStyle, target: str) -> Iterator[Entry]:
    """Yield the strings of a document, in their order."""
    waiting: list[Iterator[tuple[Node, Sequence[str]]]] = [iter([(root, ())])]
    while waiting:
        node, added = next(waiting[-1], (None, ()))
        if node is None:
            waiting.pop()
        elif node.kind == "scalar" and node.is_string and node is not root:
            yield _entry(node, added, style, target)
        elif node.members:
            forms = _forms(node, target) if target else []
            waiting.append(iter([(each, forms if _key(each) == "other" else ()) for each in node.members]))


def _key(node: Node) -> str:
    return node.key.text if node.key is not None else ""


def _forms(node: Node, target: str) -> list[str]:
    """Return the forms that a plural lacks; none for another mapping."""
    keys = [_key(each) for each in node.members]
    is_text = all(each.kind == "scalar" and each.is_string for each in node.members)
    return lacking(keys, target) if node.kind == "mapping" and is_text and is_plural(keys) else []


def _entry(node: Node, added: Sequence[str], style: ScalarStyle, target: str) -> Entry:
    message = Message(node.text, target=target)
    changed = replacing(message, node.begin, node.end, node.text, style.like(node))
    key = node.key
    if not added or key is None:
        return changed
    between = ", " if node.is_flow else f"{style.end}{' ' * key.column}"

    def edits(translations: Sequence[str]) -> Iterator[Edit[str]]:
        for form in added:
            yield Edit(key.begin, key.begin, f"{form}: {style.alone(node)(translations[0])}{between}")
        yield from changed.edits(translations)

    return Entry([message], edits, always=True)
