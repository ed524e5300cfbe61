"""The preparation of a corpus: text is read, filtered, freed of duplicates, tokenised and written as shards.

1. Every corpus is read as a stream, ROWS lines at a time. Processes normalise and filter them, and write what stays as
   work shards, with a hash of 128 bits of each pair.
2. Duplicates are found by these hashes, part by part. This takes 200 MB of memory and a byte for each pair.
3. The tokenizer is learnt from a sample, unless there is one.
4. Processes tokenise the work shards, drop pairs that are too long, and write the shards.
5. The lengths of all pairs are written, which takes a dozen bytes of memory for each, and last the manifest. A corpus
   without it is not complete.

A file is written whole or not at all, and a later attempt takes the files that are there. So the bytes depend neither
on the number of processes nor on how often the preparation was ended.
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
import tempfile
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from lingon.errors import CorpusError, Interrupted, LingonError, SettingsError
from lingon.files import check_files, read_lines
from lingon.machine import usable_cores
from lingon.object_stores import exists, file_state
from lingon.text import LanguageTokens, Tokenizer, normalise
from lingon.training.config import MANIFEST, Config, Corpus, DataSettings, pair_name
from lingon.training.corpus import FilterCounts, Pair, read_pairs
from lingon.training.corpus_files import (
    alone_in,
    digest_of,
    each_of,
    make_folder,
    names_in,
    read_array,
    read_bytes,
    read_json,
    read_tokenizer,
    remove,
    remove_folder,
    write_array,
    write_bytes,
    write_text,
)
from lingon.training.epochs import drawn_positions, mixture
from lingon.training.filters import PairFilters
from lingon.training.parallel_text import RawBlock, read_blocks
from lingon.training.prepared import (
    LENGTHS,
    ROWS,
    VERSION,
    CorpusFacts,
    InputFile,
    Manifest,
    PreparedCorpus,
    Shard,
    ShardFacts,
)
from lingon.training.shard_tasks import DroppedPairs, EncodeTask, FilterTask, framing
from lingon.training.text_pieces import Piece, can_be_cut, cut_corpora
from lingon.training.tokenizer import check_markers, train_tokenizer
from lingon.worker_pool import worker_pool

LEARNT = ("kind", "vocab_size", "joint", "byte_fallback", "character_coverage", "sample_pairs")
"""The settings of a tokenizer by which its pieces are learnt."""

PART = 2**21
"""Pairs among which duplicates are looked for at once."""

# In the folder of a corpus that is not complete, and in the folder of its work.
WORK = ".work"
SHARDS = "[0-9][0-9][0-9]*-[0-9][0-9][0-9][0-9][0-9][0-9].arrow"
PLAN, DUPLICATES, KEPT, TOKENS = "plan.json", "duplicates.json", "kept.npy", "tokens.json"

POLL = 0.5  # seconds between two looks at whether to stop
GO_ON = "the same command goes on where it was"
Result = TypeVar("Result")


class Watch(Protocol):
    """Where a preparation says how far it is."""

    def message(self, text: str) -> None:
        """Show a line."""

    def begin_step(self, name: str, pairs: int | None) -> None:
        """Begin a step; pairs: how many it takes, if that is known."""

    def advance(self, pairs: int) -> None:
        """Count pairs of the step that are done."""


class Silent:
    """A watch that shows nothing."""

    def message(self, text: str) -> None:
        pass

    def begin_step(self, name: str, pairs: int | None) -> None:
        pass

    def advance(self, pairs: int) -> None:
        pass


def prepare(
    config: Config,
    folder: Path,
    tokenizer: Tokenizer | None = None,
    *,
    workers: int | None = None,
    engine: TaskEngine | None = None,
    watch: Watch | None = None,
    stopped: Callable[[], int] = lambda: 0,
    rows: int = ROWS,
) -> PreparedCorpus:
    """Prepare the training text of a config, or go on with that, and return the corpus.

    folder: of the corpus, which may be in an object store, as the files of the config may be
    tokenizer: with which it is tokenised, by default one that is learnt from it
    workers: processes, by default one for each core
    engine: where tasks run instead
    stopped: gives the signal for which to raise Interrupted, or 0; asked between tasks
    rows: lines of a corpus that one shard is made of

    Raises SettingsError if the folder has another corpus, or the tokenizer no markers for terms that are annotated, and
    CorpusError for text that cannot be used.
    """
    config = config.with_languages()
    if tokenizer is not None and config.data.terms is not None:
        check_markers(config.data.terms.form, tokenizer)
    if exists(folder / MANIFEST):
        remove_folder(folder / WORK)  # of an attempt that was ended after it wrote the manifest
        return open_checked(config, folder, tokenizer)
    check_files(_input_paths(config).values())  # before a folder is made
    with alone_in(folder, WORK), ExitStack() as stack:
        if exists(folder / MANIFEST):  # another process has written it meanwhile
            return open_checked(config, folder, tokenizer)
        pool = _Pool(workers or usable_cores(), stopped, stack, engine)
        steps = _Steps(config, folder, tokenizer, watch or Silent(), pool, rows)
        steps.begin()
        steps.read()
        steps.drop_duplicates()
        steps.take_tokenizer()
        steps.encode()
        steps.finish()
    return PreparedCorpus(folder)


def open_checked(config: Config, folder: Path, tokenizer: Tokenizer | None = None) -> PreparedCorpus:
    """Return a complete corpus. Raises SettingsError if it is not that of the config and of the tokenizer."""
    found = PreparedCorpus(folder)
    manifest = found.manifest
    now = {**text_settings(config), **token_settings(config, tokenizer)}
    if tokenizer is not None and file_digests(tokenizer) == manifest.tokenizer:  # however it was got
        now["tokenizer"] = manifest.settings["tokenizer"]
    changed = [*_changes(manifest.settings, now), *_changed_inputs(manifest.inputs, config)]
    if changed:
        raise SettingsError(
            f"{folder}: this corpus was prepared with other settings or files: {'; '.join(changed)}; set them back, "
            "remove the folder, or name another one as data.prepared"
        )
    return found


def training_pairs(config: Config, tokenizer: Tokenizer, most: int = 2**20) -> list[Pair]:
    """Return pairs of an epoch of the training text in memory: all, or `most` of them, drawn at random, in their order.

    tokenizer: by which pairs that are too long are left out
    """
    seed = config.training.seed
    unlinked = config.training.model_copy(update={"guided_alignment": 0.0})  # no pair has its links here
    data = config.data.model_copy(update={"terms": None})
    config = config.model_copy(update={"training": unlinked, "data": data})
    with tempfile.TemporaryDirectory() as folder:
        corpus = prepare(config, Path(folder) / "corpus", tokenizer)
        epoch = mixture(config, [each.kept for each in corpus.manifest.corpora], (seed, 0))
        return corpus.pairs(epoch.rows(drawn_positions(len(epoch), most, seed)), config.data.languages)


class TaskEngine(Protocol):
    """Where tasks run, if not in processes of this machine. Their files must be reached from there."""

    def run(self, tasks: Iterable[Callable[[], Result]], check: Callable[[], object]) -> Iterator[Result]:
        """Run tasks and yield their results in any order; check: called now and then, raises an error to stop."""


class _Pool:
    """Processes for the tasks of all steps, which begin with the first step that has more than one task.

    engine: what runs the tasks instead
    """

    def __init__(
        self, workers: int, stopped: Callable[[], int], stack: ExitStack, engine: TaskEngine | None = None
    ) -> None:
        self.engine = engine
        self._workers, self._stopped, self._stack = workers, stopped, stack
        self._pool: ProcessPoolExecutor | None = None

    def run(self, tasks: Iterable[Callable[[], Result]], *, begin: bool = True) -> Iterator[Result]:
        """Run tasks and yield their results in any order. Few tasks wait, so that their memory has a bound.

        begin: whether processes begin for these tasks, which takes each of them half a second, if there are none yet
        """
        if self.engine is not None:
            yield from self.engine.run(tasks, self.check)
            return
        rest = iter(tasks)
        first = list(islice(rest, 2))
        if self._workers == 1 or len(first) < 2 or not (begin or self._pool):
            for task in chain(first, rest):
                self.check()
                yield task()
            return
        running: set[Future[Result]] = set()
        try:
            for task in chain(first, rest):
                with self._naming_break():  # submitting fails too, after a process was ended
                    running.add(self._processes().submit(task))
                while len(running) >= 2 * self._workers:
                    running = yield from self._some(running)
            while running:
                running = yield from self._some(running)
        except Exception:  # what processes have in hand is done, and leaves no partial file
            for future in running:
                future.cancel()
            wait(running)
            raise

    def _some(self, running: set[Future[Result]]) -> Generator[Result, None, set[Future[Result]]]:
        """Yield the results of the tasks that end next, and return those that still run."""
        self.check()
        done, left = wait(running, POLL, FIRST_COMPLETED)
        for future in done:
            with self._naming_break():
                result = future.result()
            yield result
        return left

    @contextmanager
    def _naming_break(self) -> Iterator[None]:
        """Raise Interrupted or LingonError if a process was ended. One signal may have reached all of them."""
        try:
            yield
        except BrokenProcessPool:
            self.check()
            raise LingonError(
                f"a process of this preparation was ended, by the system if memory ran out; {GO_ON}"
            ) from None

    def check(self) -> None:
        """Raise Interrupted if the preparation is to stop."""
        if number := self._stopped():
            raise Interrupted(f"stopped while the corpus was prepared; {GO_ON}", number)

    def _processes(self) -> ProcessPoolExecutor:
        if self._pool is None:
            self._pool = self._stack.enter_context(worker_pool(self._workers))
        return self._pool


@dataclass(slots=True)
class _Steps:
    """The steps of a preparation, in their order. Each takes what it needs from the files of those before."""

    config: Config
    folder: Path
    given: Tokenizer | None
    watch: Watch
    pool: _Pool
    rows: int

    @property
    def work(self) -> Path:
        return self.folder / WORK

    @property
    def corpora(self) -> tuple[Corpus, ...]:
        return self.config.data.train

    def begin(self) -> None:
        """Write the plan, or check that it is the plan of the attempt before."""
        plan = {"version": VERSION, "settings": text_settings(self.config), "inputs": _input_states(self.config)}
        path = self.work / PLAN
        before = read_json(path) if exists(path) else {}
        if before.get("version") != VERSION:  # its shards may have another form
            self._forget()
            make_folder(self.work)
            write_text(path, json.dumps(plan))
            return
        changed = [f"{file} has changed" for file in _changes(before["inputs"], plan["inputs"], named=False)]
        self._refuse([*_changes(before["settings"], plan["settings"]), *changed])
        self.watch.message(f"goes on with the corpus in {self.folder}")

    def _forget(self) -> None:
        """Remove shards and work, first the plan: without it an attempt removes what is left, and begins again."""
        remove(self.work / PLAN)
        for name in fnmatch.filter(names_in(self.folder), SHARDS):
            remove(self.folder / name)
        remove_folder(self.work)

    def _refuse(self, changed: Sequence[str]) -> None:
        if changed:
            raise SettingsError(
                f"{self.folder}: this corpus was begun with other settings or files: {'; '.join(changed)}; set them "
                "back, remove the folder, or name another one"
            )

    # Step 1: work shards.

    def read(self) -> None:
        """Write the work shards."""
        data = self.config.data
        held_out = frozenset(_held_out(data))
        languages, alignments = map(data.languages_of, self.corpora), (str(each.alignment) for each in self.corpora)
        for pair in dict.fromkeys(map(data.languages_of, self.corpora)):
            PairFilters(data, pair)  # raises here for a filter that does not know a language
        task = FilterTask(self.work, data, tuple(languages), held_out, tuple(alignments))
        self.watch.begin_step("read", None)
        for lines in self.pool.run(self._filter_tasks(task)):
            self.watch.advance(lines)

    def _filter_tasks(self, task: FilterTask) -> Iterator[Callable[[], int]]:
        """Yield what writes the work shards that are missing. What has one reader is read here."""
        there = names_in(self.work)
        missing = {
            corpus: each if self._linked(each) else each.model_copy(update={"alignment": None})
            for corpus, each in enumerate(self.corpora)
            if not there.issuperset(self._names(corpus) or ("",))
        }
        cut = {corpus: text for corpus, text in missing.items() if self.pool.engine and can_be_cut(text)}
        pieces = cut_corpora(cut, self.rows, self.pool.run)
        for corpus, text in missing.items():
            count = 0
            for part in pieces[corpus] if corpus in cut else read_blocks(text, self.rows):
                name = _shard_name(corpus, count)
                if name not in there:
                    yield partial(_filter, task, corpus, name, part)
                count += 1
            write_text(self.work / f"{corpus:03d}.count", str(count))

    def _linked(self, corpus: Corpus) -> bool:
        return self.config.linked and corpus.alignment is not None

    def _names(self, corpus: int) -> list[str]:
        """Return the names of the shards of a corpus, none before it was read to its end."""
        path = self.work / f"{corpus:03d}.count"
        count = int(read_bytes(path)) if exists(path) else 0
        return [_shard_name(corpus, number) for number in range(count)]

    def _all_names(self) -> list[str]:
        return [name for corpus in range(len(self.corpora)) for name in self._names(corpus)]

    # Step 2: which pairs are kept.

    def drop_duplicates(self) -> None:
        """Find the pairs that occur before, and write which pairs are kept."""
        if exists(self.work / KEPT):
            return
        names = self._all_names()
        shards = list(each_of(self.work, lambda name: Shard(self.work / name), names))
        starts = np.cumsum([0, *each_of(self.work, len, shards)])
        kept, dropped = np.ones(starts[-1], bool), [DroppedPairs() for _ in self.corpora]
        for key, reason in self._duplicate_keys():
            self.watch.begin_step(f"find each {reason}", len(kept))
            before = kept.copy()
            keys = list(each_of(self.work, partial(_hashes, key), shards))
            bits = ((len(kept) - 1) // PART).bit_length() if len(kept) else 0
            for part in range(2**bits):
                kept[_repeated(keys, before, bits, part)] = False
                self.watch.advance(len(kept) // 2**bits)
                self.pool.check()
            for name, shard, start, end in zip(names, shards, starts, starts[1:], strict=False):
                rows = np.flatnonzero(before[start:end] & ~kept[start:end]).tolist()
                dropped[_corpus_of(name)].add_rows(reason, shard, rows)
        if not kept.any():
            counts = self._counts(dropped)
            self._forget()
            raise CorpusError(f"no pair passes the filters of the training text: {counts}")
        facts = {"starts": starts.tolist(), "corpora": [each.as_json() for each in dropped]}
        write_text(self.work / DUPLICATES, json.dumps(facts))
        write_array(self.work / KEPT, kept)

    def _duplicate_keys(self) -> Iterator[tuple[str, str]]:
        """Yield the columns by whose hashes pairs are dropped, with the reasons."""
        if self.config.data.drop_duplicates:
            yield "key", "duplicate"
        if self.config.data.filters.near_duplicates:
            yield "near", "near duplicate"

    def _counts(self, later: Sequence[DroppedPairs]) -> FilterCounts:
        """Return the counts of all corpora; later: what was dropped after the work shards were written."""
        total = FilterCounts()
        for name in self._all_names():
            facts = Shard(self.work / name).metadata
            total += FilterCounts(facts["lines"], facts["dropped"])
        for each in later:
            total += FilterCounts(0, each.counts)
        return total

    def _kept(self) -> dict[str, NDArray[np.bool_]]:
        """Return whether each pair of a work shard is kept, by the name of the shard."""
        mask: NDArray[np.bool_] = read_array(self.work / KEPT)
        starts = read_json(self.work / DUPLICATES)["starts"]
        return {name: mask[start:end] for name, start, end in zip(self._all_names(), starts, starts[1:], strict=False)}

    # Step 3: the tokenizer.

    def take_tokenizer(self) -> None:
        """Write the tokenizer, learnt if none is given."""
        settings = token_settings(self.config, self.given)
        if exists(self.work / TOKENS):
            self._refuse([*_changes(read_json(self.work / TOKENS), settings)])
            return
        if self.given is None:
            self.watch.begin_step("learn the tokenizer", None)
        found = self.given or train_tokenizer(
            self._sample(), self.config.tokenizer, self.config.languages, self.config.tags, self.config.markers
        )
        for name in (*Tokenizer.JOINT, *Tokenizer.SEPARATE):
            remove(self.folder / name)
        for name, content in found.files().items():
            write_bytes(self.folder / name, content)
        write_text(self.work / TOKENS, json.dumps(settings))

    def _sample(self) -> list[Pair]:
        """Return pairs of the first epoch: all, or as many as the settings say, drawn at random, in their order."""
        kept, seed = self._kept(), self.config.training.seed
        counts = {name: int(mask.sum()) for name, mask in kept.items()}
        epoch = mixture(
            self.config,
            [sum(counts[name] for name in self._names(each)) for each in range(len(self.corpora))],
            (seed, 0),
        )
        rows = epoch.rows(drawn_positions(len(epoch), self.config.tokenizer.sample_pairs, seed))
        order = np.argsort(rows, kind="stable")
        starts = dict(zip(counts, np.cumsum([0, *counts.values()]), strict=False))
        ascending, found = rows[order], [Pair("", "")] * len(rows)

        def drawn(name: str) -> Iterable[tuple[int, Pair]]:
            first, last = np.searchsorted(ascending, (starts[name], starts[name] + counts[name]))
            if first == last:
                return []
            shard, places = Shard(self.work / name), order[first:last]
            there = np.flatnonzero(kept[name])[rows[places] - starts[name]].tolist()
            return [
                (place, Pair(shard.source_text[row], shard.target_text[row]))
                for place, row in zip(places.tolist(), there, strict=True)
            ]

        for place, pair in chain.from_iterable(each_of(self.work, drawn, kept)):
            found[place] = pair
        return found

    # Step 4: the shards.

    def encode(self) -> None:
        """Write the shards."""
        data, tokenizer = self.config.data, read_tokenizer(self.folder)
        languages = tuple(map(data.languages_of, self.corpora))
        tokens = self.config.corpus_tokens(tokenizer)
        task = EncodeTask(self.work, self.folder, data, tokens, languages)
        kept = self._kept()
        there = names_in(self.folder)
        missing = [name for name in kept if name not in there]
        self.watch.begin_step("tokenise", sum(len(kept[name]) for name in missing))
        for pairs in self.pool.run(partial(task, _corpus_of(name), name, kept[name].copy()) for name in missing):
            self.watch.advance(pairs)

    # Step 5: the manifest.

    def finish(self) -> None:
        """Write the lengths of all pairs and the manifest, and remove the work."""
        self.watch.begin_step("finish", None)
        most = self.config.data.max_tokens
        names, tokenizer = self._all_names(), read_tokenizer(self.folder)
        shards = dict(zip(names, each_of(self.folder, lambda name: Shard(self.folder / name), names), strict=True))
        if not any(each_of(self.folder, len, shards.values())):
            self._forget()
            raise CorpusError(f"no pair has at most data.max_tokens = {most} tokens on each side; raise it")
        tokens = self.config.corpus_tokens(tokenizer)
        lengths = each_of(self.folder, lambda name: _lengths(shards[name], tokens[_corpus_of(name)], most), names)
        write_array(self.folder / LENGTHS, np.concatenate(list(lengths)))
        manifest = Manifest(
            version=VERSION,
            settings={**text_settings(self.config), **token_settings(self.config, self.given)},
            inputs=tuple(self._inputs()),
            tokenizer=file_digests(tokenizer),
            corpora=tuple(self._facts(corpus, shards) for corpus in range(len(self.corpora))),
            shards=tuple(
                ShardFacts(name=name, pairs=len(shard), digest=shard.metadata["digest"])
                for name, shard in shards.items()
            ),
        )
        write_text(self.folder / MANIFEST, manifest.model_dump_json(indent=1) + "\n")
        remove_folder(self.work)  # another process may remove it too, see `prepare`

    def _facts(self, corpus: int, shards: dict[str, Shard]) -> CorpusFacts:
        names, dropped = self._names(corpus), DroppedPairs()
        filtered = list(each_of(self.work, lambda name: Shard(self.work / name).metadata, names))
        encoded = [shards[name].metadata for name in names]
        for facts in (*filtered, read_json(self.work / DUPLICATES)["corpora"][corpus], *encoded):
            dropped.include(facts)
        settings = self.corpora[corpus]
        source_tokens, target_tokens = (sum(facts["tokens"][side] for facts in encoded) for side in (0, 1))
        return CorpusFacts(
            name=str(settings.files()[0]),
            languages=self.config.data.languages_of(settings),
            read=sum(facts["lines"] for facts in filtered),
            kept=sum(len(shards[name]) for name in names),
            linked=sum(facts["linked"] for facts in encoded),
            source_tokens=source_tokens,
            target_tokens=target_tokens,
            dropped=dropped.counts,
            examples={reason: tuple(found) for reason, found in dropped.examples.items()},
        )

    def _inputs(self) -> Iterator[InputFile]:
        before = read_json(self.work / PLAN)["inputs"]
        files = _input_paths(self.config)
        tasks = (partial(_named_digest, key, path) for key, path in files.items())
        digests = dict(self.pool.run(tasks, begin=False))
        if changed := [*_changes(before, _input_states(self.config), named=False)]:
            raise CorpusError(f"{', '.join(changed)}: changed while the corpus was prepared; remove {self.folder}")
        for key, path in files.items():
            size, modified = before[key][1:]
            yield InputFile(key=key, path=path, size=size, modified=modified, sha256=digests[key])


def _filter(task: FilterTask, corpus: int, name: str, part: RawBlock | Piece) -> int:
    return task(corpus, name, part.read() if isinstance(part, Piece) else part)


def _hashes(key: str, shard: Shard) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Return both halves of the hashes of the pairs of a work shard."""
    return shard.numbers(key), shard.numbers(f"{key}_end")


