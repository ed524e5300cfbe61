"""The report of a prepared corpus: one page of HTML that says what stays, what goes, and why.

The page needs no script and no other file. Its charts are SVG, and its colours follow the reader's choice of light or
dark. Equal corpora give equal bytes.
"""

from __future__ import annotations

import html
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lingon.extras import install_command
from lingon.files import write_text
from lingon.identifiers import load_identifiers
from lingon.text import Tokenizer
from lingon.training.config import pair_name, pair_names
from lingon.training.prepared import CorpusFacts, Example, Manifest, PreparedCorpus
from lingon.training.survey import BINS, OCTAVES, Side, Survey, by_count, mean, quantile, sample_size, survey
from lingon.training.svg import CHART_STYLE, DARK_CHART_STYLE, FONT, histogram, short_number

REPORT = "report.html"
EXAMPLES = 6  # of a reason, of all corpora together
KEPT_EXAMPLES = 10  # likewise
SHOWN = 300  # characters of a text
MOST_BARS = 64  # of a histogram of lengths
NAMED = 4  # languages or scripts of a bar; the others are one part

REASONS = {
    "empty": "one side is empty, or has nothing but blanks",
    "ratio": "one side has too many characters for the other: data.max_ratio",
    "held out": "a side is a line of a validation or test set: data.valid, data.held_out",
    "duplicate": "the same pair is there before: data.drop_duplicates",
    "near duplicate": "the same words are there before, but for case, digits, signs: data.filters.near_duplicates",
    "length": "one side has too many tokens: data.max_tokens",
    "score": "the corpus gives the pair a low score: data.filters.min_score",
    "encoding": "characters were lost or read in a wrong encoding: data.filters.encoding",
    "brackets": "one side alone has a bracket too many: data.filters.same_brackets",
    "words": "words are too long, or too short or too long on average: data.filters.max_word, .min_mean_word, "
    ".max_mean_word",
    "letters": "too few of the characters are letters: data.filters.min_letters",
    "script": "too few letters are of the script of the language: data.filters.min_script",
    "copy": "both sides are the same, but for case, digits, signs: data.filters.max_copy",
    "addresses": "the sides have other URLs or e-mail addresses: data.filters.same_addresses",
    "numbers": "the sides have other numbers: data.filters.min_numbers",
    "repetition": "a side repeats itself: data.filters.max_repetition",
    "language": "a side is not in its language: data.filters.min_language",
    "token_ratio": "one side has too many tokens for the other: data.filters.max_token_ratio",
}
"""What a filter drops, and the settings that decide it."""

FEW_KEPT = 0.5  # the share of pairs kept below which a corpus is named
MUCH_TOO_LONG = 0.05  # the share of pairs dropped as too long from which on it is
LITTLE_OWN = 0.95  # the share of texts in the language of the corpus below which it is
MANY_BYTES = 0.01  # the share of pieces that stand for one byte from which on it is


def write_report(corpus: PreparedCorpus) -> Path:
    """Write the report of a corpus into its folder and return its path."""
    tokenizer, identifiers = corpus.tokenizer(), load_identifiers()
    found = survey(corpus, tokenizer, identifiers)
    path = corpus.folder / REPORT
    write_text(path, page(corpus, tokenizer, found, told=identifiers is not None))
    return path


def page(corpus: PreparedCorpus, tokenizer: Tokenizer, found: Survey, *, told: bool) -> str:
    """Return the page; told: whether languages were told."""
    manifest = corpus.manifest
    names = short_names([facts.name for facts in manifest.corpora])
    colours = _colours(manifest)
    sections = [
        _summary(manifest, colours),
        _notes(manifest, found, names),
        _reasons(manifest, colours),
        _corpora(manifest, names, colours),
        _kept_examples(manifest, found, names),
        _examples(manifest, names, colours),
        _lengths(manifest, found),
        _tokenizer(corpus, tokenizer, found, names),
        _scripts(found, names),
        _languages(found, names, told=told),
        _inputs(manifest),
        _settings(manifest),
    ]
    pairs = pair_names(dict.fromkeys(facts.languages for facts in manifest.corpora))
    head = (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>Corpus {_text(pairs)}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n"
    )
    heading = f'<header><p class="over">Prepared corpus</p><h1>{_text(pairs)}</h1></header>\n'
    return head + heading + "".join(filter(None, sections)) + "</main>\n</body>\n</html>\n"


