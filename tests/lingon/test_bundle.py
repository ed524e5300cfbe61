"""The bundle format: a published bundle is read back, and any change of it is refused by name."""

from __future__ import annotations

import json
import resource
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingon.bundle import (
    FORMAT,
    BeamSize,
    Bundle,
    Confidence,
    LengthRange,
    Limits,
    Manifest,
    Precision,
    ReliabilityBin,
    State,
    TextData,
    is_bundle,
    open_bundle,
    versions,
    write_bundle,
)
from lingon.bundle.schema import unmet_rule
from lingon.cli.options.decoding import MAX_BEAM_SIZE
from lingon.errors import BundleError
from tests.support.bundles import FILES, MANIFEST, write_small_bundle
from tests.support.repository import ROOT

HERE = Path("manifest.json")


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    return write_small_bundle(tmp_path / "en-de" / "1")


def test_a_published_bundle_is_read_back(bundle: Bundle) -> None:
    opened = open_bundle(bundle.folder)
    assert opened == bundle
    assert replace(opened.manifest, checksums={}) == MANIFEST
    assert {name: opened.read(name) for name in FILES} == FILES
    opened.verify()


def test_a_folder_of_models_is_no_bundle_and_its_models_are_named(tmp_path: Path, bundle: Bundle) -> None:
    write_small_bundle(tmp_path / "en-fr" / "3")
    (tmp_path / "notes").mkdir()
    with pytest.raises(BundleError) as refused:
        open_bundle(tmp_path)
    models = f"{tmp_path}/en-de, {tmp_path}/en-fr"
    assert str(refused.value) == f"{tmp_path}: a folder of models, not one of them; name one of {models}"
    with pytest.raises(BundleError, match=r"notes: no bundle \(no manifest\.json\) and no version of one$"):
        open_bundle(tmp_path / "notes")


@pytest.mark.no_cover
@given(
    st.builds(
        lambda text, number, figures, shape: replace(
            MANIFEST,
            name=text,
            version=number,
            limits=Limits(number, number, float(number) / 400, number, 8),
            states=(State("state", "memory", ("source_length", *shape)),),
            precisions={text: Precision(text, "passed", (), figures)},
        ),
        st.from_regex(r"\A\w[\w.+-]{0,99}\Z"),
        st.integers(1, 2**15),
        st.dictionaries(
            st.text(), st.one_of(st.floats(allow_nan=False, allow_infinity=False), st.lists(st.integers()))
        ),
        st.lists(st.integers(1, 9), max_size=4),
    )
)
def test_a_manifest_has_one_byte_sequence_and_is_read_back(manifest: Manifest) -> None:
    content = manifest.to_bytes()
    assert Manifest.from_bytes(content, HERE) == manifest
    assert Manifest.from_bytes(content, HERE).to_bytes() == content


@pytest.mark.no_cover
def test_a_manifest_with_any_one_bit_flipped_is_refused_by_name(bundle: Bundle) -> None:
    content = bundle.manifest.to_bytes()
    for place in range(len(content)):
        for bit in range(8):
            altered = bytearray(content)
            altered[place] ^= 1 << bit
            with pytest.raises(BundleError, match=r"^manifest\.json: "):
                Manifest.from_bytes(bytes(altered), HERE)


def test_a_truncated_or_extended_manifest_is_refused(bundle: Bundle) -> None:
    content = bundle.manifest.to_bytes()
    for altered in [
        *(content[:length] for length in range(len(content))),
        content + b" ",
        content + b"\n",
        content * 2,
    ]:
        with pytest.raises(BundleError, match=r"^manifest\.json: "):
            Manifest.from_bytes(altered, HERE)


@pytest.mark.parametrize(
    "content", [b"", b"null", b"[]", b"{}", b'{"format": 1}', b"\xff", b"[" * 100_000, b"1e999999"]
)
def test_bytes_that_are_no_manifest_are_refused(content: bytes) -> None:
    with pytest.raises(BundleError, match=r"^manifest\.json: "):
        Manifest.from_bytes(content, HERE)


