from __future__ import annotations

import json
import resource
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from lingon.errors import CheckpointError
from lingon.text import Tokenizer
from lingon.training import checkpoint as files
from lingon.training.checkpoint import (
    TrainingProgress,
    average_checkpoints,
    load_checkpoint,
    load_weights,
    round_to_half,
    save_checkpoint,
)
from lingon.training.config import TokenizerSettings
from lingon.training.corpus import Pair
from lingon.training.models.transformer import Transformer
from lingon.training.tokenizer import train_tokenizer
from tests.support.training_runs import same, write_config


@pytest.fixture
def save(corpus: Path, tokenizer: Tokenizer) -> Callable[..., Transformer]:
    config = write_config(corpus)

    def save(
        folder: Path,
        seed: int = 0,
        progress: TrainingProgress | None = None,
        words: Tokenizer = tokenizer,
        **settings: object,
    ) -> Transformer:
        torch.manual_seed(seed)
        shaped = config.model_copy(update={"model": config.model.model_copy(update=settings)})
        model = Transformer(shaped.model, words.source_vocab, words.target_vocab)
        save_checkpoint(folder, shaped, words, model, progress or TrainingProgress(step=seed))
        return model

    return save


def test_a_checkpoint_is_read_back_as_it_was_saved(tmp_path: Path, save: Callable[..., Transformer]) -> None:
    progress = TrainingProgress(
        step=7, epoch=2, batch=3, best_bleu=12.5, best_chrf=40.5, best_loss=2.5, stale=1, seconds=1.5
    )
    model = save(tmp_path / "c", 3, progress)
    loaded = load_checkpoint(tmp_path / "c")
    assert same(loaded.model.state_dict(), model.state_dict())
    assert loaded.progress == progress
    assert loaded.config == write_config(tmp_path)
    assert not loaded.model.training


@pytest.mark.parametrize(
    ("bleu", "chrf", "loss", "better"),
    [
        (12.6, 0.0, 9.0, True),
        (12.4, 99.0, 0.1, False),
        (12.5, 40.6, 9.0, True),
        (12.5, 40.4, 0.1, False),
        (12.5, 40.5, 2.4, True),
        (12.5, 40.5, 2.49999, False),
        (12.5, 40.5, 2.5, False),
        (12.5, 40.5, 2.6, False),
    ],
)
def test_validations_are_compared_by_bleu_then_chrf_then_loss(
    bleu: float, chrf: float, loss: float, better: bool
) -> None:
    best = TrainingProgress(best_bleu=12.5, best_chrf=40.5, best_loss=2.5)
    assert best.is_better(bleu, chrf, loss) == better
    assert TrainingProgress().is_better(0.0, 0.0, loss), "the first validation is the best one so far"


def test_a_tied_weight_is_stored_once(tmp_path: Path, save: Callable[..., Transformer]) -> None:
    model = save(tmp_path / "c")
    stored = (tmp_path / "c" / files.MODEL).stat().st_size
    weights = sum(weight.numel() for weight in model.parameters())
    assert stored < 4 * weights + 10_000
    loaded = load_checkpoint(tmp_path / "c").model
    assert loaded.output.weight is loaded.source_embedding.pieces.weight


def test_a_run_loads_its_best_checkpoint_or_without_validation_its_last(
    tmp_path: Path, save: Callable[..., Transformer]
) -> None:
    for step in (5, 10, 15):
        save(files.step_folder(tmp_path / "run", step), step)
    assert load_checkpoint(tmp_path / "run").progress.step == 15
    files.mark_best(tmp_path / "run", files.step_folder(tmp_path / "run", 10), {"bleu": 3.0})
    assert load_checkpoint(tmp_path / "run").progress.step == 10


def test_old_checkpoints_are_removed_but_not_the_best(tmp_path: Path, save: Callable[..., Transformer]) -> None:
    for step in range(1, 6):
        save(files.step_folder(tmp_path, step), step, TrainingProgress(step=step, validated=step))
    files.mark_best(tmp_path, files.step_folder(tmp_path, 2), {})
    files.remove_old_checkpoints(tmp_path, keep=2)
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == [
        f"step-{step:08d}" for step in (2, 4, 5)
    ]


def test_a_checkpoint_is_never_overwritten(tmp_path: Path, save: Callable[..., Transformer]) -> None:
    save(tmp_path / "c", 1)
    with pytest.raises(CheckpointError, match=r"cannot write .*c: .* exists already"):
        save(tmp_path / "c", 2)
    assert load_checkpoint(tmp_path / "c").progress.step == 1


