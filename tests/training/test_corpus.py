"""Parallel text from files: normalisation, filters, counts, and one clear line for a wrong file."""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from typing import Any

import pytest

from lingon.errors import CorpusError, SettingsError
from lingon.text import Tokenizer
from lingon.training.config import Corpus, TokenizerSettings
from lingon.training.corpus import Pair, read_pairs
from lingon.training.prepare import prepare
from lingon.training.prepared import PreparedCorpus
from lingon.training.tokenizer import train_tokenizer
from tests.support.corpora import epoch_pairs, pairs_of, text_config


def files(folder: Path, source: bytes, target: bytes, suffix: str = "") -> Corpus:
    for name, content in (("s", source), ("t", target)):
        path = folder / f"{name}{suffix}"
        path.write_bytes(gzip.compress(content) if suffix == ".gz" else content)
    return Corpus(source=folder / f"s{suffix}", target=folder / f"t{suffix}")


def prepared(folder: Path, tokenizer: Tokenizer, *corpora: Corpus, **data: Any) -> PreparedCorpus:
    config = text_config(folder, *(corpus.model_dump() for corpus in corpora), data=data)
    return prepare(config, folder / "corpus", tokenizer)


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_lines_are_paired_and_normalised(tmp_path: Path, suffix: str) -> None:
    corpus = files(tmp_path, b"\xef\xbb\xbfone\r\n two\t x \xe2\x80\xa8y\n", b"u\xcc\x88ber\nzwei\n", suffix)
    assert list(read_pairs(corpus)) == [Pair("one", "\u00fcber"), Pair("two x y", "zwei")]


def test_a_tsv_has_its_source_in_column_1_and_its_target_in_2(tmp_path: Path, tokenizer: Tokenizer) -> None:
    path = tmp_path / "pairs.tsv"
    path.write_text("one\teins\tCC-BY\ntwo\tzwei\n\n \t\n")
    assert list(read_pairs(Corpus(file=path))) == [Pair("one", "eins"), Pair("two", "zwei"), *[Pair("", "")] * 2]
    assert prepared(tmp_path, tokenizer, Corpus(file=path)).counts.dropped == {"empty": 2}


def test_a_tsv_line_of_one_column_is_an_error_with_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "pairs.tsv"
    path.write_text("one\teins\ntwo zwei\n")
    with pytest.raises(
        CorpusError, match=re.escape(f"{path}:2: must have 2 columns or more, separated by tabs, got 1")
    ):
        list(read_pairs(Corpus(file=path)))


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_a_missing_file_is_named(tmp_path: Path, suffix: str) -> None:
    corpus = files(tmp_path, b"a\n", b"b\n", suffix)
    assert corpus.target is not None
    corpus.target.unlink()
    with pytest.raises(CorpusError, match=re.escape(f"{corpus.target}: No such file or directory")):
        list(read_pairs(corpus))


def test_bad_utf8_is_an_error_with_file_and_line(tmp_path: Path) -> None:
    corpus = files(tmp_path, b"a\nb\xff\nc\n", b"a\nb\nc\n")
    with pytest.raises(CorpusError, match=re.escape(f"{corpus.source}:2: not UTF-8 (invalid start byte at byte 1")):
        list(read_pairs(corpus))


@pytest.mark.parametrize(("source", "target", "shorter"), [(b"a\nb\n", b"a\n", "t"), (b"a\n", b"a\nb\n", "s")])
def test_a_wrong_line_count_is_an_error_with_file_and_line(
    tmp_path: Path, source: bytes, target: bytes, shorter: str
) -> None:
    corpus = files(tmp_path, source, target)
    with pytest.raises(CorpusError, match=re.escape(f"{tmp_path / shorter}:2: ends here, but")):
        list(read_pairs(corpus))


def test_a_truncated_gzip_is_an_error_with_file_and_line(tmp_path: Path) -> None:
    corpus = files(tmp_path, b"line\n" * 100_000, b"line\n" * 100_000, ".gz")
    assert corpus.source is not None
    corpus.source.write_bytes(corpus.source.read_bytes()[:-40])
    with pytest.raises(CorpusError, match=rf"{re.escape(str(corpus.source))}:\d+: Compressed file ended"):
        list(read_pairs(corpus))


def test_a_broken_gzip_is_an_error(tmp_path: Path) -> None:
    corpus = files(tmp_path, b"line\n" * 100, b"line\n" * 100, ".gz")
    assert corpus.source is not None
    broken = bytearray(corpus.source.read_bytes())
    broken[14] ^= 0xFF
    corpus.source.write_bytes(broken)
    with pytest.raises(CorpusError, match=re.escape(str(corpus.source))):
        list(read_pairs(corpus))