# Sections.


def _summary(manifest: Manifest, colours: Mapping[str, int]) -> str:
    total = _total(manifest)
    source, target = (sum(tokens) for tokens in zip(*(_tokens(facts) for facts in manifest.corpora), strict=True))
    tiles = [
        ("pairs read", f"{total.read:,}"),
        (f"pairs kept, {_percent(total.kept, total.read)}", f"{total.kept:,}"),
        ("source tokens", short_number(source)),
        ("target tokens", short_number(target)),
        ("tokens a pair", f"{(source + target) / max(total.kept, 1):.1f}"),
    ]
    shown = "".join(f'<div class="tile"><b>{value}</b><span>{name}</span></div>' for name, value in tiles)
    return f'<div class="tiles">{shown}</div>\n{_stack(total.kept, total.dropped, total.read, colours)}\n'


def _notes(manifest: Manifest, found: Survey, names: Sequence[str]) -> str:
    """Return what a reader may want to look at first."""
    notes = list(notable(manifest, found, names))
    if not notes:
        return ""
    items = "".join(f'<li dir="auto">{_text(note)}</li>' for note in notes)
    return f'<section class="notes"><h2>Worth a look</h2><ul>{items}</ul></section>\n'


def notable(manifest: Manifest, found: Survey, names: Sequence[str]) -> Iterator[str]:
    """Yield a sentence for each thing that is unusual for a good corpus."""
    for name, facts, sample in zip(names, manifest.corpora, found.samples, strict=True):
        dropped = Counter(facts.dropped)
        if facts.kept < FEW_KEPT * facts.read:
            reason, count = dropped.most_common(1)[0]
            yield (
                f"{name}: {_percent(facts.kept, facts.read)} of the pairs stay; most go for '{reason}' "
                f"({_percent(count, facts.read)})."
            )
        if dropped["length"] > MUCH_TOO_LONG * facts.read:
            yield (
                f"{name}: {_percent(dropped['length'], facts.read)} of the pairs are too long. A higher "
                "data.max_tokens keeps them."
            )
        for kind, side in (("source", sample.source), ("target", sample.target)):
            if side.own_share < LITTLE_OWN:
                other = next(code for code in side.languages if code != side.language)
                yield (
                    f"{name}: {_percent(1 - side.own_share, 1)} of the {kind} texts seem to be in other languages than "
                    f"{side.language}, most in {other}. data.filters.min_language drops them."
                )
            if side.bytes > MANY_BYTES * side.tokens:
                yield (
                    f"{name}: {_percent(side.bytes, side.tokens)} of the {kind} pieces stand for one byte. The "
                    "tokenizer has no pieces for these characters: raise tokenizer.character_coverage or look at them."
                )


def _reasons(manifest: Manifest, colours: Mapping[str, int]) -> str:
    total = _total(manifest)
    most = max([*total.dropped.values(), 1])
    rows = [
        [
            _dot(reason, colours) + _text(reason),
            _text(REASONS.get(reason, "")),
            f"{count:,}",
            _percent(count, total.read),
            _bar(count / most, colours[reason]),
        ]
        for reason, count in total.dropped.items()
    ]
    if not rows:
        return _section("What goes", "<p>Nothing: every pair stays.</p>")
    lead = "<p>A pair is counted for the first filter that drops it. Bars compare the reasons with each other.</p>"
    table = _table(
        ("reason", "a pair goes if", "pairs", "of all", ""), rows, "ttnn", ("14%", "46%", "10%", "10%", "20%")
    )
    return _section("What goes, and why", lead + table)