@pytest.mark.parametrize("found", [0, 1, FORMAT - 1, FORMAT + 1, str(FORMAT), None, float(FORMAT), 2.5, True])
def test_another_format_is_refused_with_what_to_do(found: object, bundle: Bundle) -> None:
    path = bundle.folder / "manifest.json"
    path.write_text(json.dumps({**asdict(bundle.manifest), "format": found}))
    with pytest.raises(BundleError) as refused:
        open_bundle(bundle.folder)
    assert str(refused.value) == (
        f"{path}: has bundle format {found!r}, this version of Lingon reads format {FORMAT}; write the bundle "
        f"again with lingon export or lingon import"
    )


TEXT = TextData(
    ("Tom", "Boston"),
    (LengthRange(4, 0.2, 5.0), LengthRange(64, 0.5, 2.0)),
    Confidence(-1.5, {"mean": 2.0, "unknown": -8.25}, 0.0625, (ReliabilityBin(9, 0.25, 0.5),)),
)


@pytest.mark.parametrize("text", [TEXT, TextData(("Tom",))], ids=["all", "words"])
def test_text_data_is_read_back(text: TextData) -> None:
    manifest = replace(MANIFEST, text=text)
    assert Manifest.from_bytes(manifest.to_bytes(), HERE) == manifest


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (replace(TEXT, lengths=TEXT.lengths[::-1]), "text.lengths must be ascending by most_source"),
        (replace(TEXT, words=("a b",)), r"text.words\[0\] must be a word"),
        (replace(TEXT, confidence=replace(TEXT.confidence, low=1.5)), "text.confidence.low must be 0 to 1"),
    ],
)
def test_text_data_that_contradicts_itself_is_refused(wrong: TextData, message: str) -> None:
    with pytest.raises(BundleError, match=message):
        Manifest.from_bytes(replace(MANIFEST, text=wrong).to_bytes(), HERE)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("change", ["flip", "cut", "grow", "empty", "missing", "folder"])
def test_a_changed_file_is_refused_by_name(name: str, change: str, bundle: Bundle) -> None:
    path = bundle.folder / name
    content = path.read_bytes()
    path.unlink()
    if change == "folder":
        path.mkdir()
    elif change != "missing":
        last = content[:-1] + bytes([content[-1] ^ 1])
        path.write_bytes({"flip": last, "cut": content[:-1], "grow": content + b"\0", "empty": b""}[change])
    for use in (bundle.verify, lambda: bundle.read(name)):
        with pytest.raises(BundleError) as caught:
            use()
        assert str(caught.value).startswith(f"{path}: ")


def test_every_flipped_byte_of_a_file_is_refused(bundle: Bundle) -> None:
    path = bundle.folder / "weights" / "fp16.bin"
    content = path.read_bytes()
    for place in range(0, len(content), 7):
        path.write_bytes(content[:place] + bytes([content[place] ^ 0x10]) + content[place + 1 :])
        with pytest.raises(BundleError, match=r"fp16\.bin: was altered"):
            bundle.graphs("fp32", "decoder.onnx")


def test_a_file_that_is_not_listed_is_refused_by_name(bundle: Bundle) -> None:
    extra = bundle.folder / "fp32" / "extra.onnx"
    extra.write_bytes(b"")
    with pytest.raises(BundleError, match=r"extra\.onnx: the manifest does not list it"):
        bundle.verify()
    with pytest.raises(BundleError, match=r"extra\.onnx: the manifest does not list it"):
        bundle.read("fp32/extra.onnx")
    for outside in ("../1/MODEL_CARD.md", "/etc/hostname", "manifest.json"):
        with pytest.raises(BundleError, match="does not list it"):
            bundle.read(outside)


def test_a_precision_comes_with_the_weights_that_it_reads_and_no_others(bundle: Bundle) -> None:
    graphs, weights = bundle.graphs("fp16")
    assert (list(graphs), list(weights)) == ([], ["fp16.bin"])
    graphs, weights = bundle.graphs("fp32", "decoder.onnx")
    assert (graphs, sorted(weights)) == ({"decoder.onnx": b"decoder"}, ["fp16.bin", "fp32.bin"])


def test_the_error_of_an_unknown_precision_lists_the_known_ones(bundle: Bundle) -> None:
    with pytest.raises(BundleError, match="no precision 'int4'; it has fp32, fp16"):
        bundle.graphs("int4", "encoder.onnx")


