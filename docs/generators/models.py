"""The table of the models that can be had by name, from the catalogue of the package."""

from __future__ import annotations

from babel import Locale

from docs.generators.reference import code, plain, table
from lingon.fetching.catalogue import Offer, by_pair, packaged

HEAD = ("from", "to", "model", "shape", "download", "BLEU", "COMET")


def catalogue() -> str:
    """Return a table with a row for each model, by the names of its languages, the best one of a pair first."""
    offers = sorted(by_pair(packaged().models), key=lambda each: (_language(each, 0), _language(each, 1)))
    return table(HEAD, map(_row, offers))


def _row(offer: Offer) -> tuple[str, ...]:
    scores = [offer.scores.get(name) for name in ("flores-bleu", "flores-comet")]
    shown = ["not published" if score is None else f"{score:g}" for score in scores]
    size = f"{offer.bytes / 1e6:.0f} MB"
    return _language(offer, 0), _language(offer, 1), code(offer.name), plain(offer.shape), size, *shown


def _language(offer: Offer, side: int) -> str:
    """Return the English name of the source (0) or the target language (1), and its tag."""
    tag = (offer.source_language, offer.target_language)[side]
    return f"{Locale.parse(tag, sep='-').get_display_name('en')} ({tag})"
