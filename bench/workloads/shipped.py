"""Workload "shipped": a trained bundle on real sentences with their real mix of lengths, and with references."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from lingon.bench.workloads.sample_sentences import sample_file
from lingon.bench.workloads.workload import Workload
from lingon.bundle import Bundle, open_bundle
from lingon.errors import SettingsError
from lingon.lines import read_parallel
from lingon.text import normalise

TEST_SETS = ("tatoeba", "ntrex")


def shipped_workloads(
    bundles: Sequence[Path],
    data: Path | None = None,
    sentences: int = 512,
    test_sets: Sequence[str] = (),
) -> list[Workload]:
    """One workload for each bundle and test set: "shipped tatoeba", with several bundles "shipped en-de tatoeba".

    data: a folder with SET.SOURCE-TARGET.PART.LANGUAGE, plain or .gz; by default the sample sentences of the
        repository, which are from tatoeba
    sentences: how many of each set, taken at regular intervals; those longer than the model reads are left out and
        counted
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
        for name, files in _files(bundle, data, test_sets or TEST_SETS).items()
    ]


def _files(bundle: Bundle, data: Path | None, test_sets: Sequence[str]) -> dict[str, list[Path]]:
    """Source and reference file of each test set."""
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
