"""The preparation of a corpus: what it keeps, that it always has the same bytes, and how it ends and goes on."""

from __future__ import annotations

import gzip
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lingon.errors import CorpusError, Interrupted, SettingsError
from lingon.files import lock_path
from lingon.text import Tokenizer
from lingon.training import prepare as module
from lingon.training.config import MANIFEST, Config, load_config
from lingon.training.prepare import prepare, training_pairs
from lingon.training.prepared import ROWS, PreparedCorpus
from tests.support.corpora import Lines, pairs_of, text_config, write_tsv
from tests.support.repository import ROOT
from tests.support.training_runs import one_thread, prepare_command

Pairs = list[tuple[str, str]]


def random_pairs(count: int, seed: int, words: int = 30) -> Pairs:
    """Return pairs of few different words, so that some are equal, some empty and some of unlike lengths."""
    draw = random.Random(seed)

    def text(most: int) -> str:
        return " ".join(f"w{draw.randrange(words)}" for _ in range(draw.randrange(most)))

    return [(text(4), text(4) if draw.random() < 0.9 else text(40)) for _ in range(count)]


def contents(folder: Path) -> dict[str, bytes]:
    """Return the bytes of all files of a folder, by their paths in it."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def learning(folder: Path, *corpora: Lines, **blocks: Any) -> Config:
    """Return the settings of a corpus that learns its tokenizer."""
    return text_config(folder, *corpora, **{"tokenizer": {"vocab_size": 280}, **blocks})


def test_a_corpus_of_one_shard_needs_no_other_process(tmp_path: Path, tokenizer: Tokenizer) -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    prepare(text_config(tmp_path, [("a", "b"), ("c", "d")]), tmp_path / "corpus", tokenizer, workers=2)
    assert resource.getrusage(resource.RUSAGE_CHILDREN) == before


# What is kept.


def naive(corpora: list[Pairs], held_out: frozenset[str] = frozenset(), ratio: float = 3.0) -> list[Pairs]:
    """Return the pairs of each corpus that stay."""
    seen, kept = set[tuple[str, str]](), list[Pairs]()
    for pairs in corpora:
        kept.append([])
        for pair in pairs:
            shorter, longer = sorted(map(len, pair))
            if shorter and longer <= ratio * shorter + 25 and not held_out & {*pair} and pair not in seen:
                kept[-1].append(pair)
                seen.add(pair)
    return kept


@pytest.mark.parametrize(("rows", "part"), [(7, 16), (100, 64), (10_000, 2**21)])
def test_the_pairs_are_those_of_a_naive_filter_in_their_order(
    tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch, rows: int, part: int
) -> None:
    """Of equal pairs, the first in the order of the config stays, whatever the shards and the parts of the search."""
    monkeypatch.setattr(module, "PART", part)
    corpora = [random_pairs(200, seed, 6) for seed in range(3)]
    config = text_config(tmp_path, *corpora, data={"max_tokens": 1000})
    corpus = prepare(config, tmp_path / "corpus", tokenizer, workers=1, rows=rows)
    expected = naive(corpora)
    assert pairs_of(corpus) == [pair for kept in expected for pair in kept]
    assert [each.kept for each in corpus.manifest.corpora] == [*map(len, expected)]
    assert [each.read for each in corpus.manifest.corpora] == [200] * 3
    assert corpus.corpus_starts.tolist() == [0, *np.cumsum([*map(len, expected)])]
    assert corpus.counts.dropped["duplicate"] > 10


def test_duplicates_are_found_alike_in_many_parts_and_in_one() -> None:
    draw = np.random.default_rng(1)
    heads = draw.integers(0, 2**64, 300, np.uint64)
    keys = [(draw.choice(heads, 400), draw.integers(0, 3, 400).astype(np.uint64)) for _ in range(3)]
    together = sorted(module._repeated(keys, np.ones(1200, bool), 0, 0).tolist())
    for bits in (1, 3, 6):
        parts = [module._repeated(keys, np.ones(1200, bool), bits, part).tolist() for part in range(2**bits)]
        assert sum(map(bool, parts)) > 1
        assert sorted(row for part in parts for row in part) == together


def test_every_reason_has_its_count_and_its_first_examples(tmp_path: Path, tokenizer: Tokenizer) -> None:
    long = "a " * 300
    texts = [("a", "b"), ("", "b"), ("a", "b"), (long, long), *[("x", "y" * 40)] * 7, ("valid", "c")]
    config = text_config(tmp_path, texts)
    (tmp_path / "valid.tsv").write_text("valid\tother\n")
    (facts,) = prepare(config, tmp_path / "corpus", tokenizer, workers=1, rows=2).manifest.corpora
    assert facts.dropped == {"empty": 1, "ratio": 7, "held out": 1, "duplicate": 1, "length": 1}
    rows = {reason: [each.row for each in shown] for reason, shown in facts.examples.items()}
    assert rows == {"empty": [2], "ratio": [5, 6, 7, 8, 9], "held out": [12], "duplicate": [3], "length": [4]}
    assert facts.examples["ratio"][0].target == "y" * 40
    assert facts.examples["length"][0].source == f"{long[:200]}…"
    assert (facts.read, facts.kept) == (12, 1)


@pytest.mark.parametrize("form", ["tsv", "files"])
def test_no_side_of_a_pair_has_text_of_a_validation_set_or_of_data_held_out(
    tmp_path: Path, tokenizer: Tokenizer, form: str
) -> None:
    corpora = [random_pairs(300, seed, 5) for seed in range(2)]
    valid, test = [("w1", "w2 w3"), ("w2  w2", "w4"), ("", "w0 w0")], ["w3\u00a0w1", " w0 ", "", "none"]
    (tmp_path / "test.gz").write_bytes(gzip.compress("".join(f"{line}\n" for line in test).encode()))
    keys: dict[str, Path] = {"file": write_tsv(tmp_path / "v.tsv", valid)}
    if form == "files":
        keys = {"source": tmp_path / "v.source", "target": tmp_path / "v.target"}
        for path, lines in zip(keys.values(), zip(*valid, strict=True), strict=True):
            path.write_text("".join(f"{line}\n" for line in lines))
    more = {"valid": keys, "held_out": [tmp_path / "test.gz"], "max_tokens": 1000}
    corpus = prepare(text_config(tmp_path, *corpora, data=more), tmp_path / "corpus", tokenizer, workers=1, rows=50)
    held_out = frozenset(["w1", "w2 w3", "w2 w2", "w4", "w0 w0", "w3 w1", "w0"])
    assert pairs_of(corpus) == [pair for kept in naive(corpora, held_out) for pair in kept]
    assert corpus.counts.dropped["held out"] > 50


@pytest.mark.parametrize("count", [1, 7, 8, 9, 16, 17])
def test_a_corpus_may_have_any_number_of_lines(tmp_path: Path, tokenizer: Tokenizer, count: int) -> None:
    """Exactly the lines of a shard, one more, one line, and none in the corpora around it."""
    texts = [(f"{number}", f"{number}") for number in range(count)]
    config = text_config(tmp_path, [], texts, [], [("x", "y")])
    corpus = prepare(config, tmp_path / "corpus", tokenizer, workers=1, rows=8)
    assert pairs_of(corpus) == [*texts, ("x", "y")]
    assert [each.kept for each in corpus.manifest.corpora] == [0, count, 0, 1]
    assert len(corpus.manifest.shards) == -(-count // 8) + 1
    assert corpus.lengths.shape == (count + 1, 2)


def test_the_lines_of_a_shard_of_a_run_make_one_shard_and_one_more_makes_two(
    tmp_path: Path, tokenizer: Tokenizer
) -> None:
    for more, shards in ((0, [ROWS]), (1, [ROWS, 1])):
        texts = [(f"{number}", "1") for number in range(ROWS + more)]
        corpus = prepare(text_config(tmp_path, texts), tmp_path / str(more), tokenizer, workers=1)
        assert [shard.pairs for shard in corpus.manifest.shards] == shards


@pytest.mark.parametrize("texts", [[], [("", "")]])
def test_a_text_without_a_pair_is_refused_and_leaves_nothing_that_another_attempt_would_take(
    tmp_path: Path, tokenizer: Tokenizer, texts: Pairs
) -> None:
    folder, count = tmp_path / "corpus", len(texts)
    with pytest.raises(CorpusError, match=f"^no pair passes the filters of the training text: {count} pairs read, 0 k"):
        prepare(text_config(tmp_path, texts), folder, tokenizer)
    assert not contents(folder)
    assert len(prepare(text_config(tmp_path, [("a", "b")], data={"max_ratio": 2}), folder, tokenizer)) == 1


def test_pairs_that_are_all_too_long_leave_nothing_that_another_attempt_would_take(
    tmp_path: Path, tokenizer: Tokenizer
) -> None:
    texts, folder = [("1 2 3", "1 2 3"), ("4 5 6", "6")], tmp_path / "corpus"
    with pytest.raises(CorpusError, match=r"^no pair has at most data\.max_tokens = 3 tokens on each side; raise it$"):
        prepare(text_config(tmp_path, texts, data={"max_tokens": 3}), folder, tokenizer, rows=1)
    assert contents(folder).keys() == {"tokenizer.model"}
    assert len(prepare(text_config(tmp_path, texts), folder, tokenizer, rows=1)) == 2


def test_shards_without_a_pair_are_read_as_others(tmp_path: Path, tokenizer: Tokenizer) -> None:
    """All pairs of the first shard are dropped by a filter, of the second as duplicates, of the third by length."""
    texts = [
        ("", ""),
        ("x", ""),
        ("1", "1"),
        ("2", "2"),
        ("1", "1"),
        ("2", "2"),
        *[("1 " * 200, f"{n} " * 200) for n in (2, 3)],
    ]
    corpus = prepare(text_config(tmp_path, texts), tmp_path / "corpus", tokenizer, workers=1, rows=2)
    assert [shard.pairs for shard in corpus.manifest.shards] == [0, 2, 0, 0]
    assert pairs_of(corpus) == [("1", "1"), ("2", "2")]


def test_a_corpus_has_a_number_of_any_size() -> None:
    assert [module._corpus_of(module._shard_name(corpus, 12)) for corpus in (0, 999, 1000)] == [0, 999, 1000]


def test_a_wrong_line_of_a_later_shard_is_named_by_its_number_in_the_file(tmp_path: Path, tokenizer: Tokenizer) -> None:
    path = tmp_path / "text.tsv"
    path.write_bytes(b"a\tb\n" * 20 + b"\xff\tb\n")
    with pytest.raises(CorpusError, match=r"text.tsv:21: not UTF-8"):
        prepare(text_config(tmp_path, {"file": path}), tmp_path / "corpus", tokenizer, workers=1, rows=8)


def test_pairs_in_memory_are_those_of_the_corpus_without_validation_text_or_links_being_read(
    tmp_path: Path, tokenizer: Tokenizer
) -> None:
    texts = [(f"{number}", f"{number} 1") for number in range(100)]
    config = text_config(tmp_path, texts)
    assert [(pair.source, pair.target) for pair in training_pairs(config, tokenizer)] == texts
    some = training_pairs(config, tokenizer, most=10)
    assert len(some) == len({*some}) == 10
    assert [(pair.source, pair.target) for pair in some] == sorted(
        ((pair.source, pair.target) for pair in some), key=texts.index
    )
    guided = {**config.model_dump(), "training": {"guided_alignment": 1.0}}
    guided["data"]["train"][0]["alignment"] = tmp_path / "missing"
    assert len(training_pairs(Config.model_validate(guided), tokenizer)) == 100


# The same bytes.


@pytest.fixture(scope="module")
def disturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a config, its text, which becomes 30 shards of 50 lines, and its corpus, made undisturbed."""
    folder = tmp_path_factory.mktemp("disturbed")
    config = learning(folder, random_pairs(1000, 1), random_pairs(500, 2))
    text = [
        '[data]\nsource_language = "en"\ntarget_language = "de"\n',
        "[tokenizer]\nvocab_size = 280\n",
        '[[data.train]]\nfile = "train.0.tsv"\n\n[[data.train]]\nfile = "train.1.tsv"\n',
        '[data.valid]\nfile = "valid.tsv"\n',
    ]
    (folder / "config.toml").write_text("\n".join(text))
    prepare(config, folder / "reference", workers=1, rows=50)
    return folder