def _lengths(shard: Shard, tokens: LanguageTokens, most: int) -> NDArray[Any]:
    """Return the lengths of the pairs of a shard, see `pair_lengths`; most: the largest that there may be."""
    ids = [shard.list_lengths(column) for column in ("source", "target")]
    return (np.stack(ids, axis=1) + framing(tokens)).astype(np.uint16 if most < 2**16 else np.uint32)


def _shard_name(corpus: int, number: int) -> str:
    return f"{corpus:03d}-{number:06d}.arrow"


def _corpus_of(name: str) -> int:
    return int(name.partition("-")[0])


def _repeated(
    keys: Sequence[tuple[NDArray[np.uint64], NDArray[np.uint64]]], kept: NDArray[np.bool_], bits: int, part: int
) -> NDArray[np.int64]:
    """Return the numbers of the pairs that are equal to one before, among those whose hash begins with `part`.

    keys: both halves of the hashes, of each shard
    kept: which pairs are there, of all shards
    bits: of the number of the part
    """
    numbers, heads, ends, start = [np.empty(0, np.int64)], [np.empty(0, np.uint64)], [np.empty(0, np.uint64)], 0
    for head, end in keys:
        there = kept[start : start + len(head)]
        mine = np.flatnonzero((head >> np.uint64(64 - bits) == part) & there if bits else there)
        numbers.append(start + mine)
        heads.append(head[mine])
        ends.append(end[mine])
        start += len(head)
    number, head, end = np.concatenate(numbers), np.concatenate(heads), np.concatenate(ends)
    order = np.lexsort((end, head))  # stable: equal ones stay in the order of the text
    head, end = head[order], end[order]
    again = np.flatnonzero((head[1:] == head[:-1]) & (end[1:] == end[:-1])) + 1
    found: NDArray[np.int64] = number[order[again]]
    return found


