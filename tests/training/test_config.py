"""The settings of a run: wrong ones are one line; the configs of WMT14 have the settings and sizes of the paper."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import pytest
import torch

from lingon.errors import SettingsError
from lingon.files import read_lines
from lingon.text import Tokenizer
from lingon.training.checkpoint import saved_steps
from lingon.training.config import Config, LanguageSettings, load_config
from lingon.training.model_settings import paper_learning_rate
from lingon.training.models.build import build_model
from lingon.training.trainer import learning_rate
from tests.support.repository import ROOT
from tests.support.training_runs import log_of, tiny_config_text, train


def load(folder: Path, text: str = "", overrides: Sequence[str] = ()) -> Config:
    (folder / "run.toml").write_text(text or tiny_config_text(), encoding="utf-8")
    return load_config(folder / "run.toml", overrides)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("training.max_step=5", "unknown key training.max_step; did you mean max_steps?"),
        ("trainin.max_steps=5", "unknown key trainin; did you mean training?"),
        ("data.train.0.sorce=x", "unknown key data.train.0.sorce; did you mean source?"),
        ("data.valid.fiel=x", "unknown key data.valid.fiel; did you mean file?"),
        ("data.filters.min_scrpit=1", "unknown key data.filters.min_scrpit; did you mean min_script?"),
        ("data.filters.min_script=2", "data.filters.min_script must be less than or equal to 1, got 2"),
        ("data.filters.max_copy=-1", "data.filters.max_copy must be greater than or equal to 0, got -1"),
        (
            "data.filters={min_mean_word=9,max_mean_word=3}",
            "min_mean_word must be at most max_mean_word (3.0), got 9.0",
        ),
        ("data.trian=1", "unknown key data.trian; did you mean train?"),
        ("model.zzz=1", "unknown key model.zzz; known to kind 'transformer' are kind, preset, dim,"),
        ("model.kind=rnn", "model.kind must be 'transformer', 'rnnenc', 'rnnsearch' or 'luong', got 'rnn'"),
        ("model.kind=[1]", "model.kind must be 'transformer', 'rnnenc', 'rnnsearch' or 'luong', got [1]"),
        ("model.transformer=1", "unknown key model.transformer; known to kind 'transformer' are kind,"),
        ("training.max_steps=0", "training.max_steps must be greater than or equal to 1, got 0"),
        ("training.max_steps=many", "training.max_steps must be a valid integer"),
        ("training.learning_rate=inf", "training.learning_rate must be a finite number, got inf"),
        ("training.precision=fp8", "training.precision must be 'fp32', 'bf16' or 'fp16', got 'fp8'"),
        ("training.cooldown_steps=1000", "cooldown_steps must be below max_steps (1000), got 1000"),
        ("model.heads=3", "heads must divide dim (32) unless head_dim is set, got 3"),
        ("model.dim=1e9", "model.dim must be 1 to 1,048,576, got 1000000000"),
        ("model.ffn=1048577", "model.ffn must be 1 to 1,048,576, got 1048577"),
        ("languages.foo=1", "unknown key languages.foo; known are sources, targets"),
        ('languages.sources=[{langauge="x"}]', "unknown key languages.sources.0.langauge; did you mean language?"),
        ("origin.fom=1", "unknown key origin.fom; did you mean form?"),
        ("model.positions=alibi", "must be 'sinusoidal', 'learned', 'rotary', 'relative' or 'none', got 'alibi'"),
        ("model.encoder_window=-1", "model.encoder_window must be greater than or equal to 0, got -1"),
        ("model.preset=huge", "model.preset must be 'tiny', 'small',"),
        ("model.preset=[1]", "model.preset must be 'tiny', 'small',"),
        ("model.dropout=1.0", "model.dropout must be less than 1, got 1.0"),
        ("model.dropout=0.999999", "dropout must be 0 or from 1/65536 to 65535/65536, got 0.999999"),
        ("model.dropout=1e-5", "dropout must be 0 or from 1/65536 to 65535/65536, got 1e-05"),
        ("model.max_positions=32769", "model.max_positions must be 1 to 32,768, got 32769"),
        (
            'data.source_language="English (US)"',
            "data.source_language must be a BCP-47 language tag, got 'English (US)'",
        ),
        ("data.valid.repeat=2", "valid.repeat must be 1, because validation scores a pair once, got 2"),
        ("tokenizer.vocab_size=1048577", "tokenizer.vocab_size must be 1 to 1,048,576, got 1048577"),
        ("tokenizer.character_coverage=0.5", "tokenizer.character_coverage must be greater than or equal to 0.98"),
        ("training.seed=9223372036854775808", "training.seed must be less than 9223372036854775808, got"),
        ("training.valid_beam_size=0", "training.valid_beam_size must be 1 to 128, got 0"),
        ("tokenizer.joint=false", "model.tie = 'all' needs tokenizer.joint = true"),
        ("data.max_tokens=32", "data.max_tokens must be below model.max_positions (32), got 32"),
        ("data.train.0.file=x.tsv", "data.train.0: name either source and target, or file"),
        ('data.train=[{file = "x.csv"}]', "data.train.0: file must end in .tsv, .jsonl, .tmx, .parquet, all but"),
        ('data.train=[{file = "x.parquet.gz"}]', "also in one of them and .gz, .zst, .xz, .bz2, got '"),
        ('data.train=[{file = "x.tsv", scores = "y"}]', "scores must be left out: those of file are in score_column"),
        (
            "data.train.0.score_column=3",
            "score_column must be left out without a file of .tsv, .jsonl or .parquet, got 3",
        ),
        ("data.train.0.score_column=0", "data.train.0.score_column must be a name or a number from 1, got 0"),
        ('data.train=[{file = "x.tmx", target_column = "de"}]', "target_column must be left out without a file of"),
        ('data.train=[{file = "x.jsonl", score_column = 3}]', "score_column must be a name for .jsonl, got 3"),
        (
            'data.train=[{file = "x.tsv.xz", score_column = "score"}]',
            "columns must be all names or all numbers, got {'source_column': 1, 'target_column': 2, 'score_column': 's",
        ),
        ("data.train=[]", "data.train must not be empty"),
        ("data.valid=3", "data.valid must be a block of settings, got 3"),
        ("max_steps=5", "--set must be block.key=value, got 'max_steps=5'"),
        ("training.max_steps", "--set must be block.key=value, got 'training.max_steps'"),
        ("training..max_steps=3", "--set must be block.key=value, got"),
        ("data.train.source=x", "--set data.train.source=x: data.train is not a block of settings"),
        ("data.train.7.source=x", "--set data.train.7.source=x: data.train.7 is not a block of settings"),
        ("training.seed.x=1", "--set training.seed.x=1: training.seed is not a block of settings"),
    ],
)
def test_a_wrong_setting_is_one_line_that_names_key_bound_and_value(
    tmp_path: Path, override: str, message: str
) -> None:
    text = tiny_config_text(training={"seed": 1})
    with pytest.raises(SettingsError) as caught:
        load(tmp_path, text, [override])
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_model_of_several_languages_is_trained_on_a_pair_of_two(tmp_path: Path) -> None:
    sides = ['languages.sources=[{language="en"}]', 'languages.targets=[{language="de"},{language="en"}]']
    assert load(tmp_path, overrides=sides).data.target_language == "de"
    with pytest.raises(
        SettingsError, match=r"data\.target_language must differ from data\.source_language .* got 'en'"
    ):
        load(tmp_path, overrides=[*sides, "data.target_language=en"])


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        ([{"language": "de", "forced": ["</s>"]}], "languages: de must not force the end token"),
        ([{"language": "de"}, {"language": "DE"}], "languages.targets: two have the same language"),
        ([{"language": "en"}], "languages must have a pair of two different languages"),
        ([{"language": "de", "forced": ["none"]}], "languages: 'none' is no piece of the target vocabulary"),
    ],
)
def test_languages_that_a_bundle_could_not_have_are_refused_before_training(
    tokenizer: Tokenizer, targets: list[dict[str, object]], message: str
) -> None:
    settings = LanguageSettings.model_validate({"sources": [{"language": "en"}], "targets": targets})
    with pytest.raises(SettingsError, match=message):
        settings.resolve(tokenizer)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[data", "Expected ']'"),
        ("[model]\n", "data is missing"),
        ("[data]\nvalidd = 1", "unknown key data.validd; did you mean valid?"),
        ('[data]\ntarget_language = "it"', "data.source_language is missing"),
        ('[data]\nsource_language = "fr"', "data.target_language is missing"),
        ("data = 3", "data must be a block of settings"),
    ],
)
def test_a_wrong_file_is_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load(tmp_path, text)
    assert str(caught.value).startswith(f"{tmp_path / 'run.toml'}: ")
    assert message in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"absent\.toml: No such file"):
        load_config(tmp_path / "absent.toml")


def test_an_override_has_the_type_that_toml_gives_it(tmp_path: Path) -> None:
    overrides = ["training.max_steps=1200", "training.learning_rate=1e-3", "model.tie=decoder", "training.compile=true"]
    config = load(tmp_path, overrides=[*overrides, "data.train.0.repeat=2", 'data.source_language="fr"'])
    assert config.training.max_steps == 1200
    assert config.training.learning_rate == 0.001
    assert config.training.compile
    assert (config.model.tie, config.data.train[0].repeat, config.data.source_language) == ("decoder", 2, "fr")


def test_relative_paths_are_relative_to_the_folder_of_the_config(tmp_path: Path) -> None:
    text = tiny_config_text(tokenizer={"path": "words"})
    config = load(tmp_path, text, overrides=["data.valid.source=/elsewhere/v"])
    assert config.data.train[0].files() == [tmp_path / "train.source", tmp_path / "train.target"]
    assert (config.tokenizer.path, config.data.valid[0].source) == (tmp_path / "words", Path("/elsewhere/v"))


def test_only_a_transformer_reads_sources_without_an_end_token(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    for kind, refused in (("transformer", False), ("luong", True)):
        path.write_text(tiny_config_text(model={"kind": kind, "max_positions": 64}, tokenizer={"source_end": False}))
        if not refused:
            assert not load_config(path).tokenizer.source_end
            continue
        with pytest.raises(SettingsError, match=r"tokenizer\.source_end must be true for model.kind = 'luong'"):
            load_config(path)


def test_paths_of_overrides_are_relative_to_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    overrides = ["tokenizer.path=words", "data.train.0.source=t", 'data.valid={source = "v", target = "/elsewhere/v"}']
    config = load(tmp_path, overrides=overrides)
    assert config.tokenizer.path == here / "words"
    assert config.data.train[0].files() == [here / "t", tmp_path / "train.target"]
    assert config.data.valid[0].files() == [here / "v", Path("/elsewhere/v")]
    text = tiny_config_text(model={"kind": "luong", "max_positions": 32})
    config = load(tmp_path, text, ['data.train=[{file = "x.tsv"}]', "model.alignment=local-monotonic"])
    assert (config.data.train[0].file, config.model.alignment) == (here / "x.tsv", "local-monotonic")


def test_a_key_overrides_the_preset(tmp_path: Path) -> None:
    config = load(tmp_path, overrides=["model.preset=base", "model.decoder_layers=2"])
    assert (config.model.dim, config.model.encoder_layers, config.model.decoder_layers) == (512, 6, 2)


@pytest.mark.parametrize(("preset", "dim"), [("base", 512), ("big", 1024)])
def test_the_presets_of_the_paper_have_its_learning_rate(tmp_path: Path, preset: str, dim: int) -> None:
    """Vaswani et al. (2017), equation 3: dim ** -0.5 * min(step ** -0.5, step * warmup_steps ** -1.5)."""
    settings = load(tmp_path, preset_text(preset, max_steps=100_000)).training
    assert settings.warmup_steps == 4000
    for step in (1, 2500, 4000, 4001, 100_000):
        expected = dim**-0.5 * min(step**-0.5, step * 4000**-1.5)
        assert learning_rate(step, settings) == pytest.approx(expected, rel=1e-12)


def test_a_config_overrides_the_schedule_of_the_paper(tmp_path: Path) -> None:
    longer = load(tmp_path, preset_text("base", warmup_steps=16_000)).training
    assert longer.learning_rate == pytest.approx(paper_learning_rate(512, 4000) / 2)
    given = load(tmp_path, preset_text("big", learning_rate=2e-4)).training
    assert (given.learning_rate, given.warmup_steps) == (2e-4, 4000)
    narrow = load(tmp_path, preset_text("base"), ["model.dim=128"]).training
    assert narrow.learning_rate == pytest.approx(2 * paper_learning_rate(512, 4000))


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("model.dim=many", "model.dim must be a valid integer"),
        ("training.warmup_steps=0", "training.warmup_steps must be greater than or equal to 1, got 0"),
        ("training=3", "--set must be block.key=value"),
    ],
)
def test_a_wrong_value_beside_a_preset_of_the_paper_is_named(tmp_path: Path, override: str, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        load(tmp_path, preset_text("base"), [override])


@pytest.mark.parametrize("preset", ["tiny", "small", "deep-encoder"])
def test_other_presets_have_the_defaults_of_the_training_block(tmp_path: Path, preset: str) -> None:
    settings = load(tmp_path, preset_text(preset)).training
    assert (settings.learning_rate, settings.warmup_steps) == (1e-3, 1000)


def preset_text(preset: str, **training: float) -> str:
    """Return a config that sets nothing of the model but its preset, and only these keys of the training block."""
    lines = [f"{key} = {value}" for key, value in training.items()]
    corpora = '[data]\nsource_language = "en"\ntarget_language = "de"\n'
    corpora += '[[data.train]]\nfile = "train.tsv"\n[data.valid]\nfile = "valid.tsv"\n'
    return "\n".join([corpora, f'[model]\npreset = "{preset}"', "[training]", *lines, ""])


@pytest.mark.parametrize("preset", ["tiny", "base"])
def test_the_saved_settings_are_read_back_the_same(tmp_path: Path, preset: str) -> None:
    config = load(tmp_path, preset_text(preset))
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "config.json").write_text(config.model_dump_json())
    assert load_config(tmp_path / "elsewhere" / "config.json") == config


def test_the_shipped_configs_are_read_and_the_first_names_every_key() -> None:
    load_config(ROOT / "configs" / "en-fr.toml")
    path = ROOT / "configs" / "en-de.toml"
    config, text = load_config(path), path.read_text(encoding="utf-8")
    values = json.loads(config.model_dump_json())
    assert values.pop("origin") is None  # only an imported model has one
    assert values.pop("languages") is None  # only a model of several languages has them
    keys = {key for block in values.values() for key in block} - {"path"}
    assert [key for key in sorted(keys) if key not in text] == []


CONFIGS = sorted((ROOT / "configs" / "wmt14").glob("*.toml"))
WEIGHTS = {"base": 65e6, "big": 213e6}  # Vaswani et al. (2017), table 3
PAPER = {  # dropout, updates, checkpoints in the average: section 6.1 and table 3
    "en-de-base": (0.1, 100_000, 5),
    "en-de-big": (0.3, 300_000, 20),
    "en-fr-base": (0.1, 100_000, 5),
    "en-fr-big": (0.1, 300_000, 20),
}
TOKENS = 25_000  # source and target tokens of an update each, section 5.1
by_config = pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)


def test_every_pair_and_size_has_a_config() -> None:
    assert [path.stem for path in CONFIGS] == list(PAPER)


@by_config
def test_a_config_has_the_settings_of_the_paper(path: Path) -> None:
    config = load_config(path)
    training, model = config.training, config.model
    assert (model.dropout, training.max_steps, training.keep_checkpoints) == PAPER[path.stem]
    assert training.learning_rate == pytest.approx(paper_learning_rate(model.dim, training.warmup_steps))
    assert (training.warmup_steps, training.label_smoothing) == (4000, 0.1)
    assert training.batch_tokens * training.accumulate == TOKENS
    assert (model.norm, model.positions, model.tie, model.activation) == ("post", "sinusoidal", "all", "relu")


@by_config
def test_a_model_has_as_many_weights_as_in_the_paper(path: Path) -> None:
    config = load_config(path)
    vocab = config.tokenizer.vocab_size
    with torch.device("meta"):  # shapes without memory
        model = build_model(config.model, vocab, vocab)
    weights = sum(weight.numel() for weight in model.parameters())
    expected = WEIGHTS[path.stem.rpartition("-")[2]]
    # The paper gives the sizes of English to German. 5,000 pieces fewer are 2.6 and 5.1 million weights fewer.
    fewer = (37_000 - vocab) * config.model.dim
    assert weights == pytest.approx(expected - fewer, rel=0.035)


@by_config
def test_a_run_starts_on_a_small_extract(path: Path, tmp_path: Path) -> None:
    """With all layers and heads, and with the batches of 8 cards in an update; narrow, because a file is written."""
    files = []
    for block, count in (("train.0", 80), ("valid", 2)):
        for side, language in (("source", "en"), ("target", "de")):
            lines = islice(read_lines(ROOT / "tests" / "data" / f"tatoeba.{language}"), count)
            (tmp_path / f"{block}.{side}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
            files.append(f"data.{block}.{side}='{tmp_path / f'{block}.{side}'}'")
    small = ["model.dim=32", "model.heads=4", "model.ffn=32", "tokenizer.vocab_size=380", "training.batch_tokens=150"]
    steps = ["max_steps=2", "log_every=1", "device=cpu"]
    config = load_config(path, [*files, *small, *(f"training.{setting}" for setting in steps)])
    trainer = train(config, tmp_path / "run")
    assert trainer.progress.step == 2
    assert [line["learning_rate"] for line in log_of(tmp_path / "run", "train")] == [
        pytest.approx(step / 4000 * config.training.learning_rate) for step in (1, 2)
    ]
    assert [folder.name for folder in saved_steps(tmp_path / "run")] == ["step-00000002"]
