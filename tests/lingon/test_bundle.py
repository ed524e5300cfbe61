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
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingon.bundle.manifest import (
    FORMAT,
    MOST_LANGUAGES,
    BeamSize,
    Confidence,
    Languages,
    LengthRange,
    Limits,
    Manifest,
    Precision,
    ReliabilityBin,
    SourceLanguage,
    State,
    TargetLanguage,
    TextData,
)
from lingon.bundle.schema import unmet_rule
from lingon.bundle.store import Bundle, is_bundle, open_bundle, versions, write_bundle
from lingon.cli.options import MAX_BEAM_SIZE
from lingon.errors import BundleError
from lingon.text import LanguageTokens
from tests.support.bundles import FILES, MANIFEST, put, write_manifest, write_small_bundle
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
    with pytest.raises(BundleError, match=r"/3/manifest\.json: .*version 1 .* version 3$"):
        open_bundle(model)
    assert open_bundle(model / "3").label == "en-de/1"  # a path that names the folder itself is opened


WRITER = """
import sys
from pathlib import Path
from lingon.bundle.store import write_bundle
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


ORIGIN = Path("manifest.json")
SOURCES = (SourceLanguage("en", (4,), (5,)), SourceLanguage("zh-Hant", (), (6, 7)))
TARGETS = (TargetLanguage("de", (8,), (9,)), TargetLanguage("en", (), ()))
MANY = replace(
    MANIFEST, source_language="mul", target_language="mul", shortlist=None, languages=Languages(SOURCES, TARGETS)
)


def test_languages_are_read_back() -> None:
    assert Manifest.from_bytes(MANY.to_bytes(), ORIGIN) == MANY
    one = replace(MANY, source_language="en", languages=Languages(SOURCES[:1], TARGETS))
    assert Manifest.from_bytes(one.to_bytes(), ORIGIN) == one


def test_a_source_may_have_no_end_token() -> None:
    without = replace(MANIFEST, source_end=False)
    assert Manifest.from_bytes(without.to_bytes(), ORIGIN) == without


def test_the_languages_of_the_written_format_are_null_for_one_pair() -> None:
    values = json.loads(MANIFEST.to_bytes())
    assert (values["format"], values["languages"]) == (FORMAT, None)
    del values["languages"]
    with pytest.raises(BundleError, match="languages is missing"):
        Manifest.from_bytes(json.dumps(values).encode(), ORIGIN)


def test_a_pair_has_the_tokens_of_both_sides_and_room_for_its_own() -> None:
    assert MANY.languages is not None
    assert MANY.languages.tokens("en", "de") == LanguageTokens((8, 4), (5,), (9,))
    assert MANY.languages.tokens("zh-Hant", "en") == LanguageTokens((), (6, 7), ())
    assert list(MANY.languages.pairs()) == [("en", "de"), ("zh-Hant", "de"), ("zh-Hant", "en")]
    seen = MANY.for_pair("en", "de")
    assert (seen.source_language, seen.target_language, seen.languages) == ("en", "de", None)
    assert seen.limits == replace(MANIFEST.limits, max_target_tokens=MANIFEST.limits.max_target_tokens - 1)
    for pair in (("en", "fr"), ("fr", "de"), ("EN", "de")):
        with pytest.raises(KeyError):
            MANY.for_pair(*pair)


def source(**values: Any) -> dict[str, Any]:
    return {"language": "en", "before": [4], "after": [], **values}


def target(**values: Any) -> dict[str, Any]:
    return {"language": "de", "source": [], "forced": [5], **values}


WRONG: list[tuple[Any, Any, str]] = [
    ([source(language="English!")], [target()], r"languages.sources\[0\].language must be a BCP-47 language tag"),
    ([source(language="")], [target()], r"sources\[0\].language must be"),
    ([source(language="x" * 9)], [target()], r"sources\[0\].language must be"),
    ([source(language="en\n")], [target()], r"sources\[0\].language must be"),
    ([source(language=7)], [target()], r"sources\[0\].language must be"),
    ([source(before=[-1])], [target()], r"sources\[0\].before\[0\] must be 0 to"),
    ([source(before=[2**20 + 1])], [target()], r"sources\[0\].before\[0\] must be 0 to"),
    ([source(before=[4.0])], [target()], r"sources\[0\].before\[0\] must be"),
    ([source(before=[True])], [target()], r"sources\[0\].before\[0\] must be"),
    ([source(before="4")], [target()], r"sources\[0\].before must be"),
    ([source(after=[4] * 17)], [target()], r"sources\[0\].after must be of at most 16 entries"),
    ([source(before=[4000])], [target()], "languages: the source ids must be below 4000, got 4000"),
    ([source()], [target(source=[4001])], "languages: the source ids must be below 4000, got 4001"),
    ([source()], [target(forced=[4000])], "languages: the target ids must be below 4000, got 4000"),
    ([source()], [target(forced=[5, 2])], "languages: de must not force the end token"),
    ([source(), source(language="EN")], [target()], "languages.sources: two have the same language"),
    ([source()], [target(), target(language="DE")], "languages.targets: two have the same language"),
    ([source()], [target(language="en")], "languages must have a pair of two different languages"),
    ([], [target()], "languages must have a pair"),
    ([source()], [], "languages must have a pair"),
    ([source(language=f"en-x-{n}") for n in range(MOST_LANGUAGES + 1)], [target()], "sources must be of at most 500"),
    ([source(more=1)], [target()], "more is not a field"),
    ([{"language": "en"}], [target()], r"sources\[0\].before is missing"),
    (None, [target()], "languages.sources must be a list"),
]


@pytest.mark.parametrize(("sources", "targets", "message"), WRONG)
def test_impossible_languages_are_refused_by_name(tmp_path: Path, sources: Any, targets: Any, message: str) -> None:
    assert refusal(tmp_path, {"languages": {"sources": sources, "targets": targets}}, message)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"languages": []}, "languages must be"),
        ({"languages": {"sources": [], "targets": [], "pairs": []}}, "pairs is not a field"),
        ({"source_language": "en"}, "source_language and target_language must be mul and mul, as languages says"),
        ({"text": {"words": ["Tom"], "lengths": [], "confidence": None}}, "text must be null with languages"),
        ({"limits.max_target_tokens": 1, "limits.output_extra": 1}, "languages: no room in 1 target tokens"),
        ({"limits.max_source_tokens": 12}, "languages: 3 tokens of a pair leave no room in 12 source tokens"),
    ],
)
def test_languages_that_contradict_other_values_are_refused(
    tmp_path: Path, values: dict[str, Any], message: str
) -> None:
    assert refusal(tmp_path, values, message)


def test_the_smallest_room_is_accepted() -> None:
    limits = replace(MANIFEST.limits, max_source_tokens=13, max_target_tokens=2, output_extra=2)
    roomy = replace(MANY, limits=limits)
    assert Manifest.from_bytes(roomy.to_bytes(), ORIGIN) == roomy


def refusal(folder: Path, values: dict[str, Any], message: str) -> bool:
    """Read MANY with other values and a valid digest, and return whether it is refused in one line."""
    changed = json.loads(MANY.to_bytes())
    for path, value in values.items():
        put(changed, path, value)
    write_manifest(folder, changed)
    with pytest.raises(BundleError, match=message) as caught:
        Manifest.from_bytes((folder / ORIGIN).read_bytes(), ORIGIN)
    return "\n" not in str(caught.value)