# What a corpus is prepared from.


def text_settings(config: Config) -> dict[str, Any]:
    """Return the settings that decide which pairs a corpus has."""
    data = config.data
    corpora = {
        f"train.{number}": {
            "languages": pair_name(data.languages_of(corpus)),
            "links": config.linked and corpus.alignment is not None,
            "columns": [*corpus.columns, corpus.score_column] if corpus.form else None,
        }
        for number, corpus in enumerate(data.train)
    }
    filters = data.filters.model_dump(mode="json", exclude={"max_token_ratio"})
    facts = {"max_ratio": data.max_ratio, "drop_duplicates": data.drop_duplicates, "filters": filters}
    return {"data": {**corpora, **facts}}


def token_settings(config: Config, tokenizer: Tokenizer | None) -> dict[str, Any]:
    """Return the settings that decide the token ids of its pairs; tokenizer: that is given, if one is."""
    learnt = {name: getattr(config.tokenizer, name) for name in LEARNT}
    tags = {f"train.{number}.tag": corpus.tag for number, corpus in enumerate(config.data.train) if corpus.tag}
    return {
        **tags,
        **({"data.terms": list(config.markers)} if config.markers else {}),
        "data.max_tokens": config.data.max_tokens,
        "data.max_token_ratio": config.data.filters.max_token_ratio,
        "tokenizer": learnt if tokenizer is None else {"files": file_digests(tokenizer)},
        "languages": config.languages and config.languages.model_dump(mode="json"),
    }


