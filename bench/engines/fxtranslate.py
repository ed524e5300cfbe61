"""fxtranslate in the benchmarks: students of Firefox, in files of Marian that are written from a bundle.

It computes 8-bit integers alone, with the ranges of the int8 graphs of the bundle, and greedy search. It has no
batches: a call is one sentence in one thread. The sentences of a batch are divided among the workers, each a thread
with a translator of its own. The bound of a translation is twice its source and 4 tokens, which no setting changes, so
that only cells are compared whose translations end by themselves. See lingon.importers.toolkits.fxtranslate.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any, NamedTuple

from lingon.bench.engines.base import Cell, Setting, Tokens, limit, missing_package, read_limits, write_limits
from lingon.bench.engines.conversion import Graph, shortlist_of
from lingon.bundle import names
from lingon.bundle.store import Bundle

MODEL, SHORTLIST, VOCABULARIES = "model.bin", "lex.s2t.bin", ("source.spm", "target.spm")


def unavailable_reason() -> str | None:
    """Return a reason if fxtranslate is not installed."""
    return missing_package("fxtranslate")


def unconvertible(bundle: Bundle) -> str | None:
    """Return why fxtranslate cannot compute a bundle's model; None for a student of Firefox."""
    needed = "fxtranslate computes students with SSRU cells, norms after their layers and ReLU alone"
    if bundle.manifest.architecture != "transformer" or not bundle.manifest.states_of("recurrent"):
        return f"{bundle.label} has no SSRU cells; {needed}"
    if not {"fp32", "int8"} <= bundle.manifest.precisions.keys():
        return f"{bundle.label} has not both fp32 and int8, whose weights and ranges are needed"
    encoder = Graph.read(bundle, names.ENCODER)
    if "encoder_norm.weight" in encoder.weights or encoder.is_pre_norm or "Relu" not in encoder.operators:
        return f"{bundle.label} is another Transformer; {needed}"
    if "output.weight" in Graph.read(bundle, names.DECODER).weights:
        return f"{bundle.label} has an output matrix of its own; {needed}"
    return None


def prepare(bundle: Bundle, folder: Path) -> None:
    """Write model, vocabularies and shortlist."""
    from lingon.bench.engines import marian_student  # It imports PyTorch, which would count as memory of the engine.

    folder.mkdir(parents=True, exist_ok=True)
    (folder / MODEL).write_bytes(marian_student.model_file(bundle))
    sizes = bundle.manifest.source_vocab, bundle.manifest.target_vocab
    for name, size in zip(VOCABULARIES, sizes, strict=True):
        (folder / name).write_bytes(marian_student.pieces_file(size))
    shortlist = shortlist_of(bundle)
    if shortlist is not None:
        (folder / SHORTLIST).write_bytes(marian_student.shortlist_file(shortlist))
    write_limits(bundle, folder)


def load(folder: Path, setting: Setting) -> FxTranslate:
    """Return the translators of a folder that `prepare` wrote."""
    return FxTranslate(folder, setting)


class FxTranslate:
    """fxtranslate as a lingon.bench.engines.base.BenchEngine."""

    def __init__(self, folder: Path, setting: Setting) -> None:
        self._limits = read_limits(folder)
        shortlist = folder / SHORTLIST
        source, target = (folder / name for name in VOCABULARIES)
        files = StudentFiles(folder / MODEL, source, target, shortlist if shortlist.is_file() else None)
        self._workers = [TranslatorThread(files) for _ in range(setting.workers)]
        for worker in self._workers:
            worker.translate((), shortlist=False).result()

    def translate(self, sources: Sequence[Sequence[int]], cell: Cell) -> Tokens:
        """Translate the sources, one by one in each thread."""
        texts, count = [" ".join(map(str, source[:-1])) for source in sources], len(self._workers)
        waiting = [
            worker.translate(texts[first::count], shortlist=cell.shortlist)
            for first, worker in enumerate(self._workers)
        ]
        found: Tokens = [[] for _ in sources]
        for first, results in enumerate(waiting):
            for index, text in zip(range(first, len(sources), count), results.result(), strict=True):
                most = limit(len(sources[index]), cell, self._limits)
                found[index] = [int(piece) for piece in text.split()][:most]
        return found


class StudentFiles(NamedTuple):
    """The files of a student that fxtranslate reads."""

    model: Path
    source: Path
    target: Path
    shortlist: Path | None


class TranslatorThread:
    """A thread with its translators, with and without the shortlist. They may be used and freed in no other one."""

    def __init__(self, files: StudentFiles) -> None:
        self._tasks: SimpleQueue[_Task | None] = SimpleQueue()
        thread = Thread(target=_work, args=(files, self._tasks), daemon=True)
        thread.start()
        weakref.finalize(self, _end, thread, self._tasks)

    def translate(self, texts: Sequence[str], *, shortlist: bool) -> Future[list[str]]:
        """Enqueue texts, and return their translations as a future."""
        found: Future[list[str]] = Future()
        self._tasks.put((texts, shortlist, found))
        return found


_Task = tuple[Sequence[str], bool, "Future[list[str]]"]


def _end(thread: Thread, tasks: SimpleQueue[_Task | None]) -> None:
    """End a thread, and wait for it: a thread that frees its translators while Python exits aborts the process."""
    tasks.put(None)
    thread.join()


def _work(files: StudentFiles, tasks: SimpleQueue[_Task | None]) -> None:
    """Translate until a task is None. A translator is made when it is first needed."""
    import fxtranslate

    model, source, target = (path.read_bytes() for path in files[:3])
    made: dict[bool, Any] = {}
    while (task := tasks.get()) is not None:
        texts, shortlist, found = task
        try:
            if shortlist not in made:
                lexicon = files.shortlist.read_bytes() if shortlist and files.shortlist is not None else None
                made[shortlist] = fxtranslate.Translator(model, source, target, lexicon)
            found.set_result([made[shortlist].translate(text) for text in texts])
        except BaseException as error:  # A panic in Rust is no Exception, and a thread waits for the result.
            found.set_exception(error.with_traceback(None))  # It would keep the translators beyond this thread.