def _corpora(manifest: Manifest, names: Sequence[str], colours: Mapping[str, int]) -> str:
    cards = []
    for name, facts in zip(names, manifest.corpora, strict=True):
        source, target = _tokens(facts)
        figures = [
            f"{facts.kept:,} of {facts.read:,} pairs",
            f"<b>{_percent(facts.kept, facts.read)}</b> kept",
            f"{source / max(facts.kept, 1):.1f} + {target / max(facts.kept, 1):.1f} tokens a pair",
            f"{short_number(target)} target tokens",
            *([f"{facts.linked:,} with links"] if facts.linked else []),
        ]
        chips = [
            f"<li>{_dot(reason, colours)}{_text(reason)} <b>{count:,}</b> {_percent(count, facts.read)}"
            f"{_bar(count / max(facts.read, 1), colours[reason])}</li>"
            for reason, count in by_count(facts.dropped).items()
        ]
        cards.append(
            f'<article class="card"><h3><bdi>{_text(name)}</bdi> <small>{_text(pair_name(facts.languages))}</small>'
            f'</h3><p class="figures">{" ".join(f"<span>{each}</span>" for each in figures)}</p>'
            f'{_stack(facts.kept, facts.dropped, facts.read, colours)}<ul class="chips">{"".join(chips)}</ul></article>'
        )
    return _section(f"Corpora ({len(cards)})", "".join(cards))


def _examples(manifest: Manifest, names: Sequence[str], colours: Mapping[str, int]) -> str:
    blocks = []
    for reason in _total(manifest).dropped:
        of_each = [
            [(name, facts, example) for example in facts.examples.get(reason, ())]
            for name, facts in zip(names, manifest.corpora, strict=True)
        ]
        turns = (each for turn in zip_longest(*of_each) for each in turn if each is not None)
        rows = [_example(*each) for each in islice(turns, EXAMPLES)]
        if rows:
            table = _table(("line", "source", "target"), rows, "ttt", ("18%", "41%", "41%"))
            blocks.append(f"<h3>{_dot(reason, colours)}{_text(reason)}</h3>{table}")
    if not blocks:
        return ""
    return _section("Examples of what goes", f'<div class="examples">{"".join(blocks)}</div>')


