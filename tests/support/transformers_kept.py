"""Files and translations of tiny models by Transformers 5, kept in tests/data/transformers_5.tar.xz.

The test tools have Transformers 4, which makes the weights from seeds. The files of tokenizers and configs, the ids of
texts and the translations are from Transformers 5. To make them again:

    python -m tests.support.transformers_kept make FOLDER    with the test tools
    python -m tests.support.transformers_kept save FOLDER    in an environment with Transformers 5
"""

from __future__ import annotations

import io
import json
import os
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lingon.importers import pipeline
from lingon.importers.pipeline import Imported, ImportSettings
from lingon.importers.toolkits import transformers as toolkit
from lingon.importers.toolkits.comparison import never_generated
from lingon.text import normalise
from lingon.training.search import SearchSettings
from tests.support.foreign_models import lines, save_multilingual, save_opus_mt, save_t5
from tests.support.repository import ROOT

TABLES = ROOT / "docs" / "generators" / "reference_engines"
VARIABLE = "LINGON_REFERENCE_TABLE"


def write_rows(table: str, rows: Iterable[dict[str, Any]]) -> None:
    """Write rows to a table of TABLES, and replace rows of the same form and search. Do nothing by default."""
    if os.environ.get(VARIABLE) != "1":
        return
    path = TABLES / f"{table}.json"
    known = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []
    found = {(row["family"], row["form"], row["search"]): row for row in (*known, *rows)}
    TABLES.mkdir(exist_ok=True)
    path.write_text(json.dumps(list(found.values()), indent=1) + "\n", encoding="utf-8")


KEPT = ROOT / "tests" / "data" / "transformers_5.tar.xz"
FOUND = "found.json"
PAIR = ImportSettings(languages=(["en"], ["de"]), compare=False)
FORMS: dict[str, Callable[[Path], Path]] = {
    "OPUS-MT": lambda folder: save_opus_mt(folder, seed=2),
    "M2M-100": lambda folder: save_multilingual(folder, "m2m_100", seed=3, ends=3.0),
    "NLLB-200": lambda folder: save_multilingual(folder, "nllb", seed=3, ends=3.0, pieces_of="bpe"),
    "mBART-50": lambda folder: save_multilingual(folder, "mbart50", seed=3, ends=3.0),
    "T5": lambda folder: save_t5(folder, "t5", seed=2),
    "T5 1.1": lambda folder: save_t5(folder, "t5-v1.1", seed=2),
    "mT5": lambda folder: save_t5(folder, "mt5", seed=2),
    "MADLAD-400": lambda folder: save_t5(folder, "madlad", seed=2),
}
"""How the weights of each form are made."""

TEXTS = [
    *(normalise(text) for text in lines("en")[:12]),
    "Hello, world!",
    "ｆｕｌｌ ｗｉｄｔｈ and ﬁne ligatures",
    "½ of № 5 costs 10 €",
    "Ünïcode naïve café",
    "東京 and Москва",
    "😀 smiles",
    "a-b_c/d\\e",
    "1,299.99 in 2024",
]
SEARCHES = {"greedy": SearchSettings(), "beam 4": SearchSettings(beam_size=4)}


@dataclass(frozen=True, slots=True)
class KeptFindings:
    """The results of Transformers. version: its own.

    ids, translations: of TEXTS by form; translations by search too, as ids without the end
    """

    version: str
    ids: dict[str, list[list[int]]]
    translations: dict[str, dict[str, list[list[int]]]]


def read_kept() -> KeptFindings:
    """Read the results."""
    with tarfile.open(KEPT) as archive:
        file = archive.extractfile(FOUND)
        assert file is not None
        found = json.load(file)
    assert found["texts"] == TEXTS, "other texts than those that were translated: see the top of this file"
    return KeptFindings(found["version"], found["ids"], found["translations"])


def write_form(name: str, folder: Path) -> Path:
    """Write the folder of a form, as Transformers 5 saves it."""
    made = FORMS[name](folder / "made")
    saved = folder / "saved"
    with tarfile.open(KEPT) as archive:
        members = [each for each in archive.getmembers() if each.name.startswith(f"{name}/")]
        archive.extractall(folder, members, filter="data")
    (folder / name).rename(saved)
    shutil.copy(made / "model.safetensors", saved)
    return saved


def rows_of(imported: Imported, text: str) -> list[int]:
    """Return the ids of a text by the numbers of the files."""
    return [imported.source.source.rows[each] for each in imported.checkpoint.tokenizer.encode_source(text)]


def save(made: Path) -> None:
    """Write the file. Every comparison of an import must hold with this version of Transformers."""
    import transformers
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    found: dict[str, Any] = {"version": transformers.__version__, "texts": TEXTS, "ids": {}, "translations": {}}
    with tempfile.TemporaryDirectory() as room, tarfile.open(KEPT, "w:xz", preset=9) as archive:
        for name in FORMS:
            folder, saved = made / name, Path(room) / name
            AutoModelForSeq2SeqLM.from_pretrained(folder).save_pretrained(saved)
            AutoTokenizer.from_pretrained(folder).save_pretrained(saved)
            imported = pipeline.read_source(saved, PAIR, print)
            toolkit.compare(imported.checkpoint, imported.source, saved, TEXTS[:12])
            ids, translations = _found(imported, saved)
            found["ids"][name], found["translations"][name] = ids, translations
            for path in sorted(saved.iterdir()):
                if path.name != "model.safetensors":
                    _add(archive, f"{name}/{path.name}", path.read_bytes())
        _add(archive, FOUND, json.dumps(found, ensure_ascii=False, indent=1).encode())


def _found(imported: Imported, folder: Path) -> tuple[list[list[int]], dict[str, list[list[int]]]]:
    """Return the ids of all texts, and their translations by search."""
    checkpoint, source = imported.checkpoint, imported.source
    forced = [source.target.rows[each] for each in checkpoint.tokenizer.languages.forced]
    theirs = toolkit.TransformersToolkit(folder, toolkit.source_code(checkpoint))
    code = toolkit.target_code(checkpoint)
    ids = [theirs.encode(f"{code} {text}" if code else text) for text in TEXTS]
    silent = never_generated(source.target)
    translations = {
        name: [theirs.generate(each, silent, search, _most(imported, len(each), search), forced) for each in ids]
        for name, search in SEARCHES.items()
    }
    return ids, translations


def _most(imported: Imported, length: int, search: SearchSettings) -> int:
    return search.max_length(length, imported.checkpoint.model.settings.max_positions)


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    archive.addfile(member, io.BytesIO(content))


if __name__ == "__main__":
    step, where = sys.argv[1], Path(sys.argv[2])
    if step == "save":
        save(where)
    else:
        for name, make in FORMS.items():
            make(where / name)
