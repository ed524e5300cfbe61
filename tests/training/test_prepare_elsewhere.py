"""A corpus prepared by tasks that run elsewhere, or in an object store, has the bytes of one prepared here."""

from __future__ import annotations

import gzip
import itertools
import pickle
import random
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import fsspec
import pytest

from lingon.errors import CorpusError, LingonError, SettingsError
from lingon.training.config import MANIFEST, Config, load_config
from lingon.training.prepare import prepare as prepare_whole
from lingon.training.prepared import PreparedCorpus
from tests.support.bulk import Faults, faulty_proxy, s3_server
from tests.support.processes import lingon

SHARE = 0.1
NUMBERS = itertools.count()


prepare = partial(prepare_whole, rows=64)


CORPORA = """
[data]
source_language = "en"
target_language = "de"
valid = {{ source = "{inputs}/v.en", target = "{inputs}/v.de" }}
held_out = ["{inputs}/v.en"]
[[data.train]]
source = "{inputs}/a.en"
target = "{inputs}/a.de"
alignment = "{inputs}/a.links"
[[data.train]]
source = "{inputs}/b.en.gz"
target = "{inputs}/b.de.gz"
repeat = 2
[[data.train]]
file = "{inputs}/c.tsv"
[tokenizer]
vocab_size = 280
sample_pairs = 150
[training]
guided_alignment = 0.1
"""


def write_text(folder: Path) -> None:
    """Write two corpora of lines, one of them packed, and a TSV, with duplicates of each other, and validation text."""
    folder.mkdir(parents=True, exist_ok=True)
    draw = random.Random(5)

    def pairs(count: int) -> list[tuple[str, str]]:
        lines = (" ".join(str(draw.randrange(30)) for _ in range(draw.randint(1, 4))) for _ in range(count))
        return [(line, line[::-1]) for line in lines]

    def write(name: str, lines: Iterable[str]) -> None:
        content = "".join(f"{line}\n" for line in lines).encode()
        (folder / name).write_bytes(gzip.compress(content, mtime=0) if name.endswith(".gz") else content)

    for name, packing, count in (("a", "", 300), ("b", ".gz", 200), ("v", "", 5)):
        found = pairs(count)
        write(f"{name}.en{packing}", (source for source, _ in found))
        write(f"{name}.de{packing}", (target for _, target in found))
        write(f"{name}.links", ("0-0" for _ in found))
    write("c.tsv", ("\t".join(pair) for pair in pairs(130)))


def config_of(folder: Path, inputs: str) -> Config:
    path = folder / "config.toml"
    path.write_text(CORPORA.format(inputs=inputs))
    return load_config(path)


@pytest.fixture
def config(tmp_path: Path) -> Config:
    write_text(tmp_path / "in")
    return config_of(tmp_path, "in")


def files_of(folder: Path) -> dict[str, bytes]:
    assert not list(folder.glob(".*"))
    return {path.name: path.read_bytes() for path in folder.iterdir()}


class Elsewhere:
    """An engine whose tasks and results are copies, as those of another machine, and come in another order.

    most: tasks that are done before it fails
    """

    def __init__(self, most: int = 10**9) -> None:
        self.most, self.done = most, list[Any]()

    def shards(self) -> int:
        """How many tasks have written a work shard or a shard."""
        return sum(b".arrow" in task for task in self.done)

    def run(self, tasks: Iterable[Callable[[], Any]], check: Callable[[], object]) -> Iterator[Any]:
        copies = [pickle.dumps(task) for task in tasks]  # as a cluster with room for all of them
        random.Random(len(copies)).shuffle(copies)
        for each in copies:
            check()
            if len(self.done) >= self.most:
                raise LingonError("the cluster is gone")
            self.done.append(each)
            yield pickle.loads(pickle.dumps(pickle.loads(each)()))  # noqa: S301


def test_tasks_that_run_elsewhere_write_the_same_bytes(tmp_path: Path, config: Config) -> None:
    engine = Elsewhere()
    prepare(config, tmp_path / "here", workers=1)
    prepare(config, tmp_path / "elsewhere", engine=engine)
    assert files_of(tmp_path / "elsewhere") == files_of(tmp_path / "here")
    assert len(engine.done) > 2 * (5 + 4 + 3)


def test_no_task_carries_the_text_of_a_file_that_workers_can_read(tmp_path: Path, config: Config) -> None:
    engine = Elsewhere()
    prepare(config, tmp_path / "elsewhere", engine=engine)
    lines = (tmp_path / "in" / "a.en").read_bytes().splitlines()
    longest = max(lines, key=len)
    assert len(longest) > 8
    assert not [task for task in engine.done if longest in task]


def test_after_the_end_of_a_driver_at_any_task_the_next_one_goes_on(tmp_path: Path, config: Config) -> None:
    prepare(config, tmp_path / "here", workers=1)
    expected = files_of(tmp_path / "here")
    whole = Elsewhere()
    prepare(config, tmp_path / "whole", engine=whole)
    for most in range(0, len(whole.done), 5):
        folder, first, rest = tmp_path / f"after-{most}", Elsewhere(most), Elsewhere()
        with pytest.raises(LingonError, match="the cluster is gone"):
            prepare(config, folder, engine=first)
        prepare(config, folder, engine=rest)
        assert files_of(folder) == expected
        assert first.shards() + rest.shards() == whole.shards()


def test_an_error_in_a_piece_names_the_line_of_the_file(tmp_path: Path, config: Config) -> None:
    path = tmp_path / "in" / "a.en"
    lines = path.read_bytes().split(b"\n")
    lines[199] = b"\xff"
    path.write_bytes(b"\n".join(lines))
    with pytest.raises(CorpusError, match=r"a\.en:200: not UTF-8"):
        prepare(config, tmp_path / "elsewhere", engine=Elsewhere())


