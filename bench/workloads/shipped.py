"""Workload "shipped": a trained bundle on real sentences with their real mix of lengths, and with references."""

from __future__ import annotations

from pathlib import Path

from lingon.bench.workloads.sample_sentences import sample_file
from lingon.bench.workloads.workload import Workload
from lingon.bundle import Bundle, open_bundle
from lingon.errors import SettingsError
from lingon.lines import read_parallel
from lingon.text import Tokenizer, normalise

TEST_SETS = ("tatoeba", "ntrex")


def shipped_workloads(bundle: Path, data: Path | None = None, sentences: int = 512) -> list[Workload]:
    """One workload for each test set: "shipped tatoeba" and "shipped ntrex".

    data: a folder with SET.SOURCE-TARGET.test.LANGUAGE, plain or .gz; by default the sample sentences of the
        repository, which are from tatoeba
    sentences: how many of each set, taken at regular intervals; those longer than the model reads are left out and
        counted
    """
    if sentences < 1:
        raise SettingsError(f"--sentences must be at least 1, got {sentences}")
    opened = open_bundle(bundle)
    languages = (opened.manifest.source_language, opened.manifest.target_language)
    if data is None:
        return [_workload("tatoeba", opened, [sample_file(language) for language in languages], sentences)]
    direction = "-".join(languages)
    files = {name: [_existing(data, f"{name}.{direction}.test.{each}") for each in languages] for name in TEST_SETS}
    return [_workload(name, opened, paths, sentences) for name, paths in files.items()]


def _existing(folder: Path, name: str) -> Path:
    for path in (folder / name, folder / f"{name}.gz"):
        if path.is_file():
            return path
    raise SettingsError(f"--data {folder}: has neither {name} nor {name}.gz")


def _workload(name: str, bundle: Bundle, files: list[Path], sentences: int) -> Workload:
    tokenizer, longest = Tokenizer(*bundle.tokenizer_files()), bundle.manifest.limits.max_source_tokens
    pairs = [(normalise(source), normalise(target)) for source, target in read_parallel(*files)]
    pairs = pairs[:: max(len(pairs) // sentences, 1)][:sentences]  # A set may be sorted, so take from all of it.
    tokenised = [(tuple(tokenizer.encode_source(source)), target) for source, target in pairs]
    taken = [(source, target) for source, target in tokenised if len(source) <= longest]
    if not taken:
        raise SettingsError(f"{files[0]}: no sentence has at most {longest} tokens, the limit of {bundle.label}")
    return Workload(
        name=f"shipped {name}",
        bundle=bundle.folder,
        sources=tuple(source for source, _ in taken),
        references=tuple(target for _, target in taken),
        left_out=len(tokenised) - len(taken),
        facts={"source tokens, mean": round(sum(len(source) for source, _ in taken) / len(taken), 1)},
    )
