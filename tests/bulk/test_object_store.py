"""Input and output in an object store, which fails now and then."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import fsspec
import pytest

from lingon.bulk import Translate, missing, plan
from lingon.bulk.format import packed
from lingon.bulk.planning import PLAN
from lingon.bulk.runs import LocalEngine, run
from lingon.bulk.storage import input_files, open_folder
from lingon.errors import LingonError, SettingsError
from tests.support.bulk import (
    LINES,
    MIXED,
    FailingEngine,
    Faults,
    Silent,
    faulty_proxy,
    parts,
    s3_server,
    write_parquet,
)

pytest.importorskip("s3fs", reason="needs the package s3fs")
pytest.importorskip("moto", reason="needs the package moto")

NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with s3_server() as port:
        yield port


@pytest.fixture
def faults(port: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[Faults]:
    """A store for this test, reached by a proxy that fails as this says."""
    faults = Faults()
    with faulty_proxy(port, faults) as proxy:
        for name, value in {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{proxy}",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_MAX_ATTEMPTS": "8",
        }.items():
            monkeypatch.setenv(name, value)
        fsspec.get_filesystem_class("s3").clear_instance_cache()
        yield faults


@pytest.fixture
def bucket(faults: Faults) -> str:
    name = f"bucket-{next(NUMBERS)}"
    fsspec.filesystem("s3").mkdir(name)
    return f"s3://{name}"


def uploaded(bucket: str, folder: Path) -> str:
    fsspec.filesystem("s3").put(str(folder), f"{bucket}/in", recursive=True)
    return f"{bucket}/in"


def stored(url: str) -> dict[str, bytes]:
    store = fsspec.filesystem("s3")
    store.invalidate_cache()
    return {name.rsplit("/", 1)[1]: store.cat_file(name) for name in sorted(store.glob(f"{url}/part-*"))}


def test_a_run_in_a_store_that_fails_writes_the_bytes_of_one_here(
    tmp_path: Path, bucket: str, faults: Faults, translate: Translate
) -> None:
    write_parquet(tmp_path / "in" / "a.parquet", MIXED, row_group_size=30)
    source, output = uploaded(bucket, tmp_path / "in"), f"{bucket}/out"
    work = plan(source, output, translate, shard_rows=10)
    faults.share = 0.3
    with pytest.raises(LingonError, match="killed"):
        run(work, FailingEngine(4), translate, Silent())
    again = plan(source, output, translate, shard_rows=10)
    assert len(missing(again)) == len(work.shards) - 4
    run(again, LocalEngine(), translate, Silent())
    faults.share = 0.0
    assert all(faults.counted.values()), faults.counted
    here = tmp_path / "here"
    run(plan(source, str(here), translate, shard_rows=10), LocalEngine(), translate, Silent())
    assert stored(output) == parts(here)
    assert json.loads(open_folder(output).read("_lingon/manifest.json", 10**6))["rows"] == len(MIXED)


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz", "a.jsonl.zst", "a.csv"])
def test_lines_in_a_store_are_read_as_lines_here(tmp_path: Path, bucket: str, translate: Translate, name: str) -> None:
    texts = {
        ".txt": LINES[:30],
        ".jsonl": [json.dumps({"text": each}) for each in LINES[:30]],
        ".csv": ["text", "A.", "B."],
    }
    content = "".join(f"{each}\n" for each in texts[Path(name.removesuffix(".gz").removesuffix(".zst")).suffix])
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / name).write_bytes(packed(name, content.encode()))
    source, here = uploaded(bucket, tmp_path / "in"), tmp_path / "here"
    run(plan(source, f"{bucket}/out", translate, shard_rows=10), LocalEngine(), translate, Silent())
    run(plan(str(tmp_path / "in"), str(here), translate, shard_rows=10), LocalEngine(), translate, Silent())
    assert stored(f"{bucket}/out") == parts(here)


def test_of_two_drivers_that_begin_at_once_one_writes_the_plan(bucket: str) -> None:
    def create(content: bytes) -> bool:
        try:
            open_folder(f"{bucket}/out").create(PLAN, content)
        except FileExistsError:
            return False
        return True

    contents = [str(number).encode() * 100 for number in range(8)]
    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(create, contents))
    assert won.count(True) == 1
    assert open_folder(f"{bucket}/out").read(PLAN, 10**6) == contents[won.index(True)]


def test_an_object_that_changed_makes_another_plan(tmp_path: Path, bucket: str, translate: Translate) -> None:
    write_parquet(tmp_path / "in" / "a.parquet", MIXED)
    source = uploaded(bucket, tmp_path / "in")
    plan(source, f"{bucket}/out", translate)
    write_parquet(tmp_path / "in" / "a.parquet", [*MIXED[:-1], "Changed."])
    uploaded(bucket, tmp_path / "in")
    with pytest.raises(SettingsError, match=r"the input s3://.*/in/a\.parquet"):
        plan(source, f"{bucket}/out", translate)


def test_what_a_store_refuses_is_one_line_with_its_name(bucket: str, faults: Faults, monkeypatch: Any) -> None:
    with pytest.raises(SettingsError, match=rf"^{bucket}/none/\*: there is no such file$"):
        input_files(f"{bucket}/none/*")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    fsspec.get_filesystem_class("s3").clear_instance_cache()
    faults.share = 1.0
    with pytest.raises(LingonError, match=rf"^{bucket}/out/a: .+") as caught:
        open_folder(f"{bucket}/out").write("a", b"content")
    assert "\n" not in str(caught.value)
