"""A tampered bundle with a valid digest is refused for its values; the message names file and field."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from lingon.bundle.manifest import FORMAT
from lingon.bundle.names import MANIFEST, SHORTLIST
from lingon.serving.runtime.shortlist import MAX_BYTES, Shortlist
from tests.support.bundles import edit, put, refusal, sign, write_manifest
from tests.support.echo_engine import tokenizer_model
from tests.support.shipped_model import bundle

VALUES = [
    ("version", 0),
    ("version", -1),
    ("version", "2"),
    ("version", 10**30),
    ("name", ""),
    ("name", "../en-de"),
    ("name", "en/de"),
    ("name", "en\nde"),
    ("name", "x" * 1000),
    ("name", None),
    ("created", "x" * 10_000),
    ("source_language", "English!"),
    ("target_language", ""),
    ("architecture", "a\x1b[31m"),
    ("source_vocab", 10**12),
    ("source_vocab", 0),
    ("source_vocab", 6000.0),
    ("target_vocab", -1),
    ("target_vocab", True),
    ("target_vocab", "6000"),
    ("special_ids", {"pad": 0, "bos": 1, "eos": 3, "unk": 2}),
    ("special_ids", {}),
    ("special_ids.pad", -1),
    ("limits.max_source_tokens", 0),
    ("limits.max_source_tokens", -5),
    ("limits.max_source_tokens", 10**12),
    ("limits.max_target_tokens", 0),
    ("limits.max_target_tokens", 2**31),
    ("limits.output_factor", -1.0),
    ("limits.output_factor", 1e300),
    ("limits.output_factor", math.nan),
    ("limits.output_factor", math.inf),
    ("limits.output_factor", None),
    ("limits.output_extra", -1),
    ("limits.output_extra", 10**9),
    ("limits.max_beam_size", 0),
    ("limits.max_beam_size", 10**9),
    ("defaults.beam_size", 0),
    ("defaults.beam_size", 9),
    ("defaults.num_hypotheses", 5),
    ("defaults.length_penalty", -0.5),
    ("defaults.length_penalty", 1e308),
    ("defaults.length_penalty", math.nan),
    ("defaults.shortlist", 1),
    ("candidates", 0),
    ("candidates", 15),
    ("candidates", 10**9),
    ("states", {}),
    ("states", [{}] * 5000),
    ("states.0", None),
    ("states.0.name", "../../key"),
    ("states.0.kind", "remembered"),
    ("states.0.kind", "cache"),
    ("states.0.shape", [4, 64, 10**12]),
    ("states.0.shape", [4, -64, "source_length"]),
    ("states.0.shape", [4, 0, "source_length"]),
    ("states.0.shape", [4, 64, "capacity"]),
    ("states.0.shape", ["source_length"] * 3),
    ("states.0.shape", [4, 64, "sauce_length"]),
    ("states.0.shape", [2**20, 2**20, "source_length"]),
    ("states.0.shape", [1] * 100),
    ("states.2.shape", [4, 64, 64]),
    ("states.1.name", "memory.0.key"),
    ("precisions", []),
    ("precisions.int8", None),
    ("precisions.int8.provider", ""),
    ("precisions.int8.gate", 7),
    ("precisions.int8.weights", "int8.bin"),
    ("precisions.int8.weights", ["../weights/int8.bin"]),
    ("precisions.int8.weights", ["/etc/passwd"]),
    ("precisions.../int8", {}),
    ("alignment.layer", -1),
    ("alignment.layer", 10**9),
    ("alignment.heads", [10**9]),
    ("alignment.heads", [0] * 10_000),
    ("shortlist", []),
    ("checksums", []),
    ("checksums.curve.svg", "00"),
    ("checksums.curve.svg", None),
    ("format", 1),
    ("format", FORMAT + 1),
    ("format", True),
    ("format", "2"),
    ("format", 10**1000),
]
NAMES = [
    "../manifest.json",
    "/etc/passwd",
    "a//b",
    "a/../b",
    "./a",
    "",
    ".",
    "..",
    "a/",
    "a\0b",
    "a\nb",
    "x" * 300,
    "a\\b",
]


@pytest.fixture
def alone(tmp_path: Path) -> Path:
    """A folder with the manifest alone, which is refused before any other file is read."""
    (tmp_path / MANIFEST).write_bytes((bundle().folder / MANIFEST).read_bytes())
    return tmp_path


def test_an_unchanged_bundle_with_a_new_digest_is_served(folder: Path):
    sign(folder)
    with pytest.raises(AssertionError, match="Translator"):
        refusal(folder)


@pytest.mark.parametrize(("path", "value"), VALUES, ids=[f"{path}={value!r:.30}" for path, value in VALUES])
def test_an_impossible_value_is_refused(alone: Path, path: str, value: object):
    edit(alone, lambda values: set_at(values, path, value))
    line = refusal(alone)
    assert line.startswith(f"{alone / MANIFEST}: ")
    finite = not isinstance(value, float) or math.isfinite(value)
    field = path.split(".")[0] if finite else "not a manifest"
    assert field in line, line
    assert "altered" not in line


def set_at(values: dict[str, Any], path: str, value: object) -> None:
    if path.startswith("checksums."):
        values["checksums"][path.removeprefix("checksums.")] = value
    elif path == "precisions.../int8":
        values["precisions"]["../int8"] = values["precisions"]["int8"]
    else:
        put(values, path, value)


@pytest.mark.parametrize("name", NAMES)
def test_a_file_name_outside_the_bundle_is_refused(alone: Path, name: str):
    edit(alone, lambda values: values["checksums"].update({name: "0" * 64}))
    line = refusal(alone)
    assert line.startswith(f"{alone / MANIFEST}: ")
    assert "checksums" in line


@pytest.mark.parametrize("name", [*json.loads(bundle().manifest.to_bytes())])
def test_a_missing_field_is_refused(alone: Path, name: str):
    values = json.loads((alone / MANIFEST).read_bytes())
    del values[name]
    content = json.dumps(values) if name == "digest" else None
    if content is None:
        write_manifest(alone, values)
    else:
        (alone / MANIFEST).write_text(content)
    assert refusal(alone).startswith(f"{alone / MANIFEST}: ")


@pytest.mark.parametrize("path", ["more", "limits.more", "defaults.more", "states.0.more", "precisions.int8.more"])
def test_an_unknown_field_is_refused(alone: Path, path: str):
    edit(alone, lambda values: put(values, path, 1))
    assert "more is not a field" in refusal(alone)


@pytest.mark.parametrize("depth", [100, 900, 5_000, 200_000])
def test_deeply_nested_json_is_refused(alone: Path, depth: int):
    text = (alone / MANIFEST).read_text()
    nest = "[" * depth + "]" * depth
    (alone / MANIFEST).write_text(text.replace('"report": {', f'"report": {{"x": {nest},', 1))
    assert refusal(alone).startswith(f"{alone / MANIFEST}: ")


@pytest.mark.parametrize("depth", [100, 900])
def test_a_deeply_nested_report_with_a_valid_digest_is_refused(alone: Path, depth: int):
    nest: list[Any] = []
    for _ in range(depth):
        nest = [nest]
    edit(alone, lambda values: put(values, "precisions.int8.report", {"x": nest}))
    assert refusal(alone).startswith(str(alone))


def test_a_duplicate_key_is_refused(alone: Path):
    text = (alone / MANIFEST).read_text()
    assert text.count('\n "version": ') == 1
    (alone / MANIFEST).write_text(text.replace('\n "version": ', '\n "version": 1,\n "version": '))
    assert refusal(alone) == f"{alone / MANIFEST}: was altered (its digest does not fit)"


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "utf-8-sig", "cp037"])
def test_another_encoding_is_refused(alone: Path, encoding: str):
    (alone / MANIFEST).write_bytes((alone / MANIFEST).read_text().encode(encoding))
    assert refusal(alone).startswith(f"{alone / MANIFEST}: ")


@pytest.mark.parametrize(
    "content",
    [
        b"\xff\xfe",
        b"",
        b"0",
        b"null",
        b'"x"',
        b"[{}]",
        b"{" * 10**6,
        b'{"format":2}',
        b"9" * 10**6,
        b'{"\\ud800":1}',
        b"1e400",
    ],
    ids=range(11),
)
def test_a_file_that_is_no_manifest_is_refused(alone: Path, content: bytes):
    (alone / MANIFEST).write_bytes(content)
    assert refusal(alone).startswith(f"{alone / MANIFEST}: ")


def other_vocabulary(folder: Path) -> str:
    edit(folder, lambda values: values.update(source_vocab=6001))
    return "6001"


def other_tokenizer(folder: Path) -> str:
    (folder / "tokenizer.model").write_bytes(tokenizer_model())
    return "tokenizer.model"


def no_tokenizer(folder: Path) -> str:
    (folder / "tokenizer.model").unlink()
    edit(folder, lambda values: values["checksums"].pop("tokenizer.model"))
    return "tokenizer"


def two_tokenizers(folder: Path) -> str:
    (folder / "more.model").write_bytes(b"")
    edit(folder, lambda values: values["checksums"].update({"more.model": ""}))
    return "more.model"


def random_bytes_for_a_tokenizer(folder: Path) -> str:
    (folder / "tokenizer.model").write_bytes(b"pieces")
    return "tokenizer"


def a_piece_that_is_not_utf_8(folder: Path) -> str:
    path = folder / "tokenizer.model"
    path.write_bytes(path.read_bytes().replace("\u2581the".encode(), b"\xff\xff\xffthe", 1))
    return "tokenizer.model: not a sentencepiece model (a piece is not UTF-8)"


def random_bytes_for_a_graph(folder: Path) -> str:
    (folder / "int8/decoder.onnx").write_bytes(b"\x08\x07 a graph")
    return "int8/decoder.onnx"


def random_bytes_for_a_shortlist(folder: Path) -> str:
    (folder / SHORTLIST).write_bytes(b"PK\3\4 pieces")
    return SHORTLIST


def a_shortlist_of_another_vocabulary(folder: Path) -> str:
    none = np.zeros(0, np.int32)
    (folder / SHORTLIST).write_bytes(Shortlist(np.array([2], np.int32), np.zeros(41, np.int32), none).to_bytes())
    return SHORTLIST


def a_shortlist_that_unpacks_to_too_much(folder: Path) -> str:
    many = np.zeros(MAX_BYTES // 4 + 1, np.int32)
    (folder / SHORTLIST).write_bytes(Shortlist(np.array([2], np.int32), np.zeros(6001, np.int32), many).to_bytes())
    return f"{SHORTLIST}: unpacks to"


def swapped_graphs(folder: Path) -> str:
    first, second = folder / "int8/encoder.onnx", folder / "int8/decoder.onnx"
    content = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(content)
    return "int8/"


def half_the_weights(folder: Path) -> str:
    content = (folder / "weights/int8.bin").read_bytes()
    (folder / "weights/int8.bin").write_bytes(content[: len(content) // 2])
    return "int8"


def a_state_of_another_shape(folder: Path) -> str:
    edit(folder, lambda values: put(values, "states.0.shape", [8, 32, "source_length"]))
    return "memory.0.key"


def an_additional_state(folder: Path) -> str:
    state = {"name": "memory.9.key", "kind": "memory", "shape": [4, 64, "source_length"]}
    edit(folder, lambda values: values["states"].append(state))
    return "memory.9.key"


def a_missing_state(folder: Path) -> str:
    edit(folder, lambda values: values["states"].pop())
    return "self.1.value"


def longer_than_the_model_reads(folder: Path) -> str:
    edit(folder, lambda values: put(values, "limits.max_source_tokens", 5000))
    return "max_source_tokens"


def longer_than_the_model_writes(folder: Path) -> str:
    edit(folder, lambda values: put(values, "limits.max_target_tokens", 5000))
    return "max_target_tokens"


def a_missing_head(folder: Path) -> str:
    edit(folder, lambda values: put(values, "alignment.heads", [0, 99]))
    return "alignment"


CHANGES = [
    other_vocabulary,
    other_tokenizer,
    no_tokenizer,
    two_tokenizers,
    random_bytes_for_a_tokenizer,
    a_piece_that_is_not_utf_8,
    random_bytes_for_a_graph,
    random_bytes_for_a_shortlist,
    a_shortlist_of_another_vocabulary,
    a_shortlist_that_unpacks_to_too_much,
    swapped_graphs,
    half_the_weights,
    a_state_of_another_shape,
    an_additional_state,
    a_missing_state,
    longer_than_the_model_reads,
    longer_than_the_model_writes,
    a_missing_head,
]


@pytest.mark.parametrize("change", CHANGES)
def test_files_that_do_not_match_are_refused(folder: Path, change: Callable[[Path], str]):
    named = change(folder)
    sign(folder)
    line = refusal(folder)
    assert line.startswith(str(folder))
    assert named in line


@pytest.mark.parametrize("where", ["../../secret", "/etc/passwd", "../weights/int8.bin", "int8.bin/../int8.bin"])
def test_weights_outside_the_bundle_are_refused(folder: Path, tmp_path: Path, where: str):
    (tmp_path / "secret").write_bytes(bytes(2**20))
    path = folder / "int8/decoder.onnx"
    graph = onnx.load(path, load_external_data=False)
    (tensor, *_) = [each for each in graph.graph.initializer if each.external_data]
    next(entry for entry in tensor.external_data if entry.key == "location").value = where
    path.write_bytes(graph.SerializeToString())
    sign(folder)
    assert refusal(folder).startswith(f"{path}: ")


@pytest.mark.parametrize("listed", [[], ["fp32.bin"]])
def test_weights_in_the_working_directory_are_refused(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listed: list[str]
):
    """They have the names that the graphs use, but no checksum covers them."""
    shutil.copytree(folder / "weights", tmp_path / "here")
    (folder / "weights/int8.bin").unlink()

    def strip(values: dict[str, Any]) -> None:
        put(values, "precisions.int8.weights", listed)
        del values["checksums"]["weights/int8.bin"]

    edit(folder, strip)
    monkeypatch.chdir(tmp_path / "here")
    assert refusal(folder).startswith(f"{folder}/int8/encoder.onnx: onnxruntime does not load it")


def declared(graph: onnx.GraphProto, name: str) -> onnx.TypeProto.Tensor:
    """The declared type of an output or input."""
    return next(each for each in (*graph.output, *graph.input) if each.name == name).type.tensor_type


def without_shape(name: str) -> Callable[[onnx.GraphProto], None]:
    return lambda graph: declared(graph, name).ClearField("shape")


def half_of(axis: int) -> Callable[[onnx.GraphProto], None]:
    """Keep every second channel of the output layer (axis 0), or every second requested piece (axis 1)."""

    def change(graph: onnx.GraphProto) -> None:
        (node,) = [node for node in graph.node if node.output[0] == "output.0"]
        bounds = {"begin": [0], "end": [2**30], "axis": [axis], "stride": [2]}
        graph.initializer.extend(onnx.numpy_helper.from_array(np.array(each), name) for name, each in bounds.items())
        graph.node.append(onnx.helper.make_node("Slice", [node.input[0], *bounds], ["output.0"]))
        graph.node.remove(node)
        if axis == 0:  # the declared shape of the pieces would still match
            declared(graph, "output.0").ClearField("shape")

    return change


def no_such_label(graph: onnx.GraphProto) -> None:
    """Make the scorer fail for every input."""
    (node,) = [node for node in graph.node if node.output[0] == "token_log_probs"]
    node.output[0] = "whole"
    graph.initializer.append(onnx.numpy_helper.from_array(np.array([999]), "beyond"))
    graph.node.append(onnx.helper.make_node("Gather", ["whole", "beyond"], ["token_log_probs"], axis=1))


def one_row(graph: onnx.GraphProto) -> None:
    """Let the decoder step take one row alone."""
    for each in graph.input:
        if each.name.startswith("past."):
            each.type.tensor_type.shape.dim[0].dim_value = 1


def beyond_the_vocabulary(graph: onnx.GraphProto) -> None:
    """Add 10,000 to the candidates."""
    (node,) = [node for node in graph.node if "candidate_ids" in node.output]
    node.output[list(node.output).index("candidate_ids")] = "found"
    graph.initializer.append(onnx.numpy_helper.from_array(np.array(10_000), "added"))
    graph.node.append(onnx.helper.make_node("Add", ["found", "added"], ["candidate_ids"]))


GRAPH_CHANGES = [
    ("scorer", without_shape("cross_attention"), "output cross_attention is [None, 2, None, None, None], its first 3"),
    ("encoder", without_shape("memory.0.key"), "output memory.0.key is [None, None, None], manifest.json says [4, 64"),
    ("scorer", no_such_label, "cannot score a translation"),
    ("decoder", one_row, "cannot translate two sentences together (RuntimeError: "),
    (
        "decoder",
        beyond_the_vocabulary,
        "cannot translate two sentences together (ValueError: candidates must be 0 to 5999",
    ),
    ("output_rows", half_of(0), "outputs output.0 as tensor(int8) [128, 'union'], decoder_shortlist.onnx reads"),
    ("output_rows", half_of(1), "decoder_shortlist.onnx cannot run with its output"),
]


def edit_graph(path: Path, change: Callable[[onnx.GraphProto], None]) -> None:
    model = onnx.load(path, load_external_data=False)
    change(model.graph)
    path.write_bytes(model.SerializeToString())


@pytest.mark.parametrize(("name", "change", "message"), GRAPH_CHANGES)
def test_a_graph_that_does_not_match_its_declaration_is_refused(
    folder: Path, name: str, change: Callable[[onnx.GraphProto], None], message: str
):
    path = folder / "int8" / f"{name}.onnx"
    edit_graph(path, change)
    sign(folder)
    assert refusal(folder).startswith(f"{path}: {message}")


def another_name(graph: onnx.GraphProto) -> None:
    """Rename the input token_ids."""
    name = next(each for each in graph.input if each.name == "token_ids")
    name.name = graph.node[0].input[2] = "tokens"


def without_failures(graph: onnx.GraphProto) -> None:
    graph.output.remove(next(each for each in graph.output if each.name == "failed"))


def add_to(output: str, value: int) -> Callable[[onnx.GraphProto], None]:
    """Add a number to an output of the search."""

    def change(graph: onnx.GraphProto) -> None:
        (node,) = graph.node
        node.output[list(node.output).index(output)] = "found"
        dtype = onnx.helper.tensor_dtype_to_np_dtype(declared(graph, output).elem_type)
        graph.initializer.append(onnx.numpy_helper.from_array(np.array(value, dtype), "added"))
        graph.node.append(onnx.helper.make_node("Add", ["found", "added"], [output]))

    return change


def test_names_that_are_not_utf_8_are_refused(folder: Path):
    path = folder / "int8" / "decoder.onnx"
    path.write_bytes(path.read_bytes().replace(b"present.self.0.key", b"present.self.0.k\xff\xff"))
    sign(folder)
    assert refusal(folder).startswith(f"{path}: onnxruntime does not load it ('utf-8' codec")


SEARCH = "cannot search over the candidates of decoder.onnx"


@pytest.mark.native
@pytest.mark.usefixtures("native_library")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (another_name, "has no input token_ids"),
        (without_failures, "has no output failed"),
        (add_to("changed.positions", 10**9), SEARCH),
        (add_to("changed.token_ids", 10**9), SEARCH),
        (add_to("changed.beam_rows", 10**6), SEARCH),
        (add_to("changed.beam_table", 10**6), SEARCH),
    ],
)
def test_a_beam_search_of_another_kind_is_refused(
    folder: Path, change: Callable[[onnx.GraphProto], None], message: str
):
    path = folder / "int8-native" / "beam.onnx"
    edit_graph(path, change)
    sign(folder)
    assert refusal(folder, "int8-native").startswith(f"{path}: {message}")


@pytest.mark.native
@pytest.mark.usefixtures("native_library")
def test_golden_sentences_that_end_the_engine_are_an_error_of_the_bundle(folder: Path):
    """Only the text of a finished translation shows these tokens."""
    edit_graph(folder / "int8-native" / "beam.onnx", add_to("ended_tokens", 10**6))
    sign(folder)
    found = refusal(folder, "int8-native", golden=True)
    assert found.startswith(f"{folder}/golden.json: the sentences cannot be translated in int8-native (")
