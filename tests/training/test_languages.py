"""Text of several pairs of languages: filters, token ids, shares of an epoch, and the tokenizer that it trains."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from lingon.errors import CorpusError, SettingsError
from lingon.text import BOS, EOS, PAD, LanguageTokens, Tokenizer
from lingon.training import checkpoint as files
from lingon.training.batches import encode_pairs, filter_by_length
from lingon.training.checkpoint import TrainingProgress, load_checkpoint
from lingon.training.cli import average, prepare
from lingon.training.config import Config, LanguageSettings, TokenizerSettings, load_config
from lingon.training.corpus import Pair, read_validation_text
from lingon.training.epochs import epoch_sizes, mixture
from lingon.training.evaluation import translate_lines
from lingon.training.prepare import prepare as prepare_corpus
from lingon.training.tokenizer import train_tokenizer
from lingon.training.trainer import outcome
from tests.support.corpora import batch_of, epoch_pairs, maker_of, pairs_of, text_config
from tests.support.training_runs import (
    config_text,
    corpus_block,
    counted,
    groups_of_an_epoch,
    in_two_processes,
    log_of,
    same,
    train,
    train_here,
    weights_of,
    write_config,
    write_config_of_pairs,
    write_corpora,
)

EN_FR = ("en", "fr")
LANGUAGES = LanguageSettings.of([("en", "de"), EN_FR])
NO_PIECES = {
    "sources": [{"language": "en"}],
    "targets": [{"language": "de"}, {"language": "fr"}],
}
"""Of a model that its sources do not tell the language."""


def settings(folder: Path, *languages: str | None, **blocks: Any) -> Config:
    text = folder / "text.tsv"
    text.write_text("okay\tokay\none\teins\n", encoding="utf-8")
    return text_config(folder, *({"file": text, "target_language": each} for each in languages), **blocks)


def test_a_text_in_two_pairs_of_languages_is_no_duplicate(tmp_path: Path, tokenizer: Tokenizer) -> None:
    alike = prepare_corpus(settings(tmp_path, None, "de"), tmp_path / "alike", tokenizer)
    assert alike.counts.dropped == {"duplicate": 2}
    config = settings(tmp_path, None, "fr", languages=NO_PIECES)
    corpus = prepare_corpus(config, tmp_path / "corpus", tokenizer)
    assert pairs_of(corpus) == [("okay", "okay"), ("one", "eins")] * 2
    found = epoch_pairs(corpus, config)
    assert [pair.languages for pair in found] == [None, None, EN_FR, EN_FR]
    valid = config.data.model_copy(update={"valid": config.data.train})
    assert read_validation_text(valid) == found


def test_the_languages_of_pairs_are_part_of_the_digest(tmp_path: Path, tokenizer: Tokenizer) -> None:
    found = []
    for number, languages in enumerate([(None, None), (None, "de"), (None, "fr")]):
        several = {"languages": NO_PIECES} if "fr" in languages else {}
        config = settings(tmp_path, *languages, data={"drop_duplicates": False}, **several)
        found.append(prepare_corpus(config, tmp_path / str(number), tokenizer).digest([1, 1]))
    assert found[0] == found[1] != found[2]


def test_a_batch_has_pairs_of_several_languages_each_with_its_own_tokens(tokenizer: Tokenizer) -> None:
    own = tokenizer.for_languages(LanguageTokens((11,), (), (12,)))
    others = {EN_FR: tokenizer.for_languages(LanguageTokens((21, 22), (23,), ()))}
    pairs = [Pair("1 2", "2 1"), Pair("1 2", "2 1", languages=EN_FR)]
    encoded = encode_pairs(pairs, own, others)
    source, target = tokenizer.source.encode("1 2"), tokenizer.target.encode("2 1")
    batch = encoded.batch([0, 1])
    assert batch.source_ids.tolist() == [[11, *source, EOS, PAD, PAD], [21, 22, *source, EOS, 23]]
    assert batch.source_lengths.tolist() == [len(source) + 2, len(source) + 4]
    assert batch.target_ids.tolist() == [[BOS, 12, *target], [BOS, *target, PAD]]
    assert encoded.lengths().tolist() == [[len(source) + 2, len(target) + 2], [len(source) + 4, len(target) + 1]]
    longest = len(source) + 3
    assert filter_by_length(pairs, own, longest, others) == pairs[:1]


def test_a_batch_of_a_prepared_corpus_has_the_tokens_of_the_languages_of_each_pair(
    tokenizer: Tokenizer, tmp_path: Path
) -> None:
    first, second, third, forced, after = (str(tokenizer.source.id_to_piece(token)) for token in (11, 21, 22, 12, 23))
    languages = {
        "sources": [{"language": "en", "after": [after]}],
        "targets": [
            {"language": "de", "source": [first], "forced": [forced]},
            {"language": "fr", "source": [second, third]},
        ],
    }
    corpora = [{"file": tmp_path / "text.tsv", "target_language": language} for language in ("de", "fr")]
    (tmp_path / "text.tsv").write_text("1 2\t2 1\n")
    config = text_config(tmp_path, *corpora, languages=languages)
    own, others = config.tokenizer_of_pair(tokenizer), config.tokenizers_of_others(tokenizer)
    pairs = [Pair("1 2", "2 1"), Pair("1 2", "2 1", languages=EN_FR)]
    batch = batch_of(maker_of(config, tmp_path / "corpus", tokenizer), [0, 1])
    assert all(map(np.array_equal, batch[:4], encode_pairs(pairs, own, others).batch([0, 1])[:4]))
    assert batch.source_ids[:, 0].tolist() == [11, 21]


def test_a_pair_is_too_long_by_the_tokens_of_its_own_languages(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """The targets of fr begin with two more tokens than those of de."""
    forced = {**NO_PIECES, "targets": [{"language": "de"}, {"language": "fr", "forced": ["<s>", "<s>"]}]}
    length = len(tokenizer.encode_target("2 1"))
    for most, kept in ((length + 3, 2), (length + 2, 1)):
        (tmp_path / "text.tsv").write_text("1 2\t2 1\n")
        corpora = [{"file": tmp_path / "text.tsv", "target_language": language} for language in ("de", "fr")]
        config = text_config(tmp_path, *corpora, languages=forced, data={"max_tokens": most})
        corpus = prepare_corpus(config, tmp_path / str(most), tokenizer)
        assert len(corpus) == kept
        assert corpus.lengths[:, 1].tolist() == [length + 1, length + 3][:kept]


def test_the_shares_of_an_epoch_are_the_sizes_to_the_power_of_one_over_the_temperature() -> None:
    """Arivazhagan et al. (2019), section 3.2: 1 leaves the sizes, a high temperature makes them equal."""
    sizes = np.array([10_000, 1_000, 10])
    assert epoch_sizes(sizes, 1).tolist() == sizes.tolist()
    assert epoch_sizes(sizes, 2).tolist() == [10_000, 3_162, 316]
    assert epoch_sizes(sizes, 1e9).tolist() == [10_000] * 3


@pytest.mark.parametrize("temperature", [1, 4])
def test_the_pairs_of_an_epoch_are_a_function_of_seed_and_epoch(tmp_path: Path, temperature: int) -> None:
    config = settings(tmp_path, None, "fr", data={"temperature": temperature}, languages=NO_PIECES)

    def rows(*seed: int) -> list[int]:
        shown = mixture(config, [100, 30], seed)
        return shown.rows(np.arange(len(shown))).tolist()

    assert rows(1, 0) == rows(1, 0)
    assert (rows(1, 0) != rows(1, 1)) == (temperature > 1)
    assert temperature > 1 or rows(1, 0) == list(range(130))


@pytest.mark.parametrize("joint", [True, False])
def test_the_pieces_of_languages_are_there_and_no_text_is_encoded_to_them(pairs: list[Pair], joint: bool) -> None:
    """A user who writes such a piece in a text must not choose the language by it."""
    forced = LANGUAGES.model_dump()
    forced["targets"][0]["forced"] = ["<2de>", "</s>"]
    languages = LanguageSettings.model_validate(forced)
    trained = train_tokenizer(pairs, TokenizerSettings(vocab_size=280, character_coverage=1, joint=joint), languages)
    codes = [trained.source.piece_to_id(piece) for piece in (">>de<<", ">>fr<<")]
    assert len(set(codes)) == 2
    assert min(codes) > 3
    assert trained.target.piece_to_id("<2de>") > 3
    assert trained.target.piece_to_id("</s>") == EOS
    assert not {*codes} & {*trained.encode_source("1 2 >>de<< 3 >>fr<<")}
    assert (trained.target.piece_to_id(">>de<<") > 3) == joint


def test_a_piece_that_every_tokenizer_has_is_refused(pairs: list[Pair]) -> None:
    sides = {"sources": [{"language": "en", "before": ["<0x41>"]}], "targets": [{"language": "de"}]}
    with pytest.raises(SettingsError, match=r"^languages: .*'<0x41>'"):
        train_tokenizer(pairs, TokenizerSettings(vocab_size=290), LanguageSettings.model_validate(sides))


def test_a_piece_that_a_tokenizer_lacks_is_named(tokenizer: Tokenizer) -> None:
    with pytest.raises(SettingsError, match=r"^languages: '>>de<<' is no piece of the source vocabulary$"):
        LANGUAGES.resolve(tokenizer)


FEW: dict[str, Any] = {
    "data": {"temperature": 3},
    "model": {"dropout": 0.2},
    "training": {
        "max_steps": 24,
        "warmup_steps": 10,
        "cooldown_steps": 5,
        "batch_tokens": 300,
        "accumulate": 2,
        "log_every": 1,
        "valid_every": 10,
        "valid_sentences": 10,
    },
}

SHORT = {**FEW["training"], "max_steps": 2, "cooldown_steps": 0}


@pytest.fixture
def corpora(tmp_path: Path) -> Path:
    write_corpora(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a short run, beside its text."""
    folder = tmp_path_factory.mktemp("several")
    write_corpora(folder)
    train(write_config_of_pairs(folder, **FEW), folder / "run")
    return folder / "run"