def expected(folder: Path) -> dict[str, bytes]:
    return contents(folder / "reference")


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_the_bytes_are_the_same_for_any_number_of_workers(disturbed: Path, tmp_path: Path, workers: int) -> None:
    assert len(PreparedCorpus(disturbed / "reference").manifest.shards) == 30
    made = prepare(load_config(disturbed / "config.toml"), tmp_path / "corpus", workers=workers, rows=50)
    assert contents(made.folder) == expected(disturbed)


def command(folder: Path, output: Path, workers: int = 2) -> list[str]:
    return prepare_command(folder / "config.toml", "--output", output, "--workers", workers, rows=50)


def start(folder: Path, output: Path, workers: int = 2, **options: Any) -> subprocess.Popen[str]:
    """Start `lingon prepare` in a process of its own."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "cwd": ROOT, "env": one_thread()}
    return subprocess.Popen(command(folder, output, workers), **{**pipes, **options})


def finish(folder: Path, output: Path) -> None:
    """Run the command to its end, and compare what it has made."""
    process = start(folder, output)
    out, errors = process.communicate(timeout=120)
    assert (process.returncode, "1,500 pairs read" in out) == (0, True), errors
    assert contents(output) == expected(folder)


def go_on(folder: Path, output: Path) -> None:
    """Go on in this process, and compare what is made. It takes a tenth of the time of the command."""
    prepare(load_config(folder / "config.toml"), output, workers=1, rows=50)
    assert contents(output) == expected(folder)


def descendants(parent: int) -> list[int]:
    """Return the processes that a process has started."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == parent:
            found += [int(stat.parent.name), *descendants(int(stat.parent.name))]
    return found


def alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def wait_until(ready: Callable[[], bool], process: subprocess.Popen[str] | None = None) -> None:
    """Wait until something is so, or the process has ended."""
    end = time.monotonic() + 120
    while not ready() and (process is None or process.poll() is None):
        assert time.monotonic() < end
        time.sleep(0.002)


def made_files(folder: Path) -> set[Path]:
    found = os.walk(folder)  # unlike rglob, it goes on if a folder is removed meanwhile
    return {Path(parent, name) for parent, folders, files in found for name in (*folders, *files) if name[0] != "."}


@pytest.mark.no_cover
def test_killed_at_any_moment_it_goes_on_to_the_same_bytes_and_leaves_no_process(
    disturbed: Path, tmp_path: Path
) -> None:
    output, draw, ended = tmp_path / "corpus", random.Random(7), 0
    for more in draw.sample(range(12), 12):  # every number of files once
        before = made_files(output)
        process = start(disturbed, output)
        wait_until(lambda before=before, more=more: len(made_files(output) - before) >= more, process)  # type: ignore[misc]
        time.sleep(draw.random() * 0.05)
        children = descendants(process.pid)
        process.kill()
        process.communicate()
        wait_until(lambda children=children: not any(map(alive, children)))  # type: ignore[misc]
        if (output / MANIFEST).exists():
            ended += 1
            finish(disturbed, output)
            shutil.rmtree(output)
    finish(disturbed, output)
    assert ended < 6, "most rounds must be disturbed"


