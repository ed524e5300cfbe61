"""Marian's engine beside an imported model: the tokens that it generates from ids, and its translations of texts.

The engine is that of the browsers, compiled to WebAssembly: the npm package of PACKAGE, which Node runs without a
network. `marian_engine.js` beside this file is the program.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from lingon.errors import LingonError
from lingon.export.gates_text import NEAR_TIE, BeamSettings
from lingon.importers.files.pieces import Numbering
from lingon.importers.files.tensors import Tensors
from lingon.importers.foreign_model import ForeignModel
from lingon.importers.readers.marian import ALPHA, BIAS
from lingon.importers.readers.marian_files import (
    FLOAT32,
    INT8,
    OPTIONS,
    binary_file,
    model_file,
    open_model,
    read_decoder_options,
)
from lingon.importers.toolkits.comparison import LENGTH_EXTRA, NEVER, compare_tokens, new_ids, spelled_by_ids
from lingon.text import EOS, UNK
from lingon.training.checkpoint import Checkpoint
from lingon.training.search import Hypothesis, SearchSettings

TOOLKIT = "Marian"
PACKAGE = "@browsermt/bergamot-translator"
REMEDY = f"it needs Node, and `npm install {PACKAGE}@0.4.9` in the current folder or in one that NODE_PATH names"
PROGRAM = Path(__file__).with_name("marian_engine.js")
SEARCHES: tuple[BeamSettings, ...] = ((1, 0.0),)  # its beam search is another one: it can find what ours does not
LENGTH_FACTOR = 10.0  # bound of a translation in lengths of its source, far above that of a bundle
LONGEST = 1000  # pieces; a longer text is cut


class EngineError(LingonError):
    """Marian's engine is not there, or cannot do what it is asked. The message is one line."""


