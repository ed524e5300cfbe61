"""What is compared: the systems, the corpora, the budget of a training, and the sizes of a trial run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lingon.bench.workloads.sample_corpus import corpus_files, corpus_overrides
from lingon.errors import SettingsError

PAIR = "en-de"
ALIGNED = f"align-europarl.{PAIR}"
"""The pairs with word alignments that people made."""

TRAIN, VALID = "train", "valid"


@dataclass(frozen=True, slots=True)
class System:
    """One of the systems.

    config: name of a file in the folder of configs, without suffix
    changes: settings that differ from the file
    tiny: sizes of [model] in a trial run
    """

    name: str
    config: str
    tiny: Mapping[str, int]
    changes: tuple[str, ...] = ()


_RECURRENT = {"embedding_dim": 16, "dim": 16, "layers": 1}
_TRANSFORMER = {"dim": 16, "heads": 2, "ffn": 16, "encoder_layers": 1, "decoder_layers": 1}


def _transformer(variant: str = "") -> System:
    name = f"transformer{variant}"
    return System(name, name, _TRANSFORMER)


SYSTEMS = (
    System("rnnenc", "rnnenc", _RECURRENT),
    System("rnnsearch", "rnnsearch", {"embedding_dim": 16, "dim": 16, "encoder_dim": 8, "attention_dim": 8}),
    System("luong-global", "luong-global", _RECURRENT),
    System("luong-local", "luong-local", _RECURRENT),
    System("luong-monotonic", "luong-local", _RECURRENT, ('model.alignment="local-monotonic"',)),
    _transformer(),
    *(_transformer(variant) for variant in ("-window", "-additive", "-rotary", "-linear")),
)
"""All systems, the oldest first. luong-local predicts the centre of its window, luong-monotonic moves it by one."""

OF_LENGTH = ("rnnenc", "rnnsearch", "transformer")
"""The systems that are compared by the length of the source."""


@dataclass(frozen=True, slots=True)
class Corpus:
    """A corpus to train on, with its test set.

    max_tokens: tokens of a training pair on each side at most
    """

    name: str
    test_set: str
    max_tokens: int = 80

    @property
    def prefix(self) -> str:
        """What the names of its files begin with."""
        return f"{self.name}.{PAIR}"

    def files(self, folder: Path, part: str) -> tuple[Path, Path]:
        """Source and target file of a part."""
        return corpus_files(folder, self.prefix, part)


CORPORA = (Corpus("multi30k", "test2016"), Corpus("tatoeba", "test"))


@dataclass(frozen=True, kw_only=True, slots=True)
class Budget:
    """What every training gets, and how much is measured.

    All systems have the same tokenizer, batches and steps on a corpus, so that all train on the same target tokens.
    """

    steps: int = 1200  # updates
    batch_tokens: int = 2000  # padded tokens of an update, on each side
    vocab_size: int = 4000  # pieces; the 10,000 of the configs need more text than a small budget has
    parity_sentences: int = 200  # of the gate of the export
    timed_sentences: int = 256  # test sentences whose decoding is timed
    rounds: int = 5  # of the timing; each has all systems in turns
    tiny: bool = False  # tiny models
    longest: tuple[int, ...] = (15, 30)  # source words of the longest training texts of BLEU by length

    def __post_init__(self) -> None:
        if self.steps < 10:
            raise SettingsError(f"--steps must be at least 10, got {self.steps}")

    @classmethod
    def quick(cls) -> Budget:
        """A trial of about a second a system."""
        return cls(
            steps=12,
            batch_tokens=1000,
            vocab_size=400,
            parity_sentences=4,
            timed_sentences=4,
            rounds=1,
            tiny=True,
            longest=(15,),
        )

    def overrides(self, corpus: Corpus, data: Path, device: str) -> list[str]:
        """The settings of a training on a corpus below data that differ from the config.

        The parts of the learning rate's schedule are those of the configs: 1/10 warm-up, 3/10 cool-down.
        """
        numbers = {
            "data.max_tokens": corpus.max_tokens,
            "model.max_positions": max(128, corpus.max_tokens + 32),
            "tokenizer.vocab_size": self.vocab_size,
            "training.batch_tokens": self.batch_tokens,
            "training.max_steps": self.steps,
            "training.warmup_steps": self.steps // 10,
            "training.cooldown_steps": 3 * self.steps // 10,
            "training.valid_every": self.steps if self.tiny else -(-self.steps // 3),
            "training.valid_sentences": 200,
            "training.log_every": min(25, self.steps // 3),
        }
        settings = [f"{key}={value}" for key, value in numbers.items()]
        return [*corpus_overrides(data, corpus.prefix), *settings, f'training.device="{device}"']


def selected(names: list[str] | None, known: tuple[str, ...], option: str) -> tuple[str, ...]:
    """The selected names in the order of `known`; all without a selection. Raises SettingsError for another name."""
    if unknown := [name for name in names or () if name not in known]:
        raise SettingsError(f"{option} must be one of {', '.join(known)}, got {unknown[0]!r}")
    return tuple(name for name in known if not names or name in names)