@pytest.mark.parametrize(("number", "group"), [(signal.SIGINT, True), (signal.SIGTERM, False)])
def test_a_signal_ends_it_with_its_code_and_one_line_and_the_same_command_goes_on(
    disturbed: Path, tmp_path: Path, number: signal.Signals, group: bool
) -> None:
    """A terminal and a supervisor send the signal to all processes of the command."""
    output = tmp_path / "corpus"
    process = start(disturbed, output, start_new_session=True)
    wait_until(lambda: any((output / ".work").glob("*.arrow")), process)
    os.killpg(process.pid, number) if group else process.send_signal(number)
    out, errors = process.communicate(timeout=120)
    assert (process.returncode, out) == (128 + number, "")
    assert [line for line in errors.splitlines() if not line.endswith(" pairs/s")] == [
        "stops and saves after the blocks in hand; a second signal ends it at once",
        "lingon: stopped while the corpus was prepared; the same command goes on where it was",
    ]
    go_on(disturbed, output)


def test_without_a_worker_that_was_killed_it_ends_with_one_line_and_goes_on(disturbed: Path, tmp_path: Path) -> None:
    output = tmp_path / "corpus"
    process = start(disturbed, output)
    wait_until(lambda: any((output / ".work").glob("*.arrow")), process)
    for child in descendants(process.pid):
        if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes():
            os.kill(child, signal.SIGKILL)
    out, errors = process.communicate(timeout=120)
    assert (process.returncode, out) == (1, "")
    ended = "a process of this preparation was ended, by the system if memory ran out"
    assert errors == f"lingon: error: {ended}; the same command goes on where it was\n"
    go_on(disturbed, output)