def test_a_full_disk_is_one_line_and_leaves_nothing(tmp_path: Path, save: Callable[..., Transformer]) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        with pytest.raises(CheckpointError) as caught:
            save(tmp_path / "run" / "c")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert str(caught.value).startswith(f"cannot write {tmp_path / 'run' / 'c'}: ")
    assert "\n" not in str(caught.value)
    assert list((tmp_path / "run").iterdir()) == []


def test_a_failure_half_way_leaves_nothing(tmp_path: Path, save: Callable[..., Transformer]) -> None:
    unwritable = TrainingProgress(step=object())  # type: ignore[arg-type]  # the last file cannot be written
    with pytest.raises(TypeError):
        save(tmp_path / "run" / "c", 1, unwritable)
    assert list((tmp_path / "run").iterdir()) == []


@pytest.mark.parametrize("name", [files.CONFIG, files.STATE, files.MODEL, "tokenizer.model"])
@pytest.mark.parametrize("harm", ["missing", "cut", "nonsense"])
def test_a_damaged_checkpoint_is_an_error_of_one_line_with_the_folder(
    tmp_path: Path, save: Callable[..., Transformer], name: str, harm: str
) -> None:
    save(tmp_path / "c")
    path = tmp_path / "c" / name
    content = path.read_bytes()
    path.unlink()
    if harm != "missing":
        path.write_bytes(content[: len(content) // 2] if harm == "cut" else b'{"step": 1, "nonsense": 2}')
    with pytest.raises(CheckpointError) as caught:
        load_checkpoint(tmp_path / "c")
    assert str(tmp_path / "c") in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"step": "1"}, "step must be of type int, got '1'"),
        ({"seconds": None}, "seconds must be a finite number, got None"),
        ({"nonsense": 1}, "nonsense is not a field"),
    ],
)
def test_a_progress_file_of_wrong_types_is_an_error_with_the_field(
    tmp_path: Path, save: Callable[..., Transformer], state: dict[str, object], message: str
) -> None:
    save(tmp_path / "c")
    path = tmp_path / "c" / files.STATE
    path.write_text(json.dumps({**json.loads(path.read_text()), **state}))
    with pytest.raises(CheckpointError) as caught:
        load_checkpoint(tmp_path / "c")
    assert str(caught.value) == f"{path}: {message}"


@pytest.mark.parametrize("best", ["{}", '{"checkpoint": 7}', '{"checkpoint": "step-00000009"}'])
def test_a_best_mark_without_its_checkpoint_is_an_error(
    tmp_path: Path, save: Callable[..., Transformer], best: str
) -> None:
    save(files.step_folder(tmp_path, 5))
    (tmp_path / files.BEST).write_text(best)
    with pytest.raises(CheckpointError, match=r"best\.json: must name a checkpoint of this run, got "):
        load_checkpoint(tmp_path)


def test_no_checkpoint_at_all_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="neither a checkpoint"):
        load_checkpoint(tmp_path)


@pytest.mark.parametrize(
    ("settings", "change"),
    [
        ({"heads": 4}, "model.heads: 2 -> 4"),
        ({"activation": "gelu"}, "model.activation: relu -> gelu"),
        ({"norm": "post"}, "model.norm: pre -> post"),
        ({"dim": 64}, "model.dim: 32 -> 64"),
        ({"tie": "decoder"}, "model.tie: all -> decoder"),
        ({"positions": "learned", "max_positions": 40}, "model.positions: sinusoidal -> learned"),
    ],
)
def test_weights_of_another_model_are_neither_loaded_nor_averaged(
    tmp_path: Path, save: Callable[..., Transformer], settings: dict[str, object], change: str
) -> None:
    """Heads, activation and norm do not change the shapes of weights."""
    save(tmp_path / "c")
    other = save(tmp_path / "d", **settings)
    with pytest.raises(CheckpointError, match=rf"c was trained with another model \({change}\)"):
        load_weights(other, tmp_path / "c")
    with pytest.raises(CheckpointError, match=rf"c and .*d are of different models \({change}\)"):
        average_checkpoints([tmp_path / "c", tmp_path / "d"])


def test_settings_that_do_not_affect_weights_may_differ(tmp_path: Path, save: Callable[..., Transformer]) -> None:
    first = save(tmp_path / "c")
    second = save(tmp_path / "d", 1, preset="small", dropout=0.5, max_positions=100)
    average_checkpoints([tmp_path / "c", tmp_path / "d"])
    load_weights(second, tmp_path / "c")
    assert torch.equal(first.output.weight, second.output.weight)


