"""Golden sentences: the export writes them, and a server checks them before a bundle serves, on real graphs."""

from __future__ import annotations

import asyncio
import functools
import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from lingon.admin.v1 import admin_pb2 as admin_pb
from lingon.admin.v1 import admin_pb2_grpc as admin_grpc
from lingon.bundle.golden import MAX_BYTES, MAX_SENTENCES, Golden, alignment_links, alignment_text
from lingon.bundle.names import GOLDEN, SCORER
from lingon.bundle.store import Bundle, write_bundle
from lingon.errors import BundleError
from lingon.export import gates_text
from lingon.export.gated_bundle import NOT_ON_CUDA
from lingon.export.gates_text import GOLDEN_SENTENCES, MIN_MARGIN, golden_sentences
from lingon.export.pipeline import export_checkpoint
from lingon.export.settings import ExportSettings, ExportTexts
from lingon.serving.in_process import LocalTranslator
from lingon.serving.models.loading import LoadOptions, load_translator
from lingon.serving.runtime.device import CPU
from lingon.serving.runtime.onnx_runner import load_runner
from lingon.serving.server import Server
from lingon.serving.settings import Settings
from lingon.serving.translation.options import WHOLE
from lingon.training.checkpoint import Checkpoint
from lingon.training.corpus import Pair
from lingon.translation.v1 import translation_pb2 as pb
from lingon.translation.v1 import translation_pb2_grpc as pb_grpc
from tests.support.mutants import MUTANTS
from tests.support.random_models import accept_any_quality, decided, random_checkpoint

Export = Callable[..., Bundle]
FP32 = ExportSettings(precisions=("fp32",), shortlist=None, parity_sentences=2)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory, pairs: list[Pair]) -> Export:
    """Exports other weights for every seed, once; gain: see `decided`. Tests must not write to the bundle."""

    @functools.cache
    def export(seed: int, gain: float = 20) -> Bundle:
        folder = tmp_path_factory.mktemp("exported")
        checkpoint = random_checkpoint(folder, pairs, seed, byte_pieces=False)
        decided(checkpoint.model, gain)
        return export_checkpoint(checkpoint, folder / "digits", ExportTexts(pairs[:40]), FP32)

    return export


@pytest.fixture
def bundle(exported: Export, tmp_path: Path) -> Bundle:
    """A copy of the bundle of seed 1, as version 1 of a model."""
    return rewritten(exported(seed=1), tmp_path / "models" / "digits" / "1", {})


def golden_of(bundle: Bundle) -> Golden:
    return Golden.from_bytes(bundle.read(GOLDEN), bundle.folder)


def rewritten(bundle: Bundle, folder: Path, changed: dict[str, bytes]) -> Bundle:
    """Copy a bundle to the version of a folder, with other content in some files and their checksums."""
    files = {name: bundle.read(name) for name in bundle.manifest.checksums}
    return write_bundle(folder, replace(bundle.manifest, version=int(folder.name)), files | changed)


def load(bundle: Bundle, precision: str | None = None) -> None:
    translator = load_translator(bundle, LoadOptions(device="cpu", precision=precision, engines=1, golden=True))
    translator.engine.stop(0)


