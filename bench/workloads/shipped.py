"""Work "shipped": a trained bundle on real sentences in their real mix of lengths, with references to score against."""

from __future__ import annotations

from pathlib import Path

from lingon.bench.workloads.workload import Work
from lingon.bundle import Bundle, open_bundle
from lingon.errors import SettingsError
from lingon.lines import read_parallel
from lingon.text import Tokenizer, normalise

SETS = ("tatoeba", "ntrex")
OWN = Path(__file__).resolve().parents[2] / "tests" / "data"


def shipped_works(bundle: Path, data: Path | None = None, sentences: int = 512) -> list[Work]:
    """One work of each test set: "shipped tatoeba" and "shipped ntrex".

    data: a folder with SET.SOURCE-TARGET.test.LANGUAGE, plain or .gz; without it, the sentences of the project's own
        tests, which are of tatoeba
    sentences: of each set, from all over it; those longer than the model reads are left out, and counted
    """
    if sentences < 1:
        raise SettingsError(f"--sentences must be at least 1, got {sentences}")
    found = open_bundle(bundle)
    languages = (found.manifest.source_language, found.manifest.target_language)
    if data is None:
        return [_work("tatoeba", found, [_present(OWN, f"tatoeba.{language}") for language in languages], sentences)]
    return [
        _work(
            name, found, [_present(data, f"{name}.{'-'.join(languages)}.test.{each}") for each in languages], sentences
        )
        for name in SETS
    ]


def _present(folder: Path, name: str) -> Path:
    for path in (folder / name, folder / f"{name}.gz"):
        if path.is_file():
            return path
    raise SettingsError(f"--data {folder}: has neither {name} nor {name}.gz")


def _work(name: str, bundle: Bundle, files: list[Path], sentences: int) -> Work:
    tokenizer, longest = Tokenizer(*bundle.tokenizer_files()), bundle.manifest.limits.max_source_tokens
    pairs = [(normalise(source), normalise(target)) for source, target in read_parallel(*files)]
    pairs = pairs[:: max(len(pairs) // sentences, 1)][:sentences]  # a set may be sorted
    tokenised = [(tuple(tokenizer.encode_source(source)), target) for source, target in pairs]
    taken = [(source, target) for source, target in tokenised if len(source) <= longest]
    if not taken:
        raise SettingsError(f"{files[0]}: no sentence has at most {longest} tokens, which is what {bundle.label} reads")
    return Work(
        name=f"shipped {name}",
        bundle=bundle.folder,
        sources=tuple(source for source, _ in taken),
        references=tuple(target for _, target in taken),
        left_out=len(tokenised) - len(taken),
        facts={"source tokens, mean": round(sum(len(source) for source, _ in taken) / len(taken), 1)},
    )
