"""`lingon verify`: it passes a bundle as it was exported, and each of its checks finds what it is there for."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lingon.bundle.golden import Golden
from lingon.bundle.manifest import PASSED
from lingon.bundle.names import CARD, DECODER, GOLDEN, SCORER
from lingon.bundle.store import Bundle, open_bundle, write_bundle
from lingon.errors import BundleError, CorpusError, LingonError, ParityError, SettingsError
from lingon.export.cli import verify as verb
from lingon.export.gated_bundle import NOT_ON_CUDA
from lingon.export.gates_text import engine_search
from lingon.export.pipeline import export_checkpoint
from lingon.export.settings import ExportSettings, ExportTexts
from lingon.export.verification import Verification, check_invariance, next_version, text_of, verify_bundle
from lingon.scoring import score
from lingon.serving.runtime.device import CPU, CUDA, DeviceChoice
from lingon.serving.runtime.onnx_runner import OnnxRunner, load_runner
from lingon.serving.runtime.runner import Encoded
from lingon.training.corpus import Pair
from tests.support.mutants import MUTANTS
from tests.support.random_models import decided, random_checkpoint


@pytest.fixture(scope="session")
def exported(tmp_path_factory: pytest.TempPathFactory, pairs: list[Pair]) -> Bundle:
    """A bundle with golden sentences; precisions for CUDA are for the CPU, which takes the place of the card."""
    folder = tmp_path_factory.mktemp("verified")
    checkpoint = random_checkpoint(folder, pairs, seed=1)
    decided(checkpoint.model, gain=5)
    settings = ExportSettings(
        precisions=("fp32-cuda", "fp16"), shortlist=None, beam_size=3, parity_sentences=2, gate_sentences=2
    )
    made = export_checkpoint(checkpoint, folder / "cuda" / "digits", ExportTexts(pairs[:40]), settings)
    precisions = {name: replace(entry, provider=CPU) for name, entry in made.manifest.precisions.items()}
    files = {name: made.read(name) for name in made.manifest.checksums}
    return write_bundle(folder / "digits" / "1", replace(made.manifest, precisions=precisions), files)


@pytest.fixture
def bundle(exported: Bundle, tmp_path: Path) -> Bundle:
    """A copy of the bundle, as version 1 of a model."""
    files = {name: exported.read(name) for name in exported.manifest.checksums}
    return open_bundle(write_bundle(tmp_path / "digits" / "1", exported.manifest, files).folder)


SEARCHES = ("greedy", "beam 3")
TOKENS, SCORES, ALONE = (
    [f"{check}, {search}" for search in SEARCHES] for check in ("tokens of fp32", "scores", "alone and in batches")
)
RUN = """
import sys
from lingon.export.cli import verify
verify({folder!r}, precision="fp32-cuda")
sys.exit(3 if "torch" in sys.modules or "onnx" in sys.modules else 0)
"""


def verified(bundle: Bundle, precision: str = "fp32-cuda", pairs: list[Pair] | None = None) -> Verification:
    given = None if pairs is None else [(pair.source, pair.target) for pair in pairs]
    return verify_bundle(bundle, DeviceChoice(CPU, precision), given, 20)


def changed(bundle: Bundle, files: dict[str, bytes]) -> Bundle:
    """The bundle with other files and their checksums, as version 2."""
    kept = {name: bundle.read(name) for name in bundle.manifest.checksums}
    manifest = dataclasses.replace(bundle.manifest, version=2)
    return write_bundle(bundle.folder.parent / "2", manifest, kept | files)


def mutated(bundle: Bundle, name: str, *graphs: str, precision: str = "fp32-cuda") -> Bundle:
    (mutant,) = (each for each in MUTANTS if each.name == name)
    edited = dataclasses.replace(mutant, graphs=graphs).apply(
        {graph: bundle.read(f"{precision}/{graph}") for graph in graphs}
    )
    return changed(bundle, {f"{precision}/{graph}": content for graph, content in edited.items()})


@pytest.mark.parametrize("precision", ["fp32", "fp32-cuda", "fp16"])
def test_a_bundle_as_it_was_exported_passes_every_check(bundle: Bundle, precision: str) -> None:
    found = verified(bundle, precision)
    assert found.failed == []
    compared = [] if precision == "fp32" else TOKENS
    names = ["checksums", "graphs", "golden sentences", *compared, SCORES[0], ALONE[0], SCORES[1], ALONE[1]]
    assert [row.check for row in found.rows] == names
    assert all(row.result and row.bound for row in found.rows)
    assert found.report[ALONE[0]]["identical"] == found.report[ALONE[0]]["sentences"] > 0


def test_gate_data_adds_bleu_and_the_quality_of_lossy_precisions(bundle: Bundle, pairs: list[Pair]) -> None:
    lossy, exact = (verified(bundle, precision, pairs[:30]) for precision in ("fp16", "fp32-cuda"))
    assert (lossy.failed, exact.failed) == ([], [])
    assert lossy.report["quality"]["sentences"] == 20
    assert "quality" not in exact.report
    assert exact.report[ALONE[1]]["alone_bleu"] == exact.report[ALONE[1]]["batch_bleu"]


def test_an_altered_file_fails_the_checksums_and_nothing_else_runs(bundle: Bundle) -> None:
    path = bundle.folder / "fp32-cuda" / DECODER
    path.write_bytes(path.read_bytes()[:-1] + b"\0")
    found = verified(bundle)
    assert [(row.check, row.passed) for row in found.rows] == [("checksums", False)]
    assert "was altered" in found.rows[0].result


def test_graphs_that_do_not_load_fail_and_nothing_else_runs(bundle: Bundle) -> None:
    found = verified(changed(bundle, {f"fp32-cuda/{SCORER}": b"no graph"}))
    assert [(row.check, row.passed) for row in found.rows] == [("checksums", True), ("graphs", False)]
    assert "onnxruntime does not load it" in found.rows[1].result


def test_other_golden_translations_fail_the_golden_sentences_only(bundle: Bundle) -> None:
    golden = Golden.from_bytes(bundle.read(GOLDEN), bundle.folder)
    texts = {name: tuple(f"{text} ." for text in found) for name, found in golden.translations.items()}
    altered = dataclasses.replace(golden, translations=texts).to_bytes()
    assert verified(changed(bundle, {GOLDEN: altered})).failed == ["golden sentences"]


def test_steps_with_a_mistake_fail_tokens_and_scores(bundle: Bundle) -> None:
    found = verified(mutated(bundle, "mask of a step off by one", DECODER, "greedy.onnx"))
    assert {*TOKENS, *SCORES} <= set(found.failed)
    assert not {*ALONE, "checksums", "graphs"} & set(found.failed)


def test_a_mistake_in_fp32_itself_fails_its_scores(bundle: Bundle) -> None:
    found = verified(mutated(bundle, "positions off by one in a step", DECODER, precision="fp32"), "fp32")
    assert set(SCORES) <= set(found.failed)


def test_a_scorer_with_a_mistake_fails_scores_and_not_tokens(bundle: Bundle) -> None:
    found = verified(mutated(bundle, "labels off by one", SCORER))
    assert found.failed == SCORES


class DependsOnOthers(OnnxRunner):
    """A runner whose encoder gives other values to a sentence that is encoded with others."""

    def encode(self, source_ids: np.ndarray, source_lengths: np.ndarray) -> Encoded:
        found = OnnxRunner.encode(self, source_ids, source_lengths)
        scale = np.float32(1 if len(source_ids) == 1 else self.graph_bytes)
        return {name: values * scale if name.startswith("memory.") else values for name, values in found.items()}


@pytest.mark.parametrize(("provider", "least"), [(CPU, "100.0%"), (CUDA, "99.5%")])
def test_translations_that_depend_on_the_batch_fail(
    bundle: Bundle, pairs: list[Pair], provider: str, least: str
) -> None:
    text = text_of(bundle, [(pair.source, pair.target) for pair in pairs], 30)
    good = load_runner(bundle, "fp32", threads=1)
    values: dict[str, Any] = {each.name: getattr(good, each.name) for each in dataclasses.fields(good) if each.init}
    assert check_invariance(good, provider, text, 1, 0.0).identical == 30
    other = DependsOnOthers(**{**values, "graph_bytes": -1})
    message = rf"beam size 1: \d+ of 30 sentences have the same translation alone and in a batch, at least {least} must"
    with pytest.raises(ParityError, match=message):
        check_invariance(other, provider, text, 1, 0.0)


def test_bleu_counts_the_characters_of_a_target_language_without_blanks(
    bundle: Bundle, pairs: list[Pair], tmp_path: Path
) -> None:
    files = {name: bundle.read(name) for name in bundle.manifest.checksums}
    manifest = dataclasses.replace(bundle.manifest, target_language="ja")
    text = text_of(
        write_bundle(tmp_path / "ja" / "1", manifest, files), [(pair.source, pair.target) for pair in pairs], 8
    )
    runner = load_runner(bundle, "fp32", threads=1)
    found = [text.tokenizer.decode(best.tokens) for best, *_ in engine_search(runner, text.sources, 1, 0.0)]
    assert text.references is not None
    by_words, by_characters = (score(found, text.references, language).bleu for language in ("", "ja"))
    assert by_words != by_characters
    same = check_invariance(runner, CPU, text, 1, 0.0)
    assert (same.alone_bleu, same.batch_bleu) == (by_characters, by_characters)


def test_the_last_bit_of_a_score_counts_on_the_cpu_only(bundle: Bundle, pairs: list[Pair]) -> None:
    text = text_of(bundle, [(pair.source, pair.target) for pair in pairs], 8)
    good = load_runner(bundle, "fp32", threads=1)
    values: dict[str, Any] = {each.name: getattr(good, each.name) for each in dataclasses.fields(good) if each.init}
    other = DependsOnOthers(**{**values, "graph_bytes": 1 + 1e-6})
    assert check_invariance(other, CUDA, text, 1, 0.0).identical == 8
    with pytest.raises(ParityError, match="of 8 sentences have the same translation"):
        check_invariance(other, CPU, text, 1, 0.0)


def test_the_verb_prints_every_check_and_ends_with_the_failed_ones(
    bundle: Bundle, capsys: pytest.CaptureFixture[str]
) -> None:
    verb(bundle.folder.parent, precision="fp16")
    printed = capsys.readouterr().out
    assert printed.startswith("digits/1: fp16 on CPU\n")
    assert "FAILED" not in printed
    mutated(bundle, "labels off by one", SCORER, precision="fp16")
    message = "^digits/2: fp16 on CPU: 2 of 9 checks failed: scores, greedy; scores, beam 3$"
    with pytest.raises(ParityError, match=message):
        verb(bundle.folder.parent, precision="fp16", publish=True)
    assert capsys.readouterr().out.count("FAILED") == 2
    assert sorted(path.name for path in bundle.folder.parent.iterdir()) == ["1", "2"], "nothing was published"


def test_the_verb_needs_neither_torch_nor_onnx(bundle: Bundle) -> None:
    code = RUN.format(folder=bundle.folder).replace("PosixPath(", "__import__('pathlib').Path(")
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_published_version_has_the_same_files_and_the_report(bundle: Bundle) -> None:
    assert bundle.manifest.precisions["fp32-cuda"].gate == NOT_ON_CUDA
    verb(bundle.folder, precision="fp32-cuda", publish=True)
    made = open_bundle(bundle.folder.parent)
    made.verify()
    assert (made.folder, made.manifest.version) == (bundle.folder.parent / "2", 2)
    old, new = dict(bundle.manifest.checksums), dict(made.manifest.checksums)
    assert old.pop(CARD) != new.pop(CARD)
    assert old == new
    card = made.read(CARD).decode()
    assert card.startswith("# digits, version 2\n")
    assert f"- fp32-cuda: verified on {CPU} at {made.manifest.created}\n" in card
    entry, others = made.manifest.precisions["fp32-cuda"], {"fp32", "fp16"}
    assert entry.gate == PASSED
    assert entry.report["verification"]["provider"] == CPU
    assert entry.report["verification"][TOKENS[0]]["identical"] > 0
    assert entry.report["tensors"] == bundle.manifest.precisions["fp32-cuda"].report["tensors"]
    assert {name: made.manifest.precisions[name] for name in others} == {
        name: bundle.manifest.precisions[name] for name in others
    }
    assert verified(made).failed == []


def test_a_version_in_another_folder_is_not_published(bundle: Bundle) -> None:
    moved = bundle.folder.rename(bundle.folder.parent / "copy")
    message = f"^--publish: {moved} is not the folder of version 1; give NAME/1$"
    with pytest.raises(SettingsError, match=message):
        verb(moved, precision="fp32", publish=True)
    assert not list(bundle.folder.parent.glob("[0-9]"))


def test_what_cannot_be_verified_is_an_error_of_one_line(bundle: Bundle, tmp_path: Path) -> None:
    manifest = bundle.manifest
    files = {name: bundle.read(name) for name in manifest.checksums}
    bare = write_bundle(tmp_path / "bare" / "1", manifest, {name: files[name] for name in files if name != GOLDEN})
    renamed = {"fp32": manifest.precisions["fp32"], "int4": manifest.precisions["fp16"]}
    strange = write_bundle(tmp_path / "strange" / "1", dataclasses.replace(manifest, precisions=renamed), files)
    alone = dataclasses.replace(manifest, precisions={"fp16": manifest.precisions["fp16"]})
    without = write_bundle(tmp_path / "without" / "1", alone, files)
    for name, content in {"long": "1 " * 100, "empty": "\n", "two": "1\n2"}.items():
        (tmp_path / name).write_text(f"{content}\n")
    long, empty, two = (tmp_path / name for name in ("long", "empty", "two"))
    cases: list[tuple[Path, dict[str, Any], type[LingonError], str]] = [
        (bare.folder, {}, BundleError, f"{bare.folder}: has no golden sentences; give sentences with --gate-data"),
        (strange.folder, {"precision": "int4"}, BundleError, "digits/1: there are no bounds for int4, only for fp32, "),
        (without.folder, {"precision": "fp16"}, BundleError, "digits/1: has no fp32 to compare fp16 with"),
        (bundle.folder, {"gate_data": (long, long)}, SettingsError, "--gate-data: none of 1 sources has at most 20 "),
        (bundle.folder, {"gate_data": (empty, empty)}, SettingsError, f"--gate-data {empty}: has no pair of sentences"),
        (bundle.folder, {"gate_data": (two, long)}, CorpusError, f"{long}:2: ends here, but {two} goes on"),
        (bundle.folder, {"gate_data": (two, tmp_path / "no")}, CorpusError, f"{tmp_path}/no: No such file"),
    ]
    for folder, options, kind, message in cases:
        with pytest.raises(kind) as raised:
            verb(folder, **options)
        assert str(raised.value).startswith(message)
        assert "\n" not in str(raised.value)


def test_a_version_is_published_above_one_that_is_being_copied(bundle: Bundle) -> None:
    (bundle.folder.parent / "7").mkdir()
    assert next_version(bundle) == bundle.folder.parent / "8"
