"""The report of a prepared corpus: its figures, what the page shows of them, and that any text may be in it."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lingon.text import Tokenizer
from lingon.training.cli import prepare as prepare_verb
from lingon.training.config import Config, load_config
from lingon.training.prepare import prepare
from lingon.training.prepare_report import KEPT_EXAMPLES, REASONS, notable, page, short_names, write_report
from lingon.training.prepared import PreparedCorpus
from lingon.training.survey import (
    BINS,
    FEWEST_BYTES,
    LONGEST,
    OCTAVES,
    SAMPLE,
    Survey,
    count_lengths,
    mean,
    quantile,
    sample_size,
    scripts,
    survey,
)
from tests.support.training_runs import tiny_config_text

Lines = Sequence[tuple[str, str]]
VOID = {"meta", "col", "br"}
TEXT = """red green blue yellow black white brown grey pink violet bread butter cheese apple cherry orange water river
mountain valley window kitchen garden flower summer winter morning evening brother sister father mother"""
WORDS = TEXT.split()


def sentences(count: int, seed: int) -> list[tuple[str, str]]:
    """Return different pairs whose sides have the same words."""
    draw, found = random.Random(seed), dict[str, str]()
    while len(found) < count:
        words = [draw.choice(WORDS) for _ in range(draw.randint(3, 12))]
        found[" ".join(words)] = " ".join(reversed(words))
    return list(found.items())


def written(folder: Path, corpora: dict[str, Lines], **blocks: dict[str, Any]) -> Config:
    """Write corpora as NAME.tsv and a config of them; return the config."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, lines in corpora.items():
        (folder / f"{name}.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in lines))
    for side, line in (("source", "one"), ("target", "eins")):
        (folder / f"valid.{side}").write_text(f"{line}\n")
    text = tiny_config_text(
        **{"tokenizer": {"vocab_size": 310}, "data": {"max_tokens": 100}, "model": {"max_positions": 1024}, **blocks}
    ).partition("[[data.train]]")[0]
    text += "".join(f'[[data.train]]\nfile = "{name}.tsv"\n' for name in corpora)
    (folder / "config.toml").write_text(text + '[data.valid]\nsource = "valid.source"\ntarget = "valid.target"\n')
    return load_config(folder / "config.toml")


def prepared(folder: Path, corpora: dict[str, Lines], **blocks: dict[str, Any]) -> PreparedCorpus:
    return prepare(written(folder, corpora, **blocks), folder / "corpus", workers=1)


class Elements(HTMLParser):
    """The elements of a page. Fails if they are not nested."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: Counter[str] = Counter()
        self.texts: list[str] = []
        self.links: list[str] = []
        self.isolated: list[str] = []  # texts whose direction is their own
        self._open: list[tuple[str, bool]] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        self.names[tag] += 1
        self.links += [value or "" for name, value in attrs if name in ("src", "href", "action", "srcset")]
        if tag not in VOID:
            self._open.append((tag, named.get("dir") == "auto" or tag == "bdi"))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names[tag] += 1

    def handle_endtag(self, tag: str) -> None:
        name, _ = self._open.pop()
        assert name == tag

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.texts.append(data)
            if any(isolated for _, isolated in self._open):
                self.isolated.append(data)


NOISE = [
    ("same words", "same words"),
    ("same words", "same words"),
    ("one", "x"),
    ("", "nothing before"),
    ("short", "long " * 60),
    ("too many " * 30, "tokens on both " * 20),
]
"""Pairs of which a second one, one with a line of the validation text, and the last three go."""


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> PreparedCorpus:
    clean = sentences(300, 1)
    return prepared(tmp_path_factory.mktemp("report"), {"clean": clean, "noise": [*sentences(40, 2), *NOISE]})


@pytest.fixture(scope="module")
def text(corpus: PreparedCorpus) -> str:
    return write_report(corpus).read_text(encoding="utf-8")


def shown(text: str) -> str:
    return " ".join(" ".join(Elements(text).texts).split())


# The page.


def test_the_page_is_one_file_without_scripts_whose_elements_are_nested(text: str) -> None:
    elements = Elements(text)
    assert elements.names["table"] > 3
    assert elements.names["svg"] == 3
    assert not {"script", "link", "img", "iframe", "object"} & elements.names.keys()
    assert elements.links == []
    assert "url(" not in text
    assert "@import" not in text


def test_the_page_has_the_counts_of_all_pairs_and_of_each_corpus(corpus: PreparedCorpus, text: str) -> None:
    manifest, seen = corpus.manifest, shown(text)
    assert manifest.corpora[1].dropped == {"empty": 1, "ratio": 1, "held out": 1, "duplicate": 1, "length": 1}
    for facts in manifest.corpora:
        assert f"{facts.kept:,} of {facts.read:,} pairs" in seen
        for reason, count in facts.dropped.items():
            assert f"{reason} {count} {100 * count / facts.read:.1f} %" in seen
    assert f"{corpus.counts.read:,} pairs read" in seen
    assert f"{corpus.counts.kept:,} pairs kept" in seen


def test_the_parts_of_each_bar_make_the_whole(text: str) -> None:
    bars = re.findall(r'<div class="stack[^>]*>(.*?)</div>', text)
    assert len(bars) > 5
    for bar in bars:
        assert sum(map(float, re.findall(r"width: ([\d.]+)%", bar))) == pytest.approx(100, abs=0.02)


def test_each_reason_has_its_examples(corpus: PreparedCorpus, text: str) -> None:
    seen = Elements(text).isolated
    for example in (each for found in corpus.manifest.corpora[1].examples.values() for each in found):
        assert example.target in seen


def test_the_page_says_what_it_was_made_from(corpus: PreparedCorpus, text: str) -> None:
    for each in corpus.manifest.inputs:
        assert each.sha256 in text
        assert str(each.path) in text
    assert "data.max_ratio" in shown(text)
    assert "310 pieces" in shown(text)


def test_equal_corpora_have_equal_pages(corpus: PreparedCorpus, text: str, tmp_path: Path) -> None:
    again = prepare(load_config(corpus.folder.parent / "config.toml"), tmp_path / "again", workers=1)
    assert write_report(again).read_text(encoding="utf-8") == text


def test_markup_in_texts_and_names_is_shown_and_not_read(tmp_path: Path) -> None:
    evil = "</style><script>alert('&amp;')</script>"
    lines = [*sentences(60, 3), (evil, evil), (evil, ""), ('"><img src=x>', "")]
    text = write_report(prepared(tmp_path, {"<b>&lt;i": lines})).read_text(encoding="utf-8")
    elements = Elements(text)
    assert not {"script", "img", "b>"} & elements.names.keys()
    assert evil in elements.isolated
    assert "<b>&lt;i.tsv" in elements.isolated


def test_texts_from_right_to_left_have_their_own_direction(tmp_path: Path) -> None:
    line = "مرحبا بالعالم"
    found = prepared(tmp_path, {"train": [*sentences(60, 3), (line, ""), (f"{line} {line}", line)]})
    isolated = Elements(write_report(found).read_text(encoding="utf-8")).isolated
    assert line in isolated


def test_a_corpus_of_which_nothing_stays_and_an_empty_one_are_shown(tmp_path: Path) -> None:
    found = prepared(tmp_path, {"good": sentences(60, 3), "bad": [("a", ""), ("", "b")], "empty": []})
    seen = shown(write_report(found).read_text(encoding="utf-8"))
    assert "0 of 2 pairs" in seen
    assert "0 of 0 pairs" in seen
    assert "bad.tsv: 0 % of the pairs stay" in seen


def test_without_the_identifiers_the_page_says_how_to_get_them(corpus: PreparedCorpus) -> None:
    tokenizer = corpus.tokenizer()
    found = survey(corpus, tokenizer, None)
    assert all(not sample.source.languages for sample in found.samples)
    assert "detect" in shown(page(corpus, tokenizer, found, told=False))
    assert "detect" not in shown(page(corpus, tokenizer, found, told=True)).replace("data.filters", "")


def test_a_page_of_many_corpora_has_each_once_and_few_examples(tmp_path: Path) -> None:
    names = [f"corpus{number}" for number in range(30)]
    lines = sentences(300, 4)
    found = prepared(tmp_path, {name: [*lines[10 * at : 10 * at + 10], ("", "b")] for at, name in enumerate(names)})
    text = write_report(found).read_text(encoding="utf-8")
    assert text.count('<article class="card">') == 30
    stays = text.partition("Examples of what stays")[2].partition("</section>")[0]
    assert 1 < stays.count("<tr>") <= KEPT_EXAMPLES + 1
    assert text.count('<i class="nothing">empty</i>') <= 6


def test_every_reason_of_a_filter_is_explained(corpus: PreparedCorpus) -> None:
    from lingon.training.filters import TOKEN_RATIO, PairFilters

    every = {
        "min_score": 0.1,
        "same_brackets": True,
        "max_word": 9,
        "min_letters": 0.1,
        "min_script": 0.1,
        "max_copy": 0,
        "same_addresses": True,
        "min_numbers": 0.1,
        "max_repetition": 0.5,
        "min_language": 0.1,
        "max_token_ratio": 3.0,
    }
    config = load_config(
        corpus.folder.parent / "config.toml",
        [f"data.filters.{key}={each}".replace("True", "true") for key, each in every.items()],
    )
    reasons = PairFilters(config.data, config.data.languages).reasons
    assert len(reasons) == 14
    assert {*reasons, TOKEN_RATIO, "held out", "duplicate", "near duplicate", "length"} <= REASONS.keys()


def test_names_are_as_short_as_they_are_different() -> None:
    assert short_names(["a/x/train.en", "a/y/valid.en"]) == ["train.en", "valid.en"]
    assert short_names(["a/x/train.en", "a/y/train.en"]) == ["x/train.en", "y/train.en"]
    assert short_names(["train.en", "b/train.en", "c/train.en"]) == ["train.en", "b/train.en", "c/train.en"]
    assert short_names(["train.en", "train.en"]) == ["train.en", "train.en"]


def test_the_command_writes_the_page_of_a_complete_corpus_without_preparing_it_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = written(tmp_path, {"train": sentences(60, 3)})
    folder = prepare(config, tmp_path / "corpus", workers=1).folder
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    prepare_verb(config=tmp_path / "config.toml", output=folder)
    assert not (folder / "report.html").exists()
    prepare_verb(config=tmp_path / "config.toml", output=folder, report=True)
    assert f"report: {folder}/report.html" in capsys.readouterr().out
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert (folder / "report.html").is_file()


# Its figures.


def test_lengths_counted_in_blocks_are_those_of_all_pairs() -> None:
    draw = np.random.default_rng(1)
    lengths = draw.integers(1, 60, (1000, 2)).astype(np.uint32)
    whole, parts = count_lengths(lengths), count_lengths(lengths, block=7)
    for name in ("sources", "targets", "ratios"):
        assert getattr(whole, name).tolist() == getattr(parts, name).tolist(), name
    assert whole.sources.sum() == whole.targets.sum() == whole.ratios.sum() == 1000
    assert whole.sources.tolist() == [int((lengths[:, 0] == each).sum()) for each in range(60)]
    order = sorted(range(1000), key=lambda row: (-int(lengths[row].max()), row))
    assert whole.longest == parts.longest == order[:LONGEST]


def test_equal_lengths_have_the_ratio_in_the_middle_and_extreme_ones_are_at_the_ends() -> None:
    lengths = np.array([[7, 7], [1, 100], [100, 1], [10, 20]], np.uint32)
    middle = OCTAVES * BINS
    assert np.flatnonzero(count_lengths(lengths).ratios).tolist() == [0, middle, middle + BINS, 2 * middle]


def test_the_quantiles_and_the_mean_are_those_of_the_lengths() -> None:
    lengths = np.random.default_rng(2).integers(1, 60, 999)
    counts = np.bincount(lengths)
    assert quantile(counts, 0.5) == np.median(lengths)
    assert mean(counts) == pytest.approx(lengths.mean())


def test_letters_are_counted_by_their_scripts() -> None:
    found = scripts(Counter("abc абв 漢字 かな カナ مرحبا 123 ,.é"))
    assert found == {"Latin": 4, "Cyrillic": 3, "Han": 2, "Kana": 4, "Arabic": 5}


@pytest.mark.parametrize("corpora", [1, 3, 7, 10_000, 20_000])
def test_the_sample_has_a_bound(corpora: int) -> None:
    assert 1 <= sample_size(corpora) <= SAMPLE
    assert sample_size(corpora) * corpora <= max(SAMPLE, corpora)


def test_the_sample_has_pairs_of_its_corpus_alone(corpus: PreparedCorpus) -> None:
    found = survey(corpus, corpus.tokenizer(), None)
    starts = corpus.corpus_starts
    for number, sample in enumerate(found.samples):
        rows = np.arange(starts[number], starts[number + 1])
        every = set(zip(*corpus.texts(rows), strict=True))
        assert set(sample.examples) <= every
        assert sample.pairs == len(every) == len(rows), "small corpora are whole"
        assert sample.source.characters == sum(len(source) for source, _ in every)
        assert sample.target.tokens == sum(len(ids) for ids in corpus.ids(rows)[1])


def test_pieces_of_one_byte_are_counted(tmp_path: Path, tokenizer: Tokenizer) -> None:
    plain = [(f"1 2 {number}", f"{number} 2 1") for number in range(20)]
    odd = [(f"{source} ꙮ", target) for source, target in plain]
    found = prepare(written(tmp_path, {"plain": plain, "odd": odd}), tmp_path / "corpus", tokenizer, workers=1)
    without, having = survey(found, tokenizer, None).samples
    assert (without.source.bytes, without.target.bytes, having.target.bytes) == (0, 0, 0)
    assert having.source.bytes == 20 * len("ꙮ".encode())
    notes = list(notable(found.manifest, survey(found, tokenizer, None), ["plain", "odd"]))
    assert [note.partition(":")[0] for note in notes] == ["odd"]


class FakeIdentifiers:
    """Takes texts with the word `deutsch` for German and all others for English."""

    def codes_of(self, language: str) -> frozenset[str]:
        return frozenset({language})

    def confirms(self, text: str, codes: frozenset[str], least: float) -> bool:
        return self.rank(text)[0][0] in codes

    def rank(self, text: str) -> list[tuple[str, float]]:
        return [("de" if "deutsch" in text else "en", 1.0)]


def test_texts_of_some_length_are_counted_by_their_language_and_a_mixture_is_named(tmp_path: Path) -> None:
    long = "word " * FEWEST_BYTES
    lines = [(f"{long}{number}", f"{'deutsch ' if number % 4 else ''}{long}{number}") for number in range(40)]
    found = prepared(
        tmp_path, {"train": [*lines, ("short", "deutsch")]}, data={"max_tokens": 500}, tokenizer={"vocab_size": 283}
    )
    figures: Survey = survey(found, found.tokenizer(), FakeIdentifiers())  # type: ignore[arg-type]
    (sample,) = figures.samples
    assert (sample.source.languages, sample.source.short) == ({"en": 40}, 1)
    assert sample.target.languages == {"de": 30, "en": 10}
    notes = list(notable(found.manifest, figures, ["train"]))
    assert len(notes) == 1
    assert "25.0 % of the target texts seem to be in other languages than de, most in en" in notes[0]


def test_a_clean_corpus_has_nothing_to_look_at(tmp_path: Path) -> None:
    found = prepared(tmp_path, {"train": sentences(200, 5)})
    assert list(notable(found.manifest, survey(found, found.tokenizer(), None), ["train"])) == []