def test_an_export_writes_the_translations_of_each_cpu_precision(
    checkpoint: Checkpoint, pairs: list[Pair], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    accept_any_quality(monkeypatch)
    lines: list[str] = []
    settings = ExportSettings(parity_sentences=2)
    decided(checkpoint.model, gain=5)
    bundle = export_checkpoint(checkpoint, tmp_path / "digits", ExportTexts(pairs[:40], pairs), settings, lines.append)
    golden = golden_of(bundle)
    assert 0 < len(golden.sentences) <= GOLDEN_SENTENCES
    assert set(golden.translations) == set(golden.alignments) == {"fp32", "int8", "int8-native", "fp32-native"}
    assert set(golden.sentences) <= {pair.source for pair in pairs[:40]}
    for precision, expected in golden.translations.items():
        with LocalTranslator(bundle.folder, precision=precision) as translator:
            options = pb.DecodingOptions(return_alignment=True)
            reply = translator.translate(pb.TranslateRequest(texts=golden.sentences, options=options, text=WHOLE))
        best = [result.hypotheses[0] for result in reply.results]
        assert [each.text for each in best] == list(expected)
        for each, text in zip(best, golden.alignments[precision], strict=True):
            links = [(link.source.begin, link.target.begin) for link in each.alignment]
            assert [link[:2] for link in alignment_links(text)] == links
            weights = [link.weight for link in each.alignment]
            assert [link[2] for link in alignment_links(text)] == pytest.approx(weights, abs=6e-4)
    assert any(line.startswith(f"{len(golden.sentences)} golden sentences: the smallest margin is ") for line in lines)
    load(bundle)


def test_the_sentences_with_the_largest_margins_are_chosen_once_and_in_order(
    exported: Export, pairs: list[Pair]
) -> None:
    bundle = exported(seed=1, gain=3)
    texts = [pair.source for pair in pairs[:60]]
    runners = {"fp32": load_runner(bundle, "fp32", threads=1)}
    golden = golden_sentences(bundle, runners, [*texts, *texts, "1 " * 200])
    assert golden is not None
    assert list(golden.sentences) == [text for text in texts if text in golden.sentences]
    with LocalTranslator(bundle.folder) as translator:
        beam, greedy = (
            translator.translate(pb.TranslateRequest(texts=texts, options=options, text=WHOLE)).results
            for options in (pb.DecodingOptions(beam_size=4, num_hypotheses=2), pb.DecodingOptions(beam_size=1))
        )
    apart = {
        text: one.hypotheses[0].score - one.hypotheses[1].score
        for text, one, other in zip(texts, beam, greedy, strict=True)
        if one.hypotheses[0].text == other.hypotheses[0].text
    }
    assert set(golden.sentences) <= apart.keys() < set(texts), "both searches agree on them, and not on all"
    longer = sorted(texts, key=lambda text: -len(text))[:29]  # half of all 61, without the one that is too long
    least = min(apart[text] for text in golden.sentences)
    assert least >= MIN_MARGIN
    assert all(apart.get(text, 0) <= max(least, MIN_MARGIN) for text in longer if text not in golden.sentences)


@pytest.mark.parametrize("by", ["precision", "margin"])
def test_a_sentence_without_a_margin_is_no_golden_sentence(
    bundle: Bundle, exported: Export, pairs: list[Pair], by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If no sentence is left, the bundle has none, and the export logs it."""
    runners = {"fp32": load_runner(bundle, "fp32", threads=1)}
    if by == "precision":
        runners["int8"] = load_runner(exported(seed=3), "fp32", threads=1)
    else:
        monkeypatch.setattr(gates_text, "MIN_MARGIN", 1e3)
    lines: list[str] = []
    assert golden_sentences(bundle, runners, [pair.source for pair in pairs[:40]], lines.append) is None
    assert lines == [f"no golden sentences: none of 20 has a margin of {gates_text.MIN_MARGIN} in every precision"]


def test_other_weights_are_rejected_with_the_number_of_the_sentence_and_not_its_text(
    bundle: Bundle, exported: Export, tmp_path: Path
) -> None:
    other = exported(seed=2)
    mixed = rewritten(other, tmp_path / "mixed" / "1", {GOLDEN: bundle.read(GOLDEN)})
    before = threading.active_count()
    with pytest.raises(BundleError) as raised:
        load(mixed)
    golden = golden_of(bundle)
    with LocalTranslator(other.folder) as translator:
        reply = translator.translate(pb.TranslateRequest(texts=golden.sentences))
    translations = [result.hypotheses[0].text for result in reply.results]
    first = next(place for place, text in enumerate(translations, 1) if text != golden.translations["fp32"][place - 1])
    message = f"sentence {first} of {len(translations)} is translated otherwise than at the export, in fp32"
    assert str(raised.value) == f"{mixed.folder}/golden.json: {message}"
    assert threading.active_count() == before


def test_one_changed_letter_is_an_error(bundle: Bundle, tmp_path: Path) -> None:
    golden = golden_of(bundle)
    texts = list(golden.translations["fp32"])
    texts[6] += "."
    altered = replace(golden, translations={"fp32": tuple(texts)})
    with pytest.raises(BundleError, match=f"sentence 7 of {len(texts)} is translated otherwise"):
        load(rewritten(bundle, tmp_path / "altered" / "1", {GOLDEN: altered.to_bytes()}))


@pytest.mark.parametrize("name", ["cross-attention layers reversed", "causal mask turned round"])
def test_another_scorer_is_rejected_by_its_alignments(bundle: Bundle, tmp_path: Path, name: str) -> None:
    """The translations are the same: they come from the encoder and the decoder step."""
    (mutant,) = (each for each in MUTANTS if each.name == name)
    changed = mutant.apply({SCORER: bundle.read(f"fp32/{SCORER}")})
    mutated = rewritten(bundle, tmp_path / "mutated" / "1", {f"fp32/{SCORER}": changed[SCORER]})
    message = r"golden\.json: \d+ of \d+ links of the alignments differ .* in fp32; at most \d+ may$"
    with pytest.raises(BundleError, match=message):
        load(mutated)


def test_few_other_links_are_accepted_as_other_processors_may_give_them(bundle: Bundle, tmp_path: Path) -> None:
    golden = golden_of(bundle)
    texts = golden.alignments["fp32"]
    assert sum(map(len, map(alignment_links, texts[:1]))) <= sum(map(len, map(alignment_links, texts))) / 4
    other = [(source + 1, target, weight) for source, target, weight in alignment_links(texts[0])]
    altered = replace(golden, alignments={"fp32": (alignment_text(other), *texts[1:])})
    load(rewritten(bundle, tmp_path / "altered" / "1", {GOLDEN: altered.to_bytes()}))


def test_a_bundle_without_golden_sentences_loads_and_logs_it(
    bundle: Bundle, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = {name: bundle.read(name) for name in bundle.manifest.checksums if name != GOLDEN}
    earlier = write_bundle(tmp_path / "earlier" / "1", bundle.manifest, files)
    with caplog.at_level(logging.INFO):
        load(earlier)
        load(bundle)
    assert [record.message for record in caplog.records] == ["no golden sentences"]


def test_a_precision_without_a_gate_serves_with_a_warning_if_it_translates_nearly_as_fp32(
    checkpoint: Checkpoint, pairs: list[Pair], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As for fp16 exported without a GPU; here the CPU takes the place of the GPU."""
    decided(checkpoint.model, gain=5)
    settings = replace(FP32, precisions=("fp32", "fp16"))
    made = export_checkpoint(checkpoint, tmp_path / "digits", ExportTexts(pairs[:40]), settings)
    precisions = made.manifest.precisions
    here = replace(made.manifest, precisions=precisions | {"fp16": replace(precisions["fp16"], provider=CPU)})
    half = rewritten(Bundle(made.folder, here), tmp_path / "half" / "1", {})
    assert precisions["fp16"].report["quality"]["bleu"] == pytest.approx(
        precisions["fp16"].report["quality"]["fp32_bleu"]
    )
    load(half, "fp32")
    (quality,) = caplog.records
    assert quality.message.endswith("this model hardly translates; train it for longer or on more text")
    load(half, "fp16")
    record = caplog.records[-2]  # before that of the quality
    assert (record.levelname, record.message) == ("WARNING", "this precision has not passed the gate of its export")
    assert vars(record)["fields"] == {"model": "digits/1", "precision": "fp16", "gate": NOT_ON_CUDA}
    golden = golden_of(half)
    for wrong, most in ((1, True), (len(golden.sentences), False)):
        texts = [f"{text}." if place < wrong else text for place, text in enumerate(golden.translations["fp32"])]
        altered = Golden(golden.sentences, {"fp32": tuple(texts)}).to_bytes()
        bundle = rewritten(half, tmp_path / f"wrong {wrong}" / "1", {GOLDEN: altered})
        if most:
            load(bundle, "fp16")
        else:
            with pytest.raises(
                BundleError, match=rf"{wrong} of {wrong} sentences are translated otherwise in fp16 than"
            ):
                load(bundle, "fp16")


GOOD = Golden(("1 2",), {"fp32": ("2 1",)}, {"fp32": ("0-2:0.913 2-0:0.870",)})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"\xff", "not JSON"),
        (b"[]", "must be an object"),
        (b'{"sentences": ["1 2"]}', "translations is missing"),
        (b'{"sentences": "1 2", "translations": {}, "alignments": {}}', "sentences must be a list"),
        (b'{"sentences": [1], "translations": {}, "alignments": {}}', r"sentences\[0\] must be of type str"),
        (
            b'{"sentences": ["1"], "translations": {"fp32": ["1", "2"]}, "alignments": {}}',
            "2 translations in 'fp32' of 1 sentences",
        ),
        (
            b'{"sentences": [], "translations": {"fp32": []}, "alignments": {}}',
            "0 translations in 'fp32' of 0 sentences",
        ),
        (Golden(("1",) * (MAX_SENTENCES + 1), {}).to_bytes(), "at most 64 entries"),
        (Golden(("1" * MAX_BYTES,), {}).to_bytes(), "at most 1,048,576 are read"),
        (GOOD.to_bytes()[:-3] + b', "more": 1}', "more is not a field"),
        (GOOD.to_bytes().replace(b"0.870", b"0.87"), r"alignments.fp32\[0\] must be links as in 0-4:0.913 4-0:0.870"),
        (replace(GOOD, alignments={"fp32": ("", "")}).to_bytes(), "2 alignments in 'fp32' of 1 sentences"),
        (replace(GOOD, alignments={"int8": ("",)}).to_bytes(), "alignments in 'int8' without translations"),
    ],
)
def test_an_invalid_golden_file_is_an_error_with_its_path(content: bytes, message: str) -> None:
    with pytest.raises(BundleError, match=rf"models/x/golden\.json: .*{message}"):
        Golden.from_bytes(content, Path("models/x/golden.json"))
    assert Golden.from_bytes(GOOD.to_bytes(), Path("x")) == GOOD


