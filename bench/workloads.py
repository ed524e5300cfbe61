"""The workloads of the decode benchmark, and real sentences for them: a trained bundle with references."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lingon.bundle.store import Bundle, open_bundle
from lingon.errors import SettingsError
from lingon.files import read_parallel
from lingon.text import normalise


@dataclass(frozen=True, kw_only=True, slots=True)
class Workload:
    """Sentences to translate with one bundle.

    name: begins with "base" or "shipped", or is that of a published shape
    bundle: the folder of the bundle's version
    twin: of a bundle with the same outputs, for engines that cannot compute the first one; None if there is none
    sources: token ids, framed
    references: normalised target texts to score against, one for each source; empty if the weights are random
    language: of the references, for the tokens of BLEU
    exact_length: the number of target tokens of every output, if the workload prescribes it
    target_ratio: the number of target tokens for each source token of a sentence, if the workload prescribes it
    left_out: number of sentences that were longer than the model reads
    facts: properties of the workload by name, printed with the table
    """

    name: str
    bundle: Path
    sources: tuple[tuple[int, ...], ...]
    twin: Path | None = None
    references: tuple[str, ...] = ()
    language: str = ""
    exact_length: int | None = None
    target_ratio: float | None = None
    left_out: int = 0
    facts: dict[str, float] = field(default_factory=dict)


FOLDER = Path(__file__).resolve().parents[1] / "tests" / "data"


def sample_file(language: str, folder: Path = FOLDER) -> Path:
    """Return the file with the sample sentences of a language. Line N is a translation of line N of the others.

    Raise SettingsError if the file does not exist: an installed package has no sample sentences.
    """
    path = folder / f"tatoeba.{language}"
    if not path.is_file():
        raise SettingsError(
            f"{path}: no sample sentences here, they are in a clone of the repository; pass --data FOLDER"
        )
    return path


TEST_SETS = ("tatoeba", "ntrex")


def shipped_workloads(
    bundles: Sequence[Path], data: Path | None = None, sentences: int = 512, test_sets: Sequence[str] = ()
) -> list[Workload]:
    """Return a workload for each bundle and test set: "shipped tatoeba", or "shipped en-de tatoeba" of several bundles.

    data: a folder with SET.SOURCE-TARGET.PART.LANGUAGE, plain or .gz; by default the sample sentences of the
        repository, which are from tatoeba
    sentences: of each set, taken at regular intervals. Sentences longer than the model reads are left out and counted
    test_sets: SET or SET.PART, by default TEST_SETS; the part is test if none is given
    """
    if sentences < 1:
        raise SettingsError(f"--sentences must be at least 1, got {sentences}")
    if test_sets and data is None:
        raise SettingsError(f"--test-set {test_sets[0]} needs --data FOLDER, which has its files")
    opened = [open_bundle(bundle) for bundle in bundles]
    named = [bundle.manifest.name for bundle in opened]
    if twice := [name for name in named if named.count(name) > 1]:
        raise SettingsError(f"--model must be given bundles of different names, got {twice[0]} twice")
    return [
        _workload(
            " ".join(["shipped", *([bundle.manifest.name] if len(opened) > 1 else []), name]), bundle, files, sentences
        )
        for bundle in opened
        for name, files in set_files(bundle, data, test_sets or TEST_SETS).items()
    ]


def set_files(bundle: Bundle, data: Path | None, test_sets: Sequence[str]) -> dict[str, list[Path]]:
    """Return the source and the reference file of each test set.

    data: as in `shipped_workloads`; without it there is one set, whatever is asked for
    """
    languages = (bundle.manifest.source_language, bundle.manifest.target_language)
    if data is None:
        return {"tatoeba": [sample_file(language) for language in languages]}
    found = {}
    for name in test_sets:
        corpus, _, part = name.partition(".")
        prefix = f"{corpus}.{'-'.join(languages)}.{part or 'test'}"
        found[name] = [_existing(data, f"{prefix}.{language}") for language in languages]
    return found


def _existing(folder: Path, name: str) -> Path:
    for path in (folder / name, folder / f"{name}.gz"):
        if path.is_file():
            return path
    raise SettingsError(f"--data {folder}: has neither {name} nor {name}.gz")


def _workload(name: str, bundle: Bundle, files: list[Path], sentences: int) -> Workload:
    tokenizer, longest = bundle.tokenizer(), bundle.manifest.limits.max_source_tokens
    pairs = [(normalise(source), normalise(target)) for source, target in read_parallel(*files)]
    pairs = pairs[:: max(len(pairs) // sentences, 1)][:sentences]  # A set may be sorted, so take from all of it.
    tokenised = [(tuple(tokenizer.encode_source(source)), target) for source, target in pairs]
    taken = [(source, target) for source, target in tokenised if len(source) <= longest]
    if not taken:
        raise SettingsError(f"{files[0]}: no sentence has at most {longest} tokens, the limit of {bundle.label}")
    return Workload(
        name=name,
        bundle=bundle.folder,
        sources=tuple(source for source, _ in taken),
        references=tuple(target for _, target in taken),
        language=bundle.manifest.target_language,
        left_out=len(tokenised) - len(taken),
        facts={"source tokens, mean": round(sum(len(source) for source, _ in taken) / len(taken), 1)},
    )