def _kept_examples(manifest: Manifest, found: Survey, names: Sequence[str]) -> str:
    most = max(KEPT_EXAMPLES // len(names), 1)
    rows = [
        [f'<bdi class="from">{_text(name)}</bdi>', *_both(facts, pair)]
        for name, facts, sample in zip(names, manifest.corpora, found.samples, strict=True)
        for pair in sample.examples[:most]
    ][:KEPT_EXAMPLES]
    table = _table(("corpus", "source", "target"), rows, "ttt", ("18%", "41%", "41%"))
    return _section("Examples of what stays", f'<div class="examples">{table}</div>')


def _example(name: str, facts: CorpusFacts, example: Example) -> list[str]:
    texts = _both(facts, (example.source, example.target))
    return [f'<bdi class="from">{_text(name)}</bdi><br>{example.row:,}', *texts]


def _both(facts: CorpusFacts, texts: Iterable[str]) -> list[str]:
    """Return the cells of both texts of a pair."""
    return [
        f'<div dir="auto" lang="{html.escape(language, quote=True)}">{_shown(text)}</div>'
        for language, text in zip(facts.languages, texts, strict=True)
    ]


def _lengths(manifest: Manifest, found: Survey) -> str:
    lengths = found.lengths
    sides = (("source", lengths.sources), ("target", lengths.targets))
    charts = [_length_chart(f"{name} tokens", counts) for name, counts in sides]
    charts.append(_ratio_chart(lengths.ratios))
    rows = [
        [
            name,
            f"{mean(counts):.1f}",
            *(f"{quantile(counts, share):,}" for share in (0.5, 0.9, 0.99)),
            f"{len(counts) - 1 - int(np.argmax(counts[::-1] > 0)):,}",
        ]
        for name, counts in sides
    ]
    titles = "side", "mean", "median", "90 % have at most", "99 % have at most", "longest"
    lead = (
        f"<p>Of the pairs that stay, in tokens with the end token. data.max_tokens is "
        f"{_text(str(manifest.settings.get('max_tokens', '')))}.</p>"
    )
    return _section("Lengths", f'{lead}<div class="charts">{"".join(charts)}</div>{_table(titles, rows, "tnnnnn")}')


def _length_chart(title: str, counts: NDArray[np.int64]) -> str:
    """Return a histogram of lengths up to that which 99.9 % have at most; the last bar has all beyond."""
    last = max(quantile(counts, 0.999), 1)
    step = math.ceil(last / MOST_BARS)
    bars = math.ceil(last / step)
    sums = [int(counts[1 + at * step : 1 + (at + 1) * step].sum()) for at in range(bars)]
    beyond = int(counts[1 + bars * step :].sum())
    sums[-1] += beyond
    every = next(each for each in (5, 10, 20, 50, 100, 200, 500, 1000, 10**9) if last / each <= 7)

    def edges(number: int) -> str:
        first, end = 1 + number * step, (number + 1) * step
        if number == bars - 1 and beyond:
            return f"{first} tokens or more"
        return f"{first} to {end} tokens" if end > first else f"{first} tokens"

    def label(number: int) -> str | None:
        inside = next((each for each in range(1 + number * step, 1 + (number + 1) * step) if each % every == 0), None)
        return None if inside is None else str(inside)

    return histogram(title, sums, edges, label)


def _ratio_chart(ratios: NDArray[np.int64]) -> str:
    """Return the histogram of ratios on a logarithmic scale."""

    def edges(number: int) -> str:
        low, high = (2 ** ((number + shift) / BINS - OCTAVES) for shift in (-0.5, 0.5))
        if number in (0, len(ratios) - 1):
            return f"below {high:.2f}" if number == 0 else f"{low:.2f} or more"
        return f"{low:.2f} to {high:.2f}"

    def label(number: int) -> str | None:
        octave = number // BINS - OCTAVES
        return None if number % BINS else f"{2**octave}" if octave >= 0 else f"1/{2**-octave}"

    middle = OCTAVES * BINS
    return histogram("target tokens for each source token", ratios.tolist(), edges, label, mark=middle)


def _tokenizer(corpus: PreparedCorpus, tokenizer: Tokenizer, found: Survey, names: Sequence[str]) -> str:
    kind = corpus.manifest.settings.get("tokenizer", {}).get("kind", "given")
    pieces = f"{tokenizer.source_vocab:,}" + ("" if tokenizer.joint else f" + {tokenizer.target_vocab:,}")
    facts = (
        f"<p>Kind <b>{_text(str(kind))}</b>, <b>{pieces}</b> pieces, "
        f"{'one vocabulary for both sides' if tokenizer.joint else 'one vocabulary for each side'}. "
        "More characters a token make shorter sequences, which train and translate faster. A piece of one byte stands "
        "for a part of a character that has no piece.</p>"
    )
    unknown = any(side.unknown for sample in found.samples for side in (sample.source, sample.target))
    rows = [
        [
            f"<bdi>{_text(name)}</bdi>",
            *(_ratio(side.characters, side.tokens) for side in (sample.source, sample.target)),
            *(_percent(side.bytes, side.tokens) for side in (sample.source, sample.target)),
            *(_percent(side.unknown, side.tokens) for side in (sample.source, sample.target) if unknown),
        ]
        for name, sample in zip(names, found.samples, strict=True)
    ]
    titles = (
        "corpus",
        "characters a token, source",
        "target",
        "pieces of one byte, source",
        "target",
        *(("unknown pieces, source", "target") if unknown else ()),
    )
    longest = np.array(found.lengths.longest, np.int64)
    texts = zip(corpus.lengths[longest].tolist(), *corpus.texts(longest), strict=True)
    lines = [
        [f"{source:,} + {target:,}", *(f'<div dir="auto">{_shown(text)}</div>' for text in pair)]
        for (source, target), *pair in texts
    ]
    return _section(
        "Tokenizer",
        f"{facts}{_table(titles, rows, 't'.ljust(len(titles), 'n'))}<h3>The longest pairs that stay</h3>"
        + _table(("tokens", "source", "target"), lines, "ttt", ("12%", "44%", "44%")),
    )


def _scripts(found: Survey, names: Sequence[str]) -> str:
    lead = "<p>Shares of the letters, by Unicode script.</p>"
    return _section("Scripts", lead + _by_side(found, names, lambda side: side.scripts) + _drawn(found))


def _languages(found: Survey, names: Sequence[str], *, told: bool) -> str:
    if not told:
        return _section(
            "Languages",
            "<p>They were not told apart, because the extra <code>detect</code> is not installed: "
            f"<code>{_text(install_command('detect'))}</code>, then write the report again.</p>",
        )
    short = sum(side.short for sample in found.samples for side in (sample.source, sample.target))
    lead = f"<p>Shares of the texts of 40 bytes or more. {short:,} texts of the sample are shorter.</p>"
    return _section("Languages", lead + _by_side(found, names, _own_first) + _drawn(found))


def _own_first(side: Side) -> dict[str, int]:
    """Return texts by language, with that of the corpus first, which has the colour of kept pairs."""
    return {side.language: 0, **side.languages} if side.languages else {}


def _by_side(found: Survey, names: Sequence[str], counts: Callable[[Side], Mapping[str, int]]) -> str:
    rows = [
        [f"<bdi>{_text(name)}</bdi>", *(_shares(counts(side)) for side in (sample.source, sample.target))]
        for name, sample in zip(names, found.samples, strict=True)
    ]
    return _table(("corpus", "source", "target"), rows, "ttt", ("24%", "38%", "38%"))


def _drawn(found: Survey) -> str:
    pairs, most = sum(sample.pairs for sample in found.samples), sample_size(len(found.samples))
    return f'<p class="small">A sample of {pairs:,} pairs, at most {most:,} of each corpus.</p>'


def _inputs(manifest: Manifest) -> str:
    rows = [
        [
            f"<code>{_text(each.key)}</code>",
            f"<bdi>{_text(str(each.path))}</bdi>",
            _size(each.size),
            _digest(each.sha256),
        ]
        for each in manifest.inputs
    ]
    return _section(
        "Inputs", _table(("setting", "file", "size", "SHA-256"), rows, "ttnt", ("18%", "38%", "10%", "34%"))
    )


def _settings(manifest: Manifest) -> str:
    rows = [[f"<code>{_text(key)}</code>", f"<code>{_text(value)}</code>"] for key, value in _flat(manifest.settings)]
    lead = "<p>Those that decide what the corpus holds.</p>"
    return _section("Settings", lead + _table(("setting", "value"), rows, "tt", ("40%", "60%")))


# Figures.


@dataclass(frozen=True, slots=True)
class _Total:
    """The counts of all corpora; dropped: in descending order."""

    read: int
    kept: int
    dropped: dict[str, int]


def _total(manifest: Manifest) -> _Total:
    dropped: Counter[str] = Counter()
    for facts in manifest.corpora:
        dropped.update(facts.dropped)
    read, kept = (sum(counts) for counts in zip(*((each.read, each.kept) for each in manifest.corpora), strict=True))
    return _Total(read, kept, by_count(dropped))


def _tokens(facts: CorpusFacts) -> tuple[int, int]:
    return facts.source_tokens, facts.target_tokens


def _colours(manifest: Manifest) -> dict[str, int]:
    """Return the number of the colour of each reason; large reasons have colours of their own."""
    return {reason: number % COLOURS for number, reason in enumerate(_total(manifest).dropped)}


def short_names(names: Sequence[str]) -> list[str]:
    """Return the names of the files of corpora, with as many of their folders as it takes to tell them apart."""
    paths = [Path(name).parts for name in names]
    for length in range(1, max(map(len, paths), default=1)):
        found = ["/".join(parts[-length:]) for parts in paths]
        if len(set(found)) == len(set(names)):
            return found
    return list(names)


def _flat(values: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{before}{key}.")
        else:
            yield f"{before}{key}", str(value)


# Parts of the page.


def _text(text: str) -> str:
    return html.escape(text, quote=False)


def _shown(text: str) -> str:
    """Return a text of the corpus, cut to a length that can be read."""
    if not text.strip():
        return '<i class="nothing">empty</i>'
    return _text(text if len(text) <= SHOWN else f"{text[:SHOWN]}…")


def _percent(part: float, whole: float) -> str:
    """Return a share with two digits that count: 12 %, 1.2 %, 0.12 %."""
    share = 100 * part / whole if whole else 0.0
    if 0 < share < 0.01:
        return "< 0.01 %"
    if 99.95 <= share < 100:
        return "> 99.9 %"
    return f"{share:.0f} %" if share in (0, 100) else f"{share:.2f} %" if share < 1 else f"{share:.1f} %"


def _ratio(part: int, whole: int) -> str:
    return f"{part / whole:.2f}" if whole else "–"


def _size(size: int) -> str:
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size} B"


def _digest(digest: str) -> str:
    return f'<code class="digest">{_text(digest)}</code>'


def _section(title: str, content: str) -> str:
    return f"<section><h2>{_text(title)}</h2>{content}</section>\n"


def _table(titles: Sequence[str], rows: Iterable[Sequence[str]], kinds: str, widths: Sequence[str] = ()) -> str:
    """Return a table of cells that are HTML; kinds: t for text and n for numbers, of each column."""
    classes = ["" if kind == "t" else ' class="n"' for kind in kinds.ljust(len(titles), "t")]
    columns = "".join(f'<col style="width: {width}">' for width in widths)
    head = "".join(f"<th{each}>{_text(title)}</th>" for each, title in zip(classes, titles, strict=True))
    body = "".join(
        f"<tr>{''.join(f'<td{each}>{cell}</td>' for each, cell in zip(classes, row, strict=True))}</tr>" for row in rows
    )
    return f"<table><colgroup>{columns}</colgroup><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _bar(share: float, colour: int) -> str:
    return f'<span class="track"><span class="c{colour}" style="width: {100 * share:.2f}%"></span></span>'


def _dot(reason: str, colours: Mapping[str, int]) -> str:
    return f'<i class="dot c{colours[reason]}"></i>'


def _stack(kept: int, dropped: Mapping[str, int], read: int, colours: Mapping[str, int]) -> str:
    """Return a bar with the parts of all pairs."""
    parts = [("kept", kept, "kept"), *((reason, count, f"c{colours[reason]}") for reason, count in dropped.items())]
    ordered = [parts[0], *sorted(parts[1:], key=lambda each: (-each[1], each[0]))]
    spans = "".join(
        f'<span class="{kind}" style="width: {100 * count / read:.3f}%" title="{_text(name)}: {count:,}"></span>'
        for name, count, kind in ordered
        if count
    )
    return f'<div class="stack">{spans}</div>'


def _shares(counts: Mapping[str, int]) -> str:
    """Return a bar with the largest parts, and their names."""
    total = sum(counts.values())
    if not total:
        return '<span class="small">none</span>'
    parts = list(counts.items())
    named, rest = parts[:NAMED], sum(count for _, count in parts[NAMED:])
    shown = [*named, *([("others", rest)] if rest else [])]
    spans = "".join(
        f'<span class="s{number}" style="width: {100 * count / total:.3f}%"></span>'
        for number, (_, count) in enumerate(shown)
    )
    legend = " ".join(
        f'<span><i class="dot s{number}"></i>{_text(name)} {_percent(count, total)}</span>'
        for number, (name, count) in enumerate(shown)
    )
    return f'<div class="stack thin">{spans}</div><div class="legend">{legend}</div>'


LIGHT = ("#c2557a", "#d9822b", "#7a62b5", "#b59a1b", "#8a5a44", "#4f8f9e", "#cc4b37", "#6b7f3a", "#a35fa8", "#5b6875")
DARK = ("#e08aa8", "#efa65f", "#a893dc", "#d8c04f", "#bd8d76", "#7fbccb", "#ec8575", "#a1b76c", "#cf93d3", "#98a4b0")
COLOURS = len(LIGHT)
SHARES = ("kept", *(f"c{number}" for number in range(NAMED)))


def _fills(colours: Sequence[str], kept: str) -> str:
    """Return the rules of the colours of reasons, and of parts of texts, whose first is that of kept pairs."""
    rules = [f".kept, .s0 {{ background: {kept} }}"]
    rules += [
        f".c{number}{f', .s{number + 1}' if number < NAMED else ''} {{ background: {colour} }}"
        for number, colour in enumerate(colours)
    ]
    return "\n".join(rules) + "\n"


STYLE = f"""\
:root {{ --ground: #ffffff; --raised: #f6f8fa; --text: #1c2630; --muted: #5b6875; --line: #e3e7ec; --note: #fff7e6;
  --note-line: #e9b44c }}
* {{ box-sizing: border-box }}
body {{ margin: 0; background: var(--ground); color: var(--text); {FONT}; font-size: 15px; line-height: 1.5 }}
main {{ max-width: 1120px; margin: 0 auto; padding: 32px 24px 64px }}
header {{ margin-bottom: 20px }}
h1 {{ font-size: 30px; line-height: 1.2; margin: 0 }}
h2 {{ font-size: 20px; margin: 44px 0 8px }}
h3 {{ font-size: 15px; margin: 20px 0 6px }}
h3 small {{ color: var(--muted); font-weight: 400 }}
p {{ margin: 4px 0 12px; color: var(--muted); max-width: 75ch }}
.over {{ margin: 0; font-size: 13px; letter-spacing: .04em }}
.small {{ font-size: 13px; color: var(--muted) }}
code {{ font-family: ui-monospace, 'DejaVu Sans Mono', monospace; font-size: 12.5px; overflow-wrap: anywhere }}
.tiles {{ display: grid; grid-template-columns: repeat(auto-fit, minmax(180px, 1fr)); gap: 12px; margin: 0 0 16px }}
.tile {{ background: var(--raised); border-radius: 8px; padding: 12px 16px }}
.tile b {{ display: block; font-size: 24px; line-height: 1.25; font-variant-numeric: tabular-nums }}
.tile span {{ color: var(--muted); font-size: 13px }}
.notes {{ background: var(--note); border-left: 4px solid var(--note-line); border-radius: 4px; padding: 12px 20px;
  margin-top: 24px }}
.notes h2 {{ margin: 0 0 4px; font-size: 16px }}
.notes ul {{ margin: 0; padding-left: 18px }}
.notes li {{ margin: 4px 0 }}
table {{ width: 100%; table-layout: fixed; border-collapse: collapse; font-size: 14px }}
th {{ text-align: left; font-weight: 600; font-size: 12.5px; color: var(--muted); vertical-align: bottom }}
th, td {{ padding: 6px 10px 6px 0; border-bottom: 1px solid var(--line); overflow-wrap: anywhere }}
td {{ vertical-align: top }}
.n {{ text-align: right; font-variant-numeric: tabular-nums; padding-right: 16px }}
.stack {{ display: flex; height: 22px; border-radius: 5px; overflow: hidden; background: var(--line); gap: 1px }}
.stack span {{ min-width: 2px }}
.thin {{ height: 10px; border-radius: 3px; margin: 6px 0 4px }}
.legend {{ font-size: 12.5px; color: var(--muted) }}
.legend span {{ margin-right: 12px; white-space: nowrap }}
.track {{ display: block; height: 8px; border-radius: 3px; background: var(--line); overflow: hidden; margin-top: 7px }}
.track span {{ display: block; height: 100%; min-width: 1px }}
.dot {{ display: inline-block; width: 9px; height: 9px; border-radius: 2px; margin-right: 7px }}
.card {{ border: 1px solid var(--line); border-radius: 8px; padding: 12px 16px; margin: 12px 0 }}
.card h3 {{ margin: 0; overflow-wrap: anywhere }}
.figures {{ margin: 2px 0 8px; max-width: none; font-size: 14px }}
.figures span {{ margin-right: 20px; white-space: nowrap }}
.figures b {{ color: var(--text) }}
.chips {{ list-style: none; margin: 10px 0 0; padding: 0; display: grid; gap: 4px 24px;
  grid-template-columns: repeat(auto-fill, minmax(210px, 1fr)); font-size: 13px; color: var(--muted) }}
.chips b {{ color: var(--text); font-variant-numeric: tabular-nums }}
.chips .track {{ height: 4px; margin-top: 2px }}
.examples td, .from {{ font-size: 13px }}
.from {{ color: var(--muted) }}
.nothing {{ color: var(--muted) }}
.charts {{ display: grid; grid-template-columns: repeat(auto-fit, minmax(300px, 1fr)); gap: 16px; margin: 8px 0 16px }}
.chart {{ width: 100%; height: auto; max-width: 480px }}
.digest {{ font-size: 11px }}
{CHART_STYLE}{_fills(LIGHT, "#3f8f6b")}@media screen and (prefers-color-scheme: dark) {{
:root {{ --ground: #14181d; --raised: #1e242b; --text: #e8ecf0; --muted: #a7b2be; --line: #2b333c; --note: #2a2416;
  --note-line: #c99a3b }}
{DARK_CHART_STYLE}{_fills(DARK, "#5bb38b")}}}
@media print {{
main {{ max-width: none; padding: 0 }}
body {{ font-size: 11px }}
table, .examples td, .figures, .chips {{ font-size: 10px }}
.stack, .track, .dot, .tile, .notes, .stack span, .track span {{
  -webkit-print-color-adjust: exact; print-color-adjust: exact }}
.card, tr, .chart, .notes {{ break-inside: avoid }}
h2, h3 {{ break-after: avoid }}
.charts {{ grid-template-columns: repeat(3, 1fr) }}
}}
"""