@pytest.mark.parametrize(("most", "workers"), [(1_000, 1), (1_000, 2), (4_000, 2), (4_600, 1), (8_000, 1)])
def test_without_room_it_ends_with_one_line_and_nothing_half_written_and_goes_on(
    disturbed: Path, tmp_path: Path, most: int, workers: int
) -> None:
    """The limit is of the bytes of a file: all work shards meet it, some, the tokenizer or the manifest.

    Workers write shards alone, so that their number makes no difference for the last two.
    """
    output = tmp_path / "corpus"

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))

    process = start(disturbed, output, workers, preexec_fn=limit)
    out, errors = process.communicate(timeout=120)
    assert (process.returncode, out) == (1, ""), errors
    (line,) = errors.splitlines()
    assert line.startswith(f"lingon: error: {output}/")
    assert line.endswith(": File too large")
    assert not [path for path in output.rglob("*") if ".part" in path.name]
    go_on(disturbed, output)


def test_after_an_error_the_tasks_in_hand_are_done(tmp_path: Path) -> None:
    """Processes that were ended in them would leave partial files."""
    slow = partial(subprocess.run, ["sh", "-c", f"sleep 1; touch {tmp_path}/done"])
    with ExitStack() as stack:
        pool = module._Pool(2, lambda: 0, stack)
        with pytest.raises(ValueError, match="invalid literal"):
            list(pool.run([slow, partial(int, "no number")]))
        assert (tmp_path / "done").exists()


def test_a_signal_that_ends_the_workers_first_stops_it_as_any_signal(tmp_path: Path) -> None:
    end = partial(subprocess.run, ["sh", "-c", f"touch {tmp_path}/sent; kill -TERM $PPID"])
    with ExitStack() as stack:
        pool = module._Pool(2, lambda: signal.SIGTERM if (tmp_path / "sent").exists() else 0, stack)
        with pytest.raises(Interrupted) as stopped:
            list(pool.run([end, partial(time.sleep, 0)]))
    assert stopped.value.exit_code == 128 + signal.SIGTERM


# What is refused.


class StopAfter:
    """What stops a preparation after some of its tasks."""

    def __init__(self, tasks: int) -> None:
        self.left = tasks

    def __call__(self) -> int:
        self.left -= 1
        return signal.SIGTERM if self.left < 0 else 0


def begin(config: Config, folder: Path) -> None:
    """Prepare a corpus until its tokenizer is there and some shards are."""
    with pytest.raises(Interrupted) as stopped:
        prepare(config, folder, workers=1, rows=100, stopped=StopAfter(9))
    assert stopped.value.exit_code == 128 + signal.SIGTERM
    assert any(folder.glob("*.arrow"))
    assert not (folder / MANIFEST).exists()


@pytest.fixture
def settings(tmp_path: Path) -> Config:
    (tmp_path / "test").write_text("not in the text\n")
    texts = [random_pairs(300, seed) for seed in (1, 2)]
    return learning(tmp_path, *texts, data={"held_out": [tmp_path / "test"]})


def changed(config: Config, block: str, **values: Any) -> Config:
    return Config.model_validate({**config.model_dump(), block: {**getattr(config, block).model_dump(), **values}})


def with_corpus(config: Config) -> Config:
    folder = config.data.held_out[0].parent
    more = {"file": write_tsv(folder / "more.tsv", [("a", "b")])}
    return changed(config, "data", train=[*(each.model_dump() for each in config.data.train), more])


CHANGES: dict[str, tuple[Callable[[Config], Config], str]] = {
    "max_ratio": (lambda config: changed(config, "data", max_ratio=2.5), r": data\.max_ratio: 3\.0 -> 2\.5; set"),
    "duplicates": (
        lambda config: changed(config, "data", drop_duplicates=False),
        r": data\.drop_duplicates: true -> false; set",
    ),
    "max_tokens": (lambda config: changed(config, "data", max_tokens=64), r": data\.max_tokens: 128 -> 64; set"),
    "vocab_size": (
        lambda config: changed(config, "tokenizer", vocab_size=290),
        r": tokenizer\.vocab_size: 280 -> 290; set",
    ),
    "sample": (
        lambda config: changed(config, "tokenizer", sample_pairs=99),
        r": tokenizer\.sample_pairs: 70000 -> 99; set",
    ),
    "corpus": (with_corpus, r"data\.train\.2"),
    "held out": (lambda config: changed(config, "data", held_out=[]), r"data\.held_out\.0"),
}


