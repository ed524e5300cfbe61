"""The engines by name, the settings in which they are measured, and a process for each.

`python -m lingon.bench.engines.worker ENGINE` answers JSON lines with JSON lines:

    {"do": "prepare", "bundle": FOLDER, "folder": FOLDER}      write the engine's model files
    {"do": "load", "folder": FOLDER, "setting": {...}}         -> load_s, loaded_mb, peak_mb
    {"do": "sources", "sources": [[...], ...]}                 set the sources to translate
    {"do": "translate", "cell": {...}, "count": N, "repeats": N, "staggered": false} -> ms, outputs, decoding_mb
    {"do": "parts", "cell": {...}, "count": N} -> ms and parts, see lingon.bench.engines.parts
    {"do": "kernels", "cell": {...}, "count": N} -> kernels of a step, by name how many and their microseconds;
        or reason: why they cannot be counted

Output that an engine prints goes to standard error. The process answers only when it is idle, so that no spinning
thread takes time from the next engine.
"""

from __future__ import annotations

import hashlib
import importlib
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, Literal

import lingon.bench.engines
from lingon.bench.engines.base import BenchEngine, Cell, Setting, Tokens
from lingon.bench.engines.conversion import unconvertible
from lingon.bench.engines.parts import EngineOfParts, Kernels, kernels_a_step, kernels_of
from lingon.bench.options import check_choice
from lingon.bench.results_file import Row
from lingon.bench.worker_process import Worker, answer_messages
from lingon.bundle.names import MANIFEST, WEIGHTS
from lingon.bundle.store import Bundle, open_bundle
from lingon.errors import LingonError
from lingon.files import publish_folder
from lingon.serving.models.loading import default_engines, threads_per_engine

LINGON = "lingon"
CTRANSLATE2 = "ctranslate2"
TRANSFORMERS = "transformers"
LINGON_GRAPHS = "lingon-cuda-graphs"
LINGON_NATIVE = "lingon-native"
TRANSFORMERS_STATIC = "transformers-static"
TORCH_GRAPH = "torch-graph"
FXTRANSLATE = "fxtranslate"

MODULES = {
    LINGON: "lingon.bench.engines.lingon",
    LINGON_GRAPHS: "lingon.bench.engines.lingon",
    LINGON_NATIVE: "lingon.bench.engines.lingon",
    CTRANSLATE2: "lingon.bench.engines.ctranslate2",
    TRANSFORMERS: "lingon.bench.engines.transformers",
    "optimum": "lingon.bench.engines.optimum",
    TRANSFORMERS_STATIC: "lingon.bench.engines.transformers",
    TORCH_GRAPH: "lingon.bench.engines.torch_graph",
    FXTRANSLATE: "lingon.bench.engines.fxtranslate",
}
"""The module of every engine. lingon.bench.engines.base describes its functions."""

ENGINES = (LINGON, CTRANSLATE2, TRANSFORMERS, "optimum", FXTRANSLATE)
"""The engines of `lingon bench decode`. lingon.bench.gpu names the engines of `lingon bench gpu`."""

OF_LINGON = (LINGON, LINGON_GRAPHS, LINGON_NATIVE)
READ_BUNDLES = (*OF_LINGON, TORCH_GRAPH)
"""Engines that read the bundle itself, so that no files are written for them."""

PRECISIONS: tuple[Literal["fp32", "int8"], ...] = ("fp32", "int8")
WITH_SHORTLIST = (LINGON, CTRANSLATE2, FXTRANSLATE)


@dataclass(frozen=True, slots=True)
class EngineSetting:
    """An engine in one setting, which runs in its own process."""

    engine: str
    setting: Setting

    @property
    def label(self) -> str:
        """Engine, precision and workers x threads, such as "ctranslate2 int8 2x1"."""
        return f"{self.engine} {self.setting.precision} {self.shape}"

    @property
    def shape(self) -> str:
        """Workers x threads of each worker, such as "2x1"."""
        return f"{self.setting.workers}x{self.setting.threads}"

    def supports(self, cell: Cell) -> bool:
        """Return whether this setting can decode the cell as it is specified.

        CTranslate2 with more workers than sentences in a batch would decode more sentences at a time than the cell
        allows. Only some engines have a shortlist. fxtranslate has greedy search alone, and no lengths that are given.
        """
        if self.engine == FXTRANSLATE and (cell.beam_size > 1 or cell.is_forced):
            return False
        keeps_batch = self.engine == LINGON or self.setting.workers <= cell.batch
        return keeps_batch and (not cell.shortlist or self.engine in WITH_SHORTLIST)