def test_a_kind_of_state_and_a_shape_with_sizes(bundle: Bundle) -> None:
    (cache,) = bundle.manifest.states_of("cache")
    assert cache.sized(capacity=32, source_length=7) == (4, 32, 64)
    assert bundle.manifest.limits.max_output(5) == 17
    assert bundle.manifest.limits.max_output(9999) == 256


def test_the_highest_version_is_opened(tmp_path: Path) -> None:
    for version in (2, 10, 9):
        write_bundle(tmp_path / str(version), replace(MANIFEST, version=version), FILES)
    for other in ("011", "v99", ".12.part", "0"):
        (tmp_path / other).mkdir()
        (tmp_path / other / "manifest.json").write_bytes(b"{}")
    (tmp_path / "77").mkdir()
    assert versions(tmp_path) == [2, 9, 10]
    assert open_bundle(tmp_path).label == "en-de/10"
    assert open_bundle(tmp_path / "2").manifest.version == 2
    assert is_bundle(tmp_path)
    assert is_bundle(tmp_path / "9")
    assert not is_bundle(tmp_path / "77")


def test_the_error_of_a_missing_bundle_names_the_path(tmp_path: Path) -> None:
    for path, why in ((tmp_path, "no bundle"), (tmp_path / "nothing", "no such folder")):
        with pytest.raises(BundleError, match=f"{path}: {why}"):
            open_bundle(path)


def test_a_published_version_never_changes(bundle: Bundle) -> None:
    with pytest.raises(BundleError, match="a published version never changes"):
        write_bundle(bundle.folder, MANIFEST, {"MODEL_CARD.md": b"other"})
    open_bundle(bundle.folder).verify()


def test_an_error_while_writing_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(TypeError):
        write_bundle(tmp_path / "1", replace(MANIFEST, architecture=object()), FILES)  # type: ignore[arg-type]
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(BundleError, match=f"^{tmp_path}/file/1: cannot be written .Not a directory."):
        write_bundle(tmp_path / "file" / "1", MANIFEST, FILES)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_full_disk_is_named_and_nothing_is_left(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(BundleError, match=f"^{tmp_path}/new/models/1: cannot be written .File too large.$"):
            write_bundle(tmp_path / "new" / "models" / "1", MANIFEST, FILES)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert not list(tmp_path.iterdir())


def test_a_copied_version_folder_is_refused(bundle: Bundle) -> None:
    model = bundle.folder.parent
    shutil.copytree(bundle.folder, model / "3")
    with pytest.raises(BundleError, match=r"^.*/3/manifest\.json: declares version 1 in the folder of version 3$"):
        open_bundle(model)
    assert open_bundle(model / "3").label == "en-de/1"  # a path that names the folder itself is opened


WRITER = """
import sys
from pathlib import Path
from lingon.bundle import write_bundle
from tests.support.bundles import MANIFEST

files = {f"fp32/{number}": bytes([number]) * 3_000_000 for number in range(8)}
print("ready", flush=True)
write_bundle(Path(sys.argv[1]), MANIFEST, files)
"""


@pytest.mark.parametrize("milliseconds", [0, 20, 40, 80, 160])
def test_a_kill_at_any_moment_leaves_a_whole_bundle_or_none(milliseconds: int, tmp_path: Path) -> None:
    root = ROOT
    command = [sys.executable, "-c", WRITER, str(tmp_path / "1")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=root) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        time.sleep(milliseconds / 1000)
        process.send_signal(signal.SIGKILL)
    assert versions(tmp_path) in ([], [1])
    if versions(tmp_path):
        open_bundle(tmp_path).verify()
    else:
        assert not (tmp_path / "1").exists()
        write_small_bundle(tmp_path / "1").verify()
        assert [path.name for path in tmp_path.iterdir()] == ["1"]


def test_the_commands_take_every_beam_size_that_a_bundle_may_allow() -> None:
    assert unmet_rule(BeamSize, MAX_BEAM_SIZE) == ""
    assert unmet_rule(BeamSize, MAX_BEAM_SIZE + 1) != ""