@pytest.mark.parametrize("cut", [3, 14])
def test_a_run_stopped_and_resumed_has_the_weights_of_one_never_stopped(corpora: Path, cut: int) -> None:
    config = write_config_of_pairs(corpora, **FEW)
    whole = train(config, corpora / "whole")
    assert whole.progress.epoch >= 2, "the pairs that are drawn differ from epoch to epoch"
    assert train(config, corpora / "cut", cut=cut).interrupted
    resumed = train(config, corpora / "cut")
    assert same(weights_of(resumed), weights_of(whole))
    assert counted(resumed.progress) == counted(whole.progress)


def test_two_processes_compute_the_weights_of_one(corpora: Path) -> None:
    alone = train(write_config_of_pairs(corpora, **FEW), corpora / "one")
    assert in_two_processes(train_here, corpora / "config.toml", corpora / "two") == [24, 24]
    one, two = ([line["loss"] for line in log_of(corpora / name, "train")] for name in ("one", "two"))
    assert two == pytest.approx(one, rel=1e-4)
    together = load_checkpoint(files.step_folder(corpora / "two", 24))
    pieces = "output.weight"
    assert_close(together.model.state_dict()[pieces], weights_of(alone)[pieces], rtol=1e-3, atol=1e-4)


def test_an_epoch_has_as_many_pairs_of_each_as_the_run_says(corpora: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The 298 pairs of en:de are there once, the 100 of en:fr 298 * (100 / 298) ** (1 / 3) times in all."""
    trainer = train(write_config_of_pairs(corpora, **FEW), corpora / "run", cut=1)
    said = capsys.readouterr().err
    assert "en:de: 298 pairs in an epoch, 59.0% of all\nen:fr: 207 pairs in an epoch, 41.0% of all\n" in said
    assert "served without training text" not in said
    seen = [int(row) for group in groups_of_an_epoch(trainer) for each in group.requests for row in each.rows]
    assert sum(row < 298 for row in seen) == 298
    assert sum(row >= 298 for row in seen) == 207
    assert set(seen) == set(range(398))


def test_every_batch_tells_the_model_the_language_of_each_pair(corpora: Path) -> None:
    trainer = train(write_config_of_pairs(corpora, **FEW), corpora / "run", cut=1)
    group, batches = next(trainer.feed().updates(TrainingProgress()))
    codes = {code: trainer.tokenizer.source.piece_to_id(code) for code in (">>de<<", ">>fr<<")}
    mixed = 0
    for request, batch in zip(group.requests, batches, strict=True):
        first = batch.source_ids[:, 0].tolist()
        assert first == [codes[">>de<<" if row < 298 else ">>fr<<"] for row in request.rows]
        mixed += len(set(first)) > 1
    assert mixed > 0


def test_a_validation_scores_each_pair_and_the_best_checkpoint_has_the_best_mean(run: Path) -> None:
    lines = log_of(run, "valid")
    assert [line["step"] for line in lines] == [10, 20, 24]
    for line in lines:
        for name in ("bleu", "chrf"):
            assert line[name] == pytest.approx(fmean(line[f"{name}_{pair}"] for pair in ("en-de", "en-fr")))
        assert line["bleu_signature_en-fr"].startswith("nrefs:1")
    best = max(lines, key=lambda line: (line["bleu"], line["chrf"], -line["loss"]))
    marked = json.loads((run / files.BEST).read_text())
    assert marked["checkpoint"] == f"step-{best['step']:08d}"
    assert marked["bleu"] == best["bleu"]
    assert marked["bleu_en-fr"] == best["bleu_en-fr"]


def test_a_validation_prints_a_line_for_each_pair(corpora: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_config_of_pairs(corpora, training={**FEW["training"], "max_steps": 6, "valid_every": 6})
    chinese = [f"data.{name}.1.target_language=zh" for name in ("train", "valid")]
    trainer = train(load_config(corpora / "config.toml", chinese), corpora / "run")
    assert re.fullmatch(r"ended after step 6; best mean BLEU \S+ at 6", outcome(trainer))
    said = capsys.readouterr().err
    assert re.search(r"^step 6  valid  loss \S+  perplexity \S+  bleu \S+  chrf \S+$", said, re.MULTILINE)
    for pair in ("en:de", "en:zh"):
        assert re.search(rf"^step 6  valid  {pair}  bleu \S+  chrf \S+$", said, re.MULTILINE)
    assert re.search(
        r"^BLEU is nrefs\S+tok:13a\S+ \(en:de\), nrefs\S+tok:zh\S+ \(en:zh\), chrF nrefs", said, re.MULTILINE
    )


def test_a_run_of_several_pairs_is_averaged_and_evaluated_for_each(run: Path, tmp_path: Path) -> None:
    average([run], tmp_path / "mean")
    search: Any = {"beam_size": 1, "length_penalty": 0.0, "device": "cpu"}
    for language, expected in ((None, "de"), ("de", "de"), ("fr", "fr")):
        found = translate_lines(tmp_path / "mean", ["1 2"], target_language=language, **search)
        assert found.language == expected
    with pytest.raises(SettingsError, match=r"--target-language must be .* de, fr; got 'it'"):
        translate_lines(tmp_path / "mean", ["1 2"], target_language="it", **search)


def test_fine_tuning_keeps_the_languages_of_the_checkpoint(run: Path) -> None:
    """They need not be those that a run of these corpora would make."""
    folder = run.parent
    config = write_config_of_pairs(folder, **FEW)
    turned = config.model_copy(update={"languages": LanguageSettings.of([("en", "fr"), ("en", "de"), ("de", "fr")])})
    trained = load_checkpoint(run)
    known = trained.config.model_copy(update={"languages": turned.languages})
    files.save_checkpoint(folder / "known", known, trained.tokenizer, trained.model, trained.progress)
    tuned = train(write_config_of_pairs(folder, training=SHORT), folder / "tuned", start=folder / "known")
    assert tuned.config.languages == turned.languages
    assert tuned.tokenizer.files() == trained.tokenizer.files()


@pytest.mark.parametrize("start", [True, False])
def test_a_tokenizer_without_the_pieces_of_the_languages_is_refused(corpora: Path, start: bool) -> None:
    """That of a run of one pair, which the new run takes with its weights or by tokenizer.path."""
    one = train(write_config(corpora, "one.toml", training=SHORT), corpora / "one")
    config = write_config_of_pairs(corpora, training=SHORT, tokenizer={} if start else {"path": str(corpora / "one")})
    with pytest.raises(SettingsError, match=r"^languages: '>>de<<' is no piece of the source vocabulary$"):
        train(config, corpora / "run", start=corpora / "one" if start else None)
    assert one.config.languages is None


def test_no_translation_has_a_piece_of_a_language(run: Path) -> None:
    trained = load_checkpoint(run)
    codes = tuple(trained.tokenizer.target.piece_to_id(code) for code in (">>de<<", ">>fr<<"))
    assert trained.model.settings.never_generated == codes
    assert trained.model.log_probs(torch.zeros(1, trained.tokenizer.target_vocab))[0, list(codes)].max() < -1e4
    given = write_config_of_pairs(run.parent, **{**FEW, "model": {"never_generated": [9]}, "training": SHORT})
    assert train(given, run.parent / "given").model.settings.never_generated == (9,)
    # A run that goes on has those of its checkpoint.
    more = write_config_of_pairs(run.parent, **{**FEW, "training": {**FEW["training"], "max_steps": 25}})
    resumed = train(more, Path(shutil.copytree(run, run.parent / "more")))
    assert (resumed.progress.step, resumed.model.settings.never_generated) == (25, codes)


def test_the_verb_prepare_makes_the_corpus_that_the_run_makes(run: Path, tmp_path: Path) -> None:
    prepare(config=run.parent / "config.toml", output=tmp_path / "corpus", overrides=["data.temperature=3"])
    made, own = (
        {path.name: path.read_bytes() for path in folder.iterdir()} for folder in (tmp_path / "corpus", run / "corpus")
    )
    assert made == own
    assert Tokenizer.read(tmp_path / "corpus").files() == Tokenizer.read(run).files()


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("train.copy", "no pair of en:fr passes the filters of the training text"),
        ("valid.copy", "valid.copy: none of 2 validation pairs can be scored"),
    ],
)
def test_a_pair_of_languages_without_usable_text_is_named(corpora: Path, file: str, message: str) -> None:
    config = write_config_of_pairs(corpora, **FEW)
    (corpora / file).write_text("\n\n")
    with pytest.raises(CorpusError, match=re.escape(message)):
        train(config, corpora / "run")


def test_a_run_names_the_pairs_that_lack_training_text_or_validation_text(
    corpora: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    turned = corpus_block("data.train", "train.target", "train.source", source_language="de", target_language="en")
    (corpora / "config.toml").write_text(config_text(training=SHORT) + turned)
    train(load_config(corpora / "config.toml"), corpora / "run")
    said = capsys.readouterr().err.splitlines()
    assert "trained without validation text: de:en" in said
    assert "served without training text: de:fr" in said


def test_a_change_of_the_languages_of_validation_text_is_one_of_what_validations_measure(
    corpora: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train(write_config_of_pairs(corpora, training=SHORT), corpora / "run")
    more = {**SHORT, "max_steps": 3}
    write_config_of_pairs(corpora, training=more)
    train(load_config(corpora / "config.toml", ["data.valid.1.target_language=de"]), corpora / "run")
    assert "what validations measure: the next one is the best so far" in capsys.readouterr().err
