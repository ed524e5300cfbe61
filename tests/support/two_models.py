"""Two models that translate German to French through English, by dictionaries of whole sentences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lingon.bundle import PROFILES, Bundle
from lingon.serving.guard.languages import profile
from lingon.serving.models.loading import LoadOptions
from lingon.serving.translation.translator import Translator
from tests.support.echo_engine import EchoRunner, Loader, tokenizer
from tests.support.gateway import ENGLISH, GERMAN

FRENCH = ["Le vieil homme et la mer.", "Où est la gare ?", "Je voudrais savoir quelle heure il est."]
TO_ENGLISH = {
    "Der alte Mann.": "The old man.",
    "Wo ist er?": "Where? Is he there?",
    "Das Meer.": "The sea.",
    "Nichts.": "",
}
TO_FRENCH = {"The old man.": "Le vieil homme.", "Where?": "Où ?", "Is he there?": "Est-il là ?", "The sea.": "La mer."}

BUNDLES = tuple(
    {
        "name": name,
        "source_language": name[:2],
        "target_language": name[3:],
        "files": {PROFILES: profile(texts) + profile(others)},
    }
    for name, texts, others in (("de-en", GERMAN, ENGLISH), ("en-fr", ENGLISH, FRENCH))
)
"""Both models, which tell the languages apart."""


class Dictionary(EchoRunner):
    """A runner that translates the sentences of a dictionary, and others to themselves."""

    def __init__(self, sentences: dict[str, str], **rest: Any) -> None:
        super().__init__(says=says(sentences), **rest)


def says(sentences: dict[str, str]) -> Callable[[list[int]], list[int]]:
    def translated(source: list[int]) -> list[int]:
        text = tokenizer().decode(source[:-1]).strip()
        return tokenizer().encode_source(sentences.get(text, text))

    return translated


class TwoModels(Loader):
    """Loads a dictionary for each model."""

    def __init__(self, *rest: Any) -> None:
        super().__init__(*rest)
        self.runners = {"de-en": Dictionary(TO_ENGLISH), "en-fr": Dictionary(TO_FRENCH)}

    def __call__(self, bundle: Bundle, options: LoadOptions) -> Translator:
        self.runner = self.runners.get(bundle.manifest.name, self.runner)
        return super().__call__(bundle, options)