@pytest.mark.parametrize("change", list(CHANGES))
@pytest.mark.parametrize("complete", [False, True])
def test_changed_settings_are_refused_and_named_and_those_of_before_go_on(
    tmp_path: Path, settings: Config, change: str, complete: bool
) -> None:
    folder = tmp_path / "corpus"
    if complete:
        prepare(settings, folder, workers=1, rows=100)
    else:
        begin(settings, folder)
    before = contents(folder)
    how, message = CHANGES[change]
    with pytest.raises(SettingsError, match=message):
        prepare(how(settings), folder, workers=1, rows=100)
    assert contents(folder) == before
    prepare(settings, folder, workers=1, rows=100)
    assert contents(folder) == contents(prepare(settings, tmp_path / "other", workers=1, rows=100).folder)


FILES = {"train.0.tsv": "data.train.0.file", "valid.tsv": "data.valid.0.file", "test": "data.held_out.0"}


@pytest.mark.parametrize("name", list(FILES))
@pytest.mark.parametrize("complete", [False, True])
def test_a_changed_file_is_refused_and_named(tmp_path: Path, settings: Config, name: str, complete: bool) -> None:
    folder = tmp_path / "corpus"
    if complete:
        prepare(settings, folder, workers=1, rows=100)
    else:
        begin(settings, folder)
    with (tmp_path / name).open("a") as file:
        file.write("more\tmore\n")
    named = str(tmp_path / name) if complete else FILES[name]
    with pytest.raises(SettingsError, match=f": {named} has changed; set"):
        prepare(settings, folder, workers=1, rows=100)


def test_a_file_that_changes_during_the_preparation_is_named_at_its_end(tmp_path: Path, settings: Config) -> None:
    folder = tmp_path / "corpus"

    def change() -> int:
        if any(folder.glob("*.arrow")):
            (tmp_path / "train.1.tsv").write_text("a\tb\n")
        return 0

    with pytest.raises(
        CorpusError, match=rf"^data\.train\.1\.file: changed while the corpus was prepared; remove {folder}$"
    ):
        prepare(settings, folder, workers=1, rows=100, stopped=change)
    assert not (folder / MANIFEST).exists()


def test_files_of_a_complete_corpus_may_be_touched_moved_if_they_are_equal_or_gone(
    tmp_path: Path, settings: Config
) -> None:
    folder = tmp_path / "corpus"
    made = contents(prepare(settings, folder, workers=1).folder)
    for path in (tmp_path / "train.0.tsv", tmp_path / "test"):
        os.utime(path, (1, 1))
    prepare(settings, folder)
    (tmp_path / "train.1.tsv").rename(tmp_path / "moved.tsv")
    train = [{"file": tmp_path / name} for name in ("train.0.tsv", "moved.tsv")]
    moved = changed(settings, "data", train=train)
    prepare(moved, folder)
    (tmp_path / "moved.tsv").unlink()
    with pytest.raises(SettingsError, match=rf"data\.train\.1\.file: {tmp_path}/train\.1\.tsv -> {tmp_path}/moved"):
        prepare(moved, folder)
    for name in FILES:
        (tmp_path / name).unlink()
    prepare(settings, folder)
    assert contents(folder) == made


def test_another_file_in_the_place_of_one_is_refused_and_both_are_named(tmp_path: Path, settings: Config) -> None:
    prepare(settings, tmp_path / "corpus", workers=1)
    write_tsv(tmp_path / "new.tsv", random_pairs(10, 9))
    other = changed(settings, "data", train=[{"file": tmp_path / name} for name in ("train.0.tsv", "new.tsv")])
    with pytest.raises(
        SettingsError, match=rf"data\.train\.1\.file: {tmp_path}/train\.1\.tsv -> {tmp_path}/new\.tsv; set"
    ):
        prepare(other, tmp_path / "corpus")