def engine_settings(engines: Sequence[str], cores: int, precisions: Sequence[str] = ()) -> list[EngineSetting]:
    """Return all settings in which these engines are measured on so many cores. No names mean all of them."""
    check_choice("--engine", engines, ENGINES)
    check_choice("--precision", precisions, PRECISIONS)
    shapes = dict.fromkeys([(1, cores), (cores, 1), (1, 1)])  # 1x1, because threads may delay each other
    of_ctranslate2 = [
        Setting(precision=precision, workers=workers, threads=threads)
        for precision in PRECISIONS
        for workers, threads in shapes
    ]
    of_lingon = [  # the defaults of `lingon serve`
        Setting(precision=precision, workers=default_engines(), threads=threads_per_engine(default_engines()))
        for precision in PRECISIONS
    ]
    of_fxtranslate = [Setting(precision="int8", workers=workers, threads=1) for workers in dict.fromkeys((1, cores))]
    by_engine = {LINGON: of_lingon, CTRANSLATE2: of_ctranslate2, FXTRANSLATE: of_fxtranslate}
    others = [Setting(workers=1, threads=cores)]
    return [
        EngineSetting(name, setting)
        for name in ENGINES
        if name in (engines or ENGINES)
        for setting in by_engine.get(name, others)
        if setting.precision in (precisions or PRECISIONS)
    ]


def unavailable_reason(engine_setting: EngineSetting, bundle: Bundle) -> str | None:
    """Return why an engine cannot run a bundle here; None if it can, as far as is known before it is loaded."""
    if engine_setting.engine in OF_LINGON and engine_setting.setting.precision not in bundle.manifest.precisions:
        return f"{bundle.folder} has no precision {engine_setting.setting.precision}"
    reason: str | None = module_of(engine_setting.engine).unavailable_reason()
    if reason is None and engine_setting.engine == FXTRANSLATE:
        reason = module_of(FXTRANSLATE).unconvertible(bundle)
    elif reason is None and engine_setting.engine not in OF_LINGON:
        reason = unconvertible(bundle)
    return reason


def module_of(engine: str) -> ModuleType:
    """Return the module of an engine. It imports the library that it wraps when the engine is loaded."""
    return importlib.import_module(MODULES[engine])


def folder_of(engine: str, bundle: Bundle, cache: Path) -> Path:
    """Return the folder with an engine's model files: the bundle for READ_BUNDLES, else a folder below cache.

    The name of that folder contains a digest of the manifest and of the code that converts the bundle, so that
    outdated files are never measured.
    """
    if engine in READ_BUNDLES:
        return bundle.folder
    digest = hashlib.sha256((bundle.folder / MANIFEST).read_bytes())
    for path in sorted(Path(lingon.bench.engines.__path__[0]).glob("*.py")):
        digest.update(path.read_bytes())
    return (
        cache
        / MODULES[engine].rpartition(".")[2]
        / f"{bundle.manifest.name}-{bundle.manifest.version}-{digest.hexdigest()[:12]}"
    )