def test_weights_that_do_not_fit_their_settings_are_rejected(tmp_path: Path, save: Callable[..., Transformer]) -> None:
    for folder, settings in (("c", {}), ("wide", {"dim": 64}), ("flat", {"encoder_layers": 1})):
        save(tmp_path / folder, **settings)
    for folder, message in (
        ("wide", r"source_embedding.* has shape \(280, 64\), the model expects \(280, 32\)"),
        ("flat", r"missing weights: encoder\.1\..* and 9 more; unexpected weights: none"),
    ):
        (tmp_path / "c" / files.MODEL).write_bytes((tmp_path / folder / files.MODEL).read_bytes())
        with pytest.raises(CheckpointError, match=message):
            load_checkpoint(tmp_path / "c")


def test_an_average_is_the_mean_of_every_weight(tmp_path: Path, save: Callable[..., Transformer]) -> None:
    models = [save(tmp_path / str(seed), seed) for seed in range(3)]
    averaged = average_checkpoints([tmp_path / str(seed) for seed in range(3)])
    states = [model.state_dict() for model in models]
    mean = {name: torch.stack([state[name] for state in states]).double().mean(0).float() for name in states[0]}
    assert same(averaged.model.state_dict(), mean)
    assert averaged.progress.step == 2


def test_an_average_of_no_checkpoints_or_of_different_tokenizers_is_rejected(
    tmp_path: Path, save: Callable[..., Transformer]
) -> None:
    texts = ("a b c", "x y z")
    for text in texts:
        words = train_tokenizer([Pair(text, text[::-1])] * 9, TokenizerSettings(vocab_size=264))
        save(tmp_path / text[0], words=words)
    with pytest.raises(CheckpointError, match=r"no checkpoint to average$"):
        average_checkpoints([])
    with pytest.raises(CheckpointError, match=r"a and .*x have different tokenizers"):
        average_checkpoints([tmp_path / text[0] for text in texts])


def test_rounded_weights_are_exact_in_fp16(tmp_path: Path, save: Callable[..., Transformer]) -> None:
    model = save(tmp_path / "c")
    before = {name: weight.clone() for name, weight in model.named_parameters()}
    round_to_half(model)
    for name, weight in model.named_parameters():
        assert torch.equal(weight, weight.half().float())
        assert torch.equal(weight, before[name].half().float())


def test_a_weight_beyond_the_range_of_fp16_is_rejected(tmp_path: Path, save: Callable[..., Transformer]) -> None:
    model = save(tmp_path / "c")
    with torch.no_grad():
        model.output.weight[0, 0] = 70_000.0
    with pytest.raises(CheckpointError, match="has a weight beyond the range of fp16"):
        round_to_half(model)


def test_a_checkpoint_holds_only_safetensors_json_and_the_tokenizer(
    tmp_path: Path, save: Callable[..., Transformer]
) -> None:
    save(tmp_path / "c")
    assert {path.name for path in (tmp_path / "c").iterdir()} == {
        "config.json",
        "state.json",
        "model.safetensors",
        "tokenizer.model",
    }
    assert json.loads((tmp_path / "c" / "state.json").read_text())["step"] == 0


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_weight_that_is_not_finite_spoils_no_average(
    tmp_path: Path, save: Callable[..., Transformer], value: float
) -> None:
    model = save(tmp_path / "whole")
    first, weight = next(model.named_parameters())
    weight.data.view(-1)[0] = value
    whole = load_checkpoint(tmp_path / "whole")
    save_checkpoint(tmp_path / "broken", whole.config, whole.tokenizer, model, whole.progress)
    for order in (["whole", "broken"], ["broken", "whole"]):
        with pytest.raises(CheckpointError, match=f"^{tmp_path}/broken: {first} is not finite$"):
            average_checkpoints([tmp_path / name for name in order])


def test_every_file_of_a_checkpoint_has_the_mode_that_new_files_have(
    tmp_path: Path, save: Callable[..., Transformer]
) -> None:
    save(tmp_path / "saved")
    (tmp_path / "new").touch()
    expected = (tmp_path / "new").stat().st_mode
    assert {
        path.name: path.stat().st_mode for path in (tmp_path / "saved").iterdir() if path.stat().st_mode != expected
    } == {}