def file_digests(tokenizer: Tokenizer) -> dict[str, str]:
    """Return the SHA-256 of the files of a tokenizer, by name."""
    return {name: hashlib.sha256(content).hexdigest() for name, content in tokenizer.files().items()}


def _held_out(data: DataSettings) -> Iterator[str]:
    """Yield the normalised texts that no training text may have: of validation text, and of data.held_out."""
    pairs = (pair for corpus in data.valid for pair in read_pairs(corpus))
    lines = (normalise(line) for path in data.held_out for line in read_lines(path))
    yield from filter(None, chain(chain.from_iterable((pair.source, pair.target) for pair in pairs), lines))


def _input_paths(config: Config) -> dict[str, Path]:
    """Return the files that decide what the corpus holds, by the key of the config."""
    found: dict[str, Path] = {}
    for block, corpora in (("train", config.data.train), ("valid", config.data.valid)):
        for number, corpus in enumerate(corpora):
            keys = [*corpus.text_files(), *(["alignment"] if config.linked and corpus.alignment else [])]
            found |= {f"data.{block}.{number}.{key}": getattr(corpus, key) for key in keys}
    return found | {f"data.held_out.{number}": path for number, path in enumerate(config.data.held_out)}


def _input_states(config: Config) -> dict[str, list[Any]]:
    """Return path, bytes and time of modification of each input, by its key. Raises CorpusError if one is gone."""
    check_files(_input_paths(config).values())
    return {key: [str(path), *file_state(path)] for key, path in _input_paths(config).items()}