def bytes_of(engine_setting: EngineSetting, folder: Path, bundle: Bundle) -> int:
    """Return the size on disk of the model files that a setting reads, of a bundle only the files of its precision."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    if engine_setting.engine in READ_BUNDLES:
        # The files of fp16 have the fp32 weights that fp16 holds exactly.
        precision = engine_setting.setting.precision
        weights = bundle.manifest.precisions[precision].weights
        unread = {name for name in bundle.manifest.precisions if name != precision}
        parts = [(path, path.relative_to(folder).parts) for path in files]
        files = [
            path for path, (first, *rest) in parts if first not in unread and (first != WEIGHTS or rest[0] in weights)
        ]
    return sum(path.stat().st_size for path in files)


Measure = Callable[[int], tuple[float, Tokens]]
"""Translate the sentences of a cell N times, and return the milliseconds of one time and the outputs."""


@dataclass(slots=True)
class LoadedEngine:
    """The process of an engine that has loaded its model.

    loaded_mb: MiB of resident memory after loading, mapped files included
    decoding_mb: the same at its highest in the last cell; peak_mb: at its highest so far
    of_twin: whether that is the twin of the bundle that is measured, see `Engines`
    """

    process: Worker
    load_s: float
    disk_mb: float
    loaded_mb: float
    peak_mb: float
    decoding_mb: float = 0.0
    of_twin: bool = False

    def columns(self) -> Row:
        """Return the columns of the results that describe the process."""
        return {
            "load_s": round(self.load_s, 3),
            "disk_mb": round(self.disk_mb, 1),
            "loaded_mb": round(self.loaded_mb, 1),
            "decoding_mb": round(self.decoding_mb, 1),
            "peak_mb": round(self.peak_mb, 1),
            "of_twin": self.of_twin,
        }


@dataclass(slots=True)
class Engines:
    """The processes of engine settings for a bundle, used as a `with`.

    twin: the bundle for engines that cannot run the first one, if there is one
    show: receives a line about the current activity, for a progress display
    missing: why an engine cannot run here at all, by setting
    loaded: the others
    """

    bundle: Bundle
    settings: Sequence[EngineSetting]
    cache: Path
    show: Callable[[str], None]
    twin: Bundle | None = None
    missing: dict[EngineSetting, str] = field(default_factory=dict)
    loaded: dict[EngineSetting, LoadedEngine] = field(default_factory=dict)
    _stacks: dict[EngineSetting, ExitStack] = field(default_factory=dict)

    def __enter__(self) -> Engines:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for stack in self._stacks.values():
            stack.close()

    def load(self) -> None:
        """Load all engines that are not loaded: first all of them, later the engines that failed in a cell."""
        for each in self.settings:
            if each in self.loaded or each in self.missing:
                continue
            reason, bundle = unavailable_reason(each, self.bundle), self.bundle
            if reason and self.twin is not None and unavailable_reason(each, self.twin) is None:
                reason, bundle = None, self.twin
            if reason:
                self.missing[each] = reason
                continue
            stack = self._stacks[each] = ExitStack()
            try:
                self.loaded[each] = load_engine(each, bundle, self.cache, self.show, stack)
                self.loaded[each].of_twin = bundle is not self.bundle
            except LingonError as error:
                stack.close()
                self.missing[each] = str(error)

    def measures(
        self, cell: Cell, sources: Sequence[Sequence[int]]
    ) -> tuple[dict[EngineSetting, Measure], dict[EngineSetting, str]]:
        """Return the function that measures the cell, for each engine that can decode it, and why the others cannot.

        Every engine decodes the cell once for that. An engine that fails, for example without enough memory, is stopped
        and loaded again for the next cell.
        """
        self.load()
        found: dict[EngineSetting, Measure] = {}
        reasons = dict(self.missing)
        for each, engine in list(self.loaded.items()):
            measure = measure_of(engine, cell, len(sources))
            try:
                engine.process.ask(do="sources", sources=sources)
                measure(1)
                found[each] = measure
            except LingonError as error:
                reasons[each] = str(error)
                del self.loaded[each]
                self._stacks.pop(each).close()
        return found, reasons


def load_engine(
    engine_setting: EngineSetting, bundle: Bundle, cache: Path, show: Callable[[str], None], stack: ExitStack
) -> LoadedEngine:
    """Write missing model files of an engine, and start its process, which the stack ends."""
    folder = folder_of(engine_setting.engine, bundle, cache)
    if not folder.is_dir():
        show(f"writing the model files of {engine_setting.engine}")
        with publish_folder(folder) as part, _worker(engine_setting) as process:
            process.ask(do="prepare", bundle=str(bundle.folder), folder=str(part))
    show(f"loading {engine_setting.label}")
    process = stack.enter_context(_worker(engine_setting))
    found = process.ask(do="load", folder=str(folder), setting=asdict(engine_setting.setting))
    return LoadedEngine(process, disk_mb=bytes_of(engine_setting, folder, bundle) / 2**20, **found)


def measure_of(engine: LoadedEngine, cell: Cell, count: int, *, staggered: bool = False) -> Measure:
    """Return the function that measures an engine in a cell, on the first `count` sources."""
    return partial(_measure, engine, cell, count, staggered)


def parts_of(engine: LoadedEngine, cell: Cell, count: int) -> dict[str, float] | None:
    """Decode the first `count` sources once, and return the milliseconds of the whole and of its parts.

    Returns None for an engine without parts. See lingon.bench.engines.parts.
    """
    found: dict[str, float] | None = engine.process.ask(do="parts", cell=asdict(cell), count=count)["parts"]
    return found


def step_kernels_of(engine: LoadedEngine, cell: Cell, count: int) -> Kernels | str:
    """Return the kernels of a step in a cell whose lengths are given, or why they cannot be counted, in one line."""
    answer = engine.process.ask(do="kernels", cell=asdict(cell), count=count)
    if "reason" in answer:
        return str(answer["reason"])
    return {name: (times, microseconds) for name, (times, microseconds) in answer["kernels"].items()}


def _worker(engine_setting: EngineSetting) -> Worker:
    return Worker("lingon.bench.engines.worker", engine_setting.engine, label=engine_setting.label)


def _measure(engine: LoadedEngine, cell: Cell, count: int, staggered: bool, repeats: int) -> tuple[float, Tokens]:
    answer = engine.process.ask(do="translate", cell=asdict(cell), count=count, repeats=repeats, staggered=staggered)
    engine.decoding_mb = answer["decoding_mb"]
    engine.peak_mb = max(engine.peak_mb, engine.decoding_mb)
    return answer["ms"], answer["outputs"]


STAGGER = 2  # decoder steps: the sentences of a staggered run arrive within the time of this many steps
COUNTED = 8, 16  # target tokens of the two runs whose difference is counted; multiples of the steps of a run
IDLE_TIMEOUT_S = 2.0  # seconds that a process has to become idle


class EngineWorker:
    """One engine, and the answers to its messages."""

    def __init__(self, engine: str) -> None:
        self._module = module_of(engine)
        self._sources: list[list[int]] = []
        self._engine: BenchEngine
        self._setting = Setting()
        self._last_ms: dict[Cell, float] = {}

    def answer(self, do: str, **values: Any) -> dict[str, Any]:
        """Return the answer to one message."""
        handlers: dict[str, Callable[..., dict[str, Any]]] = {
            "prepare": self._prepare,
            "load": self._load,
            "sources": self._set_sources,
            "translate": self._translate,
            "parts": self._parts,
            "kernels": self._kernels,
        }
        return handlers[do](**values)

    def _prepare(self, bundle: str, folder: str) -> dict[str, Any]:
        self._module.prepare(open_bundle(Path(bundle)), Path(folder))
        return {}

    def _load(self, folder: str, setting: dict[str, Any]) -> dict[str, Any]:
        start = time.perf_counter()
        self._setting = Setting(**setting)
        self._engine = self._module.load(Path(folder), self._setting)
        load_s = time.perf_counter() - start
        return {"load_s": load_s, "loaded_mb": _memory_mb("VmRSS"), "peak_mb": _memory_mb("VmHWM")}

    def _set_sources(self, sources: list[list[int]]) -> dict[str, Any]:
        self._sources = sources
        return {}

    def _translate(self, cell: dict[str, Any], count: int, repeats: int, staggered: bool) -> dict[str, Any]:
        decoded, sources = Cell(**cell), self._sources[:count]
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # VmHWM counts from here
        start = time.perf_counter()
        for _ in range(repeats):
            outputs = self._staggered(sources, decoded) if staggered else self._engine.translate(sources, decoded)
        milliseconds = 1000 * (time.perf_counter() - start) / repeats
        if not staggered:
            self._last_ms[decoded] = milliseconds
        _wait_until_idle()
        return {"ms": milliseconds, "outputs": outputs, "decoding_mb": _memory_mb("VmHWM")}

    def _parts(self, cell: dict[str, Any], count: int) -> dict[str, Any]:
        if not isinstance(self._engine, EngineOfParts):
            return {"parts": None}
        start = time.perf_counter()
        with self._engine.stopwatch.round():
            self._engine.translate(self._sources[:count], Cell(**cell))
        whole = time.perf_counter() - start
        _wait_until_idle()
        seconds = {"whole": whole, **self._engine.stopwatch.seconds}
        return {"parts": {name: 1000 * each for name, each in seconds.items()}}

    def _kernels(self, cell: dict[str, Any], count: int) -> dict[str, Any]:
        """Every run that is counted follows one that records its graphs."""
        if self._setting.device != "cuda" and not self._setting.operators:
            return {"reason": "kernels are counted on CUDA"}
        found: list[Kernels] = []
        for length in COUNTED:
            decoded = replace(Cell(**cell), exact_length=length, target_ratio=None)
            work = partial(self._engine.translate, self._sources[:count], decoded)
            if not self._setting.operators:
                work()
            try:
                found.append(kernels_of(work, self._setting.operators))
            except LingonError as error:
                return {"reason": str(error)}
        return {"kernels": kernels_a_step(found[0], found[1], COUNTED[1] - COUNTED[0])}

    def _staggered(self, sources: list[list[int]], cell: Cell) -> Tokens:
        from lingon.bench.engines.lingon import Lingon  # Other engines' processes must not load it.

        assert isinstance(self._engine, Lingon)
        step_seconds = self._last_ms[cell] / 1000 / cell.longest
        return self._engine.translate_staggered(sources, cell, STAGGER * step_seconds)


def _memory_mb(name: str) -> float:
    """Return MiB of memory of this process: VmRSS is the resident memory, VmHWM its peak.

    The peak of getrusage would include that of the parent process before exec.
    """
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{name}:"))


def _wait_until_idle() -> None:
    """Wait until no thread of this process uses the processor: OpenMP's threads spin for a while after their work."""
    deadline = time.perf_counter() + IDLE_TIMEOUT_S
    while time.perf_counter() < deadline:
        before = time.process_time()
        time.sleep(0.01)
        if time.process_time() - before < 0.001:
            return


def main() -> None:
    """Answer messages until standard input ends."""
    answer_messages(EngineWorker(sys.argv[1]).answer)


if __name__ == "__main__":
    main()