def resident() -> int:
    """Return the resident memory of this process, in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


async def test_real_models_are_replaced_under_load_without_a_memory_leak(bundle: Bundle, exported: Export) -> None:
    other = rewritten(exported(seed=2), bundle.folder.parent / "2", {})
    translations = {str(one.manifest.version): golden_of(one) for one in (bundle, other)}
    assert translations["1"].translations != translations["2"].translations
    settings = Settings(models=(bundle.folder.parent,), port=0, metrics_port=0, admin_port=0, engines=2)
    ready, earlier = asyncio.Event(), set(threading.enumerate())
    server = Server(settings, lambda _: ready.set())
    task = asyncio.create_task(server.run())
    await ready.wait()
    async with (
        grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as channel,
        grpc.aio.insecure_channel(f"127.0.0.1:{server.admin_port}") as admin_channel,
    ):
        translate: Any = pb_grpc.TranslationServiceStub(channel).Translate
        swap: Any = admin_grpc.ModelServiceStub(admin_channel).SwapModel
        stop, seen = asyncio.Event(), set()

        async def ask() -> None:
            while not stop.is_set():
                texts = translations["1"].sentences[:3]
                reply = await translate(pb.TranslateRequest(texts=texts, options=pb.DecodingOptions(beam_size=4)))
                seen.add((reply.version, *(result.hypotheses[0].text for result in reply.results)))

        clients = [asyncio.create_task(ask()) for _ in range(3)]
        sizes = []
        for number in range(8):
            await swap(admin_pb.SwapModelRequest(path=str(bundle.folder.parent / str(1 + number % 2))))
            sizes.append(resident())
        for version, changed, message in (
            (8, {GOLDEN: bundle.read(GOLDEN)}, r"golden\.json: sentence \d+ of"),
            (9, {"fp32/encoder.onnx": b"canary"}, r"encoder\.onnx: onnxruntime does not load it\"\n"),
        ):
            bad = rewritten(other, bundle.folder.parent / str(version), changed)
            with pytest.raises(grpc.aio.AioRpcError, match=message):
                await swap(admin_pb.SwapModelRequest(path=str(bad.folder)))
        stop.set()
        await asyncio.gather(*clients)
        names = sorted(thread.name for thread in set(threading.enumerate()) - earlier)
    server.stop()
    assert await task == 0
    assert {version for version, *_ in seen} == {"1", "2"}
    assert len(seen) == 2  # every reply of a version is the same
    assert [name for name in names if name.startswith("engine")] == ["engine 0", "engine 1"]
    growths = [later - earlier for earlier, later in zip(sizes[1:], sizes[5:], strict=False)]  # of four swaps each
    assert min(growths) < 20e6, [size // 1_000_000 for size in sizes]