def _changed_inputs(before: Sequence[InputFile], config: Config) -> Iterator[str]:
    """Yield what differs in the files of a complete corpus. One that is gone is not needed any more."""
    now, then = _input_paths(config), {each.key: each for each in before}
    for key in {**then, **now}:
        if key not in then or key not in now:
            yield f"{key}: {then[key].path if key in then else 'none'} -> {now.get(key, 'none')}"
            continue
        saved, path = then[key], now[key]
        if not exists(path):
            if path != saved.path:
                yield f"{key}: {saved.path} -> {path}"
            continue
        same = file_state(path) == (saved.size, saved.modified)
        if not (same and path == saved.path) and digest_of(path) != saved.sha256:
            yield f"{path} has changed" if path == saved.path else f"{key}: {saved.path} -> {path}"


def _changes(before: Any, now: Any, key: str = "", *, named: bool = True) -> Iterator[str]:
    """Yield the differences of two blocks of settings as `key: before -> now`, or the keys alone."""
    for name in {**before, **now}:
        old, new, where = before.get(name), now.get(name), f"{key}{name}"
        if isinstance(old, dict) and isinstance(new, dict):
            yield from _changes(old, new, f"{where}.", named=named)
        elif old != new:
            yield f"{where}: {json.dumps(old)} -> {json.dumps(new)}" if named else where


def _named_digest(key: str, path: Path) -> tuple[str, str]:
    return key, digest_of(path)