class MarianEngine:
    """The engine as a process of its own, with one model at a time; a context manager.

    version: of its npm package
    """

    def __init__(self, folder: Path | None = None) -> None:
        """folder: where Node looks for the package first; by default the current one. Raises EngineError."""
        if (node := shutil.which("node")) is None:
            raise EngineError("there is no command node")
        self._process = subprocess.Popen(
            [node, str(PROGRAM)],
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            encoding="utf-8",
        )
        try:
            self.version = str(self._read()["version"])
        except EngineError:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    @property
    def name(self) -> str:
        """Its name in a report."""
        return f"Marian's engine (bergamot-translator {self.version})"

    def load(
        self,
        model: Path,
        vocabularies: Sequence[Path],
        *,
        shortlist: Path | None = None,
        beam_size: int = 1,
        length_penalty: float = 1.0,
        length_factor: float = LENGTH_FACTOR,
        quantised: bool = False,
    ) -> None:
        """Load a model instead of the last one. Raises EngineError.

        model: a binary file; vocabularies: sentencepiece models, one if both sides share it
        length_factor: bound of a translation in lengths of its source, the end tokens counted
        quantised: whether the matrices of the file are 8-bit integers, and its scales those of activations
        """
        options = {
            "beam-size": beam_size,
            "normalize": length_penalty,
            "word-penalty": 0,
            "max-length-factor": length_factor,
            "skip-cost": False,  # True leaves out the softmax, which beams need to be compared
            "gemm-precision": "int8shiftAlphaAll" if quantised else "float32",
            "alignment": "soft",
            "ssplit-mode": "sentence",  # a line is a sentence
            "max-length-break": LONGEST,
            "mini-batch-words": 100 * LONGEST,  # with a smaller one the engine refuses the bound of a translation
            "cpu-threads": 0,
            "workspace": 128,
            "quiet": True,
            "quiet-translation": True,
        }
        files: dict[str, Any] = {
            "model": str(model.absolute()),
            "vocabularies": [str(x.absolute()) for x in vocabularies],
        }
        files["shortlist"] = None if shortlist is None else str(shortlist.absolute())
        text = "".join(f"{name}: {json.dumps(value)}\n" for name, value in options.items())
        self._ask({"load": {**files, "options": text}})

    def translate(self, texts: Sequence[str]) -> list[str]:
        """Return the translation of each text, one line without a line break, alone. Raises EngineError."""
        return list(self._ask({"translate": list(texts)})["translations"])

    def close(self) -> None:
        """End the process."""
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        self._process.kill()
        self._process.wait()

    def _ask(self, message: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{json.dumps(message)}\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise EngineError("its process ended") from None
        return self._read()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise EngineError("its process ended")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise EngineError(str(answer["error"]).partition("\n")[0])
        return answer


def is_installed() -> bool:
    """Return whether Node finds the engine."""
    try:
        MarianEngine().close()
    except EngineError:
        return False
    return True


class MarianToolkit:
    """A model as the engine loads it: its tensors in float32, with vocabularies that read and write ids.

    The engine takes and returns texts. A piece is named by its id here, so that a text is a list of ids, and nothing
    depends on how texts are cut.
    """

    length_extra, near_tie = LENGTH_EXTRA, NEAR_TIE

    def __init__(self, engine: MarianEngine, folder: Path, source: ForeignModel, room: Path) -> None:
        """folder: of the files of the model; room: a folder to write to. Raises SourceModelError, EngineError."""
        self._engine, self.name = engine, f"{engine.name} in float32"
        tensors, options = open_model(model_file(folder, read_decoder_options(folder)))
        self._model = room / "model.bin"
        never = set(range(_rows(source.target))) - new_ids(source.target).keys()
        self._model.write_bytes(_float32_file(tensors, options, sorted(never)))
        sides = [source.source] if source.source == source.target else [source.source, source.target]
        self._vocabularies = [room / f"{number}.spm" for number in range(len(sides))]
        for path, numbering in zip(self._vocabularies, sides, strict=True):
            path.write_bytes(spelled_by_ids(numbering))
        self._rows = source.source.rows
        engine.load(self._model, self._vocabularies)

    def searches(self, forced: Sequence[int]) -> Sequence[BeamSettings]:
        return SEARCHES

    def is_comparable(self, source: Sequence[int], ours: Hypothesis, settings: SearchSettings) -> bool:
        """Return whether a source can be spelled: unknown pieces in a row would be one."""
        return UNK not in source

    def generate(
        self,
        source: Sequence[int],
        never: Sequence[int],
        settings: SearchSettings,
        most: int,
        forced: Sequence[int] = (),
    ) -> list[int]:
        """Return the generated ids. Raises EngineError if one of `never` is among them.

        The model that it loads has a bias against them, unless it has no bias.
        """
        assert not forced
        assert settings.beam_size == 1  # the bound of the length is another one, so that only greedy search can be cut
        (text,) = self._engine.translate([" ".join(str(row) for row in source if row != self._rows[EOS])])
        found = [int(each) for each in text.split()][:most]
        if not set(found).isdisjoint(never):
            raise EngineError("it generates pieces that are never generated, and the model has no bias against them")
        return found


def compare(checkpoint: Checkpoint, source: ForeignModel, folder: Path, texts: Sequence[str]) -> Iterator[str]:
    """Compare tokens with those of the engine and yield a line for each search. Raises ParityError.

    A model that the engine cannot load is not compared, and a line says so.
    """
    with MarianEngine() as engine, tempfile.TemporaryDirectory() as room:
        try:
            yield from compare_tokens(MarianToolkit(engine, folder, source, Path(room)), checkpoint, source, texts)
        except EngineError as error:
            yield f"not confirmed by {engine.name}: {error}"


def _rows(numbering: Numbering) -> int:
    """Return the number of rows of a table of Marian, without the last one of Lingon, which is of zeros."""
    return max(numbering.rows)


def _float32_file(tensors: Tensors, options: str, never: Sequence[int]) -> bytes:
    """Return a binary file of Marian with all tensors but the scales of activations in float32."""
    items = [(OPTIONS, INT8, (len(options.encode()) + 1,), options.encode() + b"\0")]
    for name, tensor in tensors.stored():
        if name.endswith(ALPHA):
            continue
        values = np.atleast_2d(tensor.float().numpy())
        if name == BIAS:
            values = values.copy()
            values[0, list(never)] = NEVER
        items.append((name, FLOAT32, values.shape, np.ascontiguousarray(values).tobytes()))
    return binary_file(items)