def test_a_folder_in_the_place_of_a_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=re.escape(f"{tmp_path}: Is a directory")):
        list(read_pairs(Corpus(source=tmp_path, target=tmp_path)))


def test_every_filter_counts_what_it_drops(tmp_path: Path, tokenizer: Tokenizer) -> None:
    lines = [("a", "b"), ("", "b"), ("a", "  "), ("a", "b"), ("a", 29 * "b"), ("a", 28 * "b")]
    source, target = ("".join(f"{pair[side]}\n" for pair in lines).encode() for side in (0, 1))
    text = prepared(tmp_path, tokenizer, files(tmp_path, source, target))
    assert pairs_of(text) == [("a", "b"), ("a", 28 * "b")]
    assert text.counts.dropped == {"empty": 2, "ratio": 1, "duplicate": 1}
    assert str(text.counts) == "6 pairs read, 2 kept (dropped: 2 empty, 1 ratio, 1 duplicate, 0 length)"


def test_duplicates_stay_with_drop_duplicates_off(tmp_path: Path, tokenizer: Tokenizer) -> None:
    corpus = files(tmp_path, b"a\na\n", b"b\nb\n")
    assert len(prepared(tmp_path, tokenizer, corpus, drop_duplicates=False)) == 2


def test_a_corpus_is_repeated_after_its_own_duplicates_are_dropped(tmp_path: Path, tokenizer: Tokenizer) -> None:
    first = files(tmp_path, b"a\na\nb\n", b"a\na\nb\n").model_copy(update={"repeat": 2})
    (tmp_path / "more.tsv").write_text("b\tb\nc\tc\n")
    config = text_config(tmp_path, first.model_dump(), {"file": tmp_path / "more.tsv"})
    text = prepare(config, tmp_path / "corpus", tokenizer)
    assert sorted(pair.source for pair in epoch_pairs(text, config)) == ["a", "a", "b", "b", "c"]
    assert (text.counts.kept, text.counts.dropped["duplicate"]) == (3, 2)


def test_no_pair_left_is_an_error_with_the_counts(tmp_path: Path, tokenizer: Tokenizer) -> None:
    with pytest.raises(
        CorpusError, match=r"no pair passes the filters of the training text: 1 pairs read, 0 kept \(dropped: 1 empty"
    ):
        prepared(tmp_path, tokenizer, files(tmp_path, b"\n", b"\n"))


def test_a_vocabulary_too_large_for_the_text_is_a_settings_error() -> None:
    with pytest.raises(
        SettingsError, match=r"^tokenizer\.vocab_size = 5000 does not fit this text: Vocabulary size too"
    ):
        train_tokenizer([Pair("a b", "b a")], TokenizerSettings(vocab_size=5000))


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_a_vocabulary_too_small_for_the_text_names_the_settings_of_lingon(kind: str) -> None:
    pairs = [Pair("a b c d e f g h i j k l m n o", "p q r s t u v w x y")]
    values = {"vocab_size": 20, "kind": kind, "byte_fallback": False, "character_coverage": 1.0}
    with pytest.raises(SettingsError) as caught:
        train_tokenizer(pairs, TokenizerSettings.model_validate(values))
    told = (
        r"tokenizer\.vocab_size = 20 does not fit this text: its characters and the special pieces alone need (\d+); "
        r"raise vocab_size, or lower tokenizer\.character_coverage"
    )
    found = re.fullmatch(told, str(caught.value))
    assert found
    train_tokenizer(pairs, TokenizerSettings.model_validate({**values, "vocab_size": int(found[1])}))


def test_a_text_without_usable_lines_is_a_corpus_error() -> None:
    longer_than_they_read = Pair("a b " * 2000, "a b " * 2000)
    with pytest.raises(CorpusError) as caught:
        train_tokenizer([longer_than_they_read], TokenizerSettings(vocab_size=270))
    assert str(caught.value) == "no tokenizer can be trained on this text: no line has from 1 to 4,192 bytes"


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_separate_vocabularies_have_only_their_own_language(kind: str) -> None:
    pairs = [Pair("aa ab ba", "xx xy yx")] * 5
    values = TokenizerSettings.model_validate(
        {"kind": kind, "joint": False, "vocab_size": 16, "byte_fallback": False, "character_coverage": 1.0}
    )
    separate = train_tokenizer(pairs, values.model_copy(update={"vocab_size": 9}))
    assert not separate.joint
    assert separate.decode(separate.encode_target("xy yx")) == "xy yx"
    assert 3 in separate.encode_source("xy")  # unknown


def test_an_unknown_character_becomes_its_bytes(pairs: list[Pair]) -> None:
    tokenizer = train_tokenizer(pairs, TokenizerSettings(vocab_size=280))
    assert tokenizer.decode(tokenizer.encode_target("1 \u00fc \U0001f600")) == "1 \u00fc \U0001f600"