def test_the_verb_does_not_need_the_text_of_a_complete_corpus(disturbed: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(disturbed, tmp_path / "copy"))
    shutil.rmtree(folder / "reference")

    def code(name: str) -> int:
        process = start(folder, folder / name, 1)
        process.communicate(timeout=120)
        return process.returncode

    assert code("corpus") == 0
    for path in folder.glob("*.tsv"):
        path.unlink()
    assert (code("corpus"), code("other")) == (0, 1)


@pytest.mark.parametrize("given_first", [True, False])
def test_another_tokenizer_is_refused_and_the_one_of_the_corpus_accepted(
    tmp_path: Path, settings: Config, tokenizer: Tokenizer, given_first: bool
) -> None:
    folder = tmp_path / "corpus"
    first, other = (tokenizer, None) if given_first else (None, tokenizer)
    corpus = prepare(settings, folder, first, workers=1)
    assert len(prepare(settings, folder, corpus.tokenizer())) == len(corpus)
    with pytest.raises(SettingsError, match=r"tokenizer\.files"):
        prepare(settings, folder, other)


# Several processes, and what an attempt leaves.


def test_a_corpus_is_prepared_by_one_process_at_a_time(tmp_path: Path, settings: Config) -> None:
    folder = tmp_path / "corpus"
    begin(settings, folder)
    before = contents(folder)
    with lock_path(folder), pytest.raises(SettingsError, match=f"^{folder}: another process prepares this corpus$"):
        prepare(settings, folder, workers=1, rows=100)
    assert contents(folder) == before
    prepare(settings, folder, workers=1, rows=100)


def test_a_corpus_that_another_process_completes_meanwhile_is_taken(
    tmp_path: Path, settings: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does so between the look for a complete corpus and the lock."""
    alone = module.alone_in

    @contextmanager
    def late(folder: Path, work: str) -> Iterator[None]:
        monkeypatch.setattr(module, "alone_in", alone)
        prepare(settings, folder, workers=1, rows=100)
        with alone(folder, work):
            yield

    monkeypatch.setattr(module, "alone_in", late)
    found = prepare(settings, tmp_path / "corpus", workers=1, rows=50)
    assert max(shard.pairs for shard in found.manifest.shards) > 50
    assert contents(found.folder) == contents(prepare(settings, tmp_path / "other", workers=1, rows=100).folder)


def test_the_work_of_an_attempt_that_was_ended_after_the_manifest_is_removed(tmp_path: Path, settings: Config) -> None:
    folder = tmp_path / "corpus"
    made = contents(prepare(settings, folder, workers=1).folder)
    (folder / ".work").mkdir()
    (folder / ".work" / "kept.npy").touch()
    prepare(settings, folder)
    assert contents(folder) == made
    assert not (folder / ".work").exists()


@pytest.mark.parametrize("left", ["plan", "version", "manifest"])
def test_what_an_attempt_with_other_settings_left_is_not_taken(tmp_path: Path, settings: Config, left: str) -> None:
    """Without the plan or the manifest nothing says what shards are of, as after a removal that was ended. Those of
    another version may have another form.
    """
    folder = tmp_path / "corpus"
    plan = folder / ".work" / "plan.json"
    if left == "plan":
        begin(settings, folder)
        plan.unlink()
    elif left == "version":
        begin(settings, folder)
        plan.write_text(json.dumps({**json.loads(plan.read_text()), "version": 0}))
    else:
        prepare(settings, folder, workers=1, rows=100)
        (folder / MANIFEST).unlink()
    other = changed(settings, "data", max_ratio=1.0, train=[settings.data.train[1].model_dump()])
    made = prepare(other, folder, workers=1, rows=100).folder
    assert contents(made) == contents(prepare(other, tmp_path / "other", workers=1, rows=100).folder)


def test_a_missing_file_is_named_before_a_folder_is_made(tmp_path: Path, settings: Config) -> None:
    (tmp_path / "test").unlink()
    with pytest.raises(CorpusError, match=f"^{tmp_path}/test: No such file or directory$"):
        prepare(settings, tmp_path / "corpus")
    assert not (tmp_path / "corpus").exists()


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b'{"version": 2}', b'{"version": 1}', b"\xff"])
def test_a_damaged_manifest_is_an_error_with_what_to_do(tmp_path: Path, settings: Config, content: bytes) -> None:
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / MANIFEST).write_bytes(content)
    with pytest.raises(CorpusError, match=rf"{MANIFEST}: .*(remove|prepare it again)"):
        prepare(settings, tmp_path / "corpus")