# Object stores.


def stored(url: str) -> dict[str, bytes]:
    store, path = fsspec.core.url_to_fs(url)
    store.invalidate_cache()
    return {name.rsplit("/", 1)[1]: store.cat_file(name) for name in store.find(path)}


@pytest.fixture
def memory() -> str:
    return f"memory://store-{next(NUMBERS)}"


def test_a_corpus_in_a_store_has_the_bytes_of_one_here(tmp_path: Path, config: Config, memory: str) -> None:
    prepare(config, tmp_path / "here", workers=1)
    for folder, engine in ((f"{memory}/local", None), (f"{memory}/elsewhere", Elsewhere())):
        found = prepare(config, Path(folder), workers=1, engine=engine)
        assert stored(folder) == files_of(tmp_path / "here")
        here = PreparedCorpus(tmp_path / "here")
        rows = here.lengths.nonzero()[0][::7]
        assert found.texts(rows) == here.texts(rows)
        assert found.links(rows) == here.links(rows)


@pytest.mark.parametrize("engine", [None, Elsewhere()])
def test_text_in_a_store_is_read_as_text_here(
    tmp_path: Path, config: Config, memory: str, engine: Elsewhere | None
) -> None:
    fsspec.filesystem("memory").put(str(tmp_path / "in"), memory, recursive=True)
    prepare(config, tmp_path / "here", workers=1)
    prepare(config_of(tmp_path, memory), tmp_path / "stored", workers=1, engine=engine)
    here, found = files_of(tmp_path / "here"), files_of(tmp_path / "stored")
    assert found.pop(MANIFEST) != here.pop(MANIFEST)  # it names the inputs
    assert found == here


def test_a_change_of_an_object_is_named(tmp_path: Path, config: Config, memory: str) -> None:
    store = fsspec.filesystem("memory")
    store.put(str(tmp_path / "in"), memory, recursive=True)
    in_store, folder = config_of(tmp_path, memory), Path(f"{memory}/corpus")
    with pytest.raises(LingonError, match="the cluster is gone"):
        prepare(in_store, folder, engine=Elsewhere(8))
    store.pipe_file(f"{memory}/a.en", store.cat_file(f"{memory}/a.en").replace(b"1", b"2"))
    with pytest.raises(SettingsError, match=r"data\.train\.0\.source has changed"):
        prepare(in_store, folder, engine=Elsewhere())


def test_a_corpus_in_a_store_that_is_complete_is_opened(config: Config, memory: str) -> None:
    prepare(config, Path(f"{memory}/corpus"), workers=1)
    engine = Elsewhere()
    assert len(prepare(config, Path(f"{memory}/corpus"), engine=engine))
    assert not engine.done
    changed = config.model_copy(update={"data": config.data.model_copy(update={"max_ratio": 2.0})})
    with pytest.raises(SettingsError, match=r"max_ratio: 3\.0 -> 2\.0"):
        prepare(changed, Path(f"{memory}/corpus"))


def test_an_object_that_is_not_there_is_one_line(tmp_path: Path, config: Config, memory: str) -> None:
    fsspec.filesystem("memory").put(str(tmp_path / "in"), memory, recursive=True)
    fsspec.filesystem("memory").rm_file(f"{memory}/c.tsv")
    with pytest.raises(CorpusError, match=rf"^{memory}/c\.tsv: No such file or directory$"):
        prepare(config_of(tmp_path, memory), tmp_path / "out", workers=1)


def test_processes_prepare_in_an_s3_store_that_fails_now_and_then(
    tmp_path: Path, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("s3fs", reason="needs the package s3fs")
    pytest.importorskip("moto", reason="needs the package moto")
    faults = Faults()
    with s3_server() as port, faulty_proxy(port, faults) as proxy:
        for name, value in {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{proxy}",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_MAX_ATTEMPTS": "8",
        }.items():
            monkeypatch.setenv(name, value)
        fsspec.get_filesystem_class("s3").clear_instance_cache()
        bucket = f"s3://corpora-{next(NUMBERS)}"
        fsspec.filesystem("s3").mkdir(bucket)
        fsspec.filesystem("s3").put(str(tmp_path / "in"), f"{bucket}/in", recursive=True)
        faults.share = SHARE
        prepare(config_of(tmp_path, f"{bucket}/in"), Path(f"{bucket}/corpus"), workers=2)
        faults.share = 0.0
        assert sum(faults.counted.values())
        found = stored(f"{bucket}/corpus")
    prepare(config, tmp_path / "here", workers=1)
    here = files_of(tmp_path / "here")
    assert found.pop(MANIFEST) != here.pop(MANIFEST)
    assert found == here


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--workers", "1..2"], "--workers must be one number without --engine ray, got 1..2"),
        (["--address", "auto"], "--address needs --engine ray"),
    ],
)
def test_options_that_this_machine_does_not_take_are_refused(arguments: list[str], message: str) -> None:
    assert message in lingon("prepare", "c.toml", *arguments, code=2)


def test_training_from_a_corpus_in_a_store_and_a_report_of_it_are_refused(tmp_path: Path, config: Config) -> None:
    said = lingon("prepare", tmp_path / "config.toml", "--output", "s3://bucket/corpus", "--report", code=2)
    assert "--report needs a corpus in a folder of this machine, got s3://bucket/corpus" in said
    said = lingon("train", tmp_path / "config.toml", "--set", "data.prepared=s3://bucket/corpus", code=2)
    assert "data.prepared must be a folder of this machine to train from, got s3://bucket/corpus" in said
