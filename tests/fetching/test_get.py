"""`lingon models get`, `available`, `mirror`, and `lingon import` of what is downloaded: from servers and folders."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from lingon import Model
from lingon.bundle.store import find_model, open_bundle
from lingon.cli.main import main
from lingon.errors import BundleError, LingonError, SettingsError
from lingon.fetching.catalogue import INDEX, Catalogue, Offer, OfferedFile, packaged, parse, to_json
from lingon.fetching.hub import wanted
from lingon.fetching.sources import resolve, source_to_get
from lingon.fetching.transfer import sha256_of
from lingon.serving.cli import _with_paths
from lingon.serving.settings import load
from tests.support.bundles import write_small_bundle
from tests.support.file_server import REVISION, Fault, FileServer, serve_files
from tests.support.foreign_models import lines, save_opus_mt
from tests.support.marian_models import FORMS, in_8_bits, measured_alphas, written
from tests.support.repository import ROOT

ALL_GATES = ("--precision", "fp32", "--least-log-prob", "-12")
FAST = (*ALL_GATES, "--gate-source", "sentences.en")
FOLDER = "models/tiny/ende"
ORIGIN = f"example/models@1 {FOLDER}"


def offer_of(folder: Path, name: str = "en-de-tiny", place: str = FOLDER) -> Offer:
    files = [path for path in sorted(folder.iterdir()) if path.is_file()]
    return Offer(
        name=name,
        source_language="en",
        target_language="de",
        form="toolkit",
        size=name.rpartition("-")[2],
        shape="32 wide, 2+2 layers",
        folder=place,
        origin=ORIGIN,
        licence="MPL-2.0",
        scores={"flores-bleu": 38.8, "flores-comet": 0.8551},
        files=tuple(OfferedFile(path.name, path.stat().st_size, sha256_of(path)) for path in files),
    )


@pytest.fixture(scope="module")
def student(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A student with random weights in the form of Firefox: 8 bits, with a shortlist."""
    model, files = written(FORMS["SSRU, post-norm"], tmp_path_factory.mktemp("student") / "model")
    packed = in_8_bits(model, files, measured_alphas(files.imported(), model), listed=5)
    shutil.rmtree(packed.folder / "plain")
    return packed.folder


@pytest.fixture
def place(student: Path, tmp_path: Path) -> Path:
    """The folder of a mirror with the student."""
    shutil.copytree(student, tmp_path / "mirror" / FOLDER)
    (tmp_path / "mirror" / INDEX).write_bytes(to_json(Catalogue("", (offer_of(student),))))
    return tmp_path / "mirror"


@pytest.fixture
def server(place: Path) -> Iterator[FileServer]:
    with serve_files(place) as server:
        yield server


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders for models, downloads and the cache of the hub that no other test has."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sentences.en").write_text("\n".join(lines("en")[:20]), encoding="utf-8")
    monkeypatch.setenv("LINGON_DOWNLOADS", str(tmp_path / "downloads"))
    for name in ("LINGON_MIRROR", "LINGON_MODELS_FOLDER", "HF_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)


def downloads(tmp_path: Path) -> list[str]:
    """What is left of downloads; empty files of locks stay."""
    return [path.name for path in (tmp_path / "downloads").rglob("*") if path.suffix != ".lock"]


def test_a_model_is_downloaded_imported_and_translates_by_its_name(
    server: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LINGON_MIRROR", server.url)
    model = f"/{FOLDER}/model.ende.intgemm.alphas.bin"
    server.break_next(model, Fault(cut=1000), Fault(status=503))
    code = main(["models", "get", "en-de", *ALL_GATES])
    shown = capsys.readouterr().err
    assert code == 0, shown
    assert "text for the gates: 500 dates, lists, amounts and names in en" in shown
    manifest = open_bundle(tmp_path / "models" / "en-de").manifest
    assert manifest.origin is not None
    assert (manifest.origin.source, manifest.origin.licence) == (ORIGIN, "MPL-2.0")
    assert manifest.origin.scores == {"flores-bleu": 38.8, "flores-comet": 0.8551}
    card = (tmp_path / "models" / "en-de" / "1" / "MODEL_CARD.md").read_text(encoding="utf-8")
    assert f"published as {ORIGIN}" in card
    assert "licence: MPL-2.0" in card
    assert "flores-bleu 38.8" in card
    assert server.gets(model) == ["", "bytes=1000-", "bytes=1000-"]
    assert downloads(tmp_path) == []
    with Model("en-de") as translator:
        assert translator.translate("Tom lives in Boston.").text is not None


def test_a_second_get_downloads_nothing(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_small_bundle(tmp_path / "models" / "en-de" / "1")
    with serve_files(place) as server:
        assert main(["models", "get", "en-de", "--from", server.url]) == 0
        assert [path for _, path, _ in server.asked] == [f"/{INDEX}"]
    assert "is there already" in capsys.readouterr().out


def test_wrong_bytes_leave_no_model(server: FileServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = f"{FOLDER}/vocab.ende.spm"
    size = (server.folder / path).stat().st_size
    server.break_next(f"/{path}", *[Fault(content=bytes(size))] * 2)
    assert main(["models", "get", "en-de", "--from", server.url, *FAST]) == 1
    shown = capsys.readouterr().err
    assert "is not the file that was expected" in shown
    assert not (tmp_path / "models").exists()


def test_a_folder_is_a_mirror_too_and_its_files_are_verified(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = place / FOLDER / "vocab.ende.spm"
    whole = file.read_bytes()
    file.write_bytes(whole[:-1] + b"?")
    assert main(["models", "get", "en-de", "--from", str(place), *FAST]) == 1
    assert "vocab.ende.spm: is not the file of the index" in capsys.readouterr().err
    file.write_bytes(whole)
    assert main(["models", "get", "student", "--from", str(place / FOLDER), "--languages", "en:de", *FAST]) == 0
    assert open_bundle(tmp_path / "models" / "student").manifest.name == "student"


def test_a_model_that_does_not_believe_its_translations_is_refused_and_its_files_are_kept(
    server: FileServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["models", "get", "en-de", "--from", server.url, "--gate-source", "sentences.en"]
    assert main(command) == 1
    assert "must have -2.5 or more: the model is read wrongly" in capsys.readouterr().err
    assert not (tmp_path / "models").exists()
    asked = len(server.asked)
    assert main(command) == 1
    assert [path for _, path, _ in server.asked[asked:]] == [f"/{INDEX}"]


def test_an_import_takes_the_same_sources(
    server: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LINGON_MIRROR", server.url)
    assert main(["import", "en-de-tiny", "--report"]) == 0
    assert "en to de" in capsys.readouterr().err
    assert downloads(tmp_path) == []


def test_an_archive_is_downloaded_and_its_digest_recorded(
    student: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    served = tmp_path / "served"
    served.mkdir()
    archive = Path(shutil.make_archive(str(served / "student"), "zip", student))
    digest = sha256_of(archive)
    with serve_files(served) as server:
        server.break_next("/student.zip", Fault(cut=1000))
        address = f"{server.url}/student.zip"
        wrong = ["import", f"{address}#sha256={'0' * 64}", "--report"]
        assert main(wrong) == 1
        assert f"has {archive.stat().st_size:,} bytes with the SHA-256 {digest}" in capsys.readouterr().err
        command = ["import", f"{address}?key=secret#sha256={digest}", "models/student", *FAST, "--languages", "en:de"]
        assert main(command) == 0, capsys.readouterr().err
    origin = open_bundle(tmp_path / "models" / "student").manifest.origin
    assert origin is not None
    assert origin.source == f"{address}#sha256={digest}"


def test_what_is_no_archive_is_refused_and_not_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "served").mkdir()
    (tmp_path / "served" / "model.zip").write_bytes(b"<html>Sign in first</html>")
    with serve_files(tmp_path / "served") as server:
        assert main(["import", f"{server.url}/model.zip", "--report"]) == 1
    assert "what the server sends is no archive" in capsys.readouterr().err
    assert [name for name in downloads(tmp_path) if "zip" in name] == []


def test_a_mirror_is_written_continued_and_served(
    server: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LINGON_MIRROR", server.url)
    bundle = write_small_bundle(tmp_path / "models" / "small" / "1")
    copy = tmp_path / "copy"
    server.break_next(f"/{FOLDER}/vocab.ende.spm", *[Fault(status=404)])
    assert main(["models", "mirror", str(copy), "models/small", "en-de-tiny"]) == 1
    assert [each["name"] for each in json.loads((copy / INDEX).read_bytes())["models"]] == [bundle.manifest.name]
    first = server.gets(f"/{FOLDER}/lex.50.50.ende.s2t.bin")
    assert main(["models", "mirror", str(copy), "en-de-tiny"]) == 0
    assert server.gets(f"/{FOLDER}/lex.50.50.ende.s2t.bin") == first  # what was whole is not downloaded again
    shutil.rmtree(tmp_path / "models")
    with serve_files(copy) as copied:
        monkeypatch.setenv("LINGON_MIRROR", copied.url)
        assert main(["models", "get", bundle.manifest.name]) == 0, capsys.readouterr().err
    found = open_bundle(find_model(bundle.manifest.name))
    found.verify()
    assert found.manifest_digest == bundle.manifest_digest


def test_a_finished_bundle_needs_no_package_beside_those_of_the_base_install(place: Path, tmp_path: Path) -> None:
    bundle = write_small_bundle(tmp_path / "made" / "small" / "1")
    assert main(["models", "mirror", str(tmp_path / "copy"), str(bundle.folder)]) == 0
    name = bundle.manifest.name
    program = (
        "import sys\n"
        "for heavy in ('torch', 'numpy', 'onnx', 'onnxruntime', 'sentencepiece', 'huggingface_hub'):\n"
        "    sys.modules[heavy] = None\n"
        "from lingon.cli.main import main\n"
        f"sys.exit(main(['models', 'get', {name!r}, '--from', 'copy']))\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    ran = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    open_bundle(tmp_path / "models" / name).verify()


@pytest.mark.parametrize("command", [["models", "get", "en-de"], ["import", "en-de", "models/en-de"]], ids=str)
def test_a_package_that_is_missing_is_named_before_the_download(
    server: FileServer, tmp_path: Path, command: list[str]
) -> None:
    program = f"import sys; sys.modules['torch'] = None; from lingon.cli.main import main; sys.exit(main({command!r}))"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "LINGON_MIRROR": server.url}
    ran = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert ran.returncode == 1
    assert "needs what the extra 'import' installs (torch is missing)" in ran.stderr
    assert [path for _, path, _ in server.asked if not path.endswith(INDEX)] == []


def test_what_an_import_would_refuse_is_refused_before_the_download(
    server: FileServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["models", "get", "en-de", "--from", server.url, "--gate-source", "no.en"]) == 1
    assert capsys.readouterr().err == "lingon: error: no.en: No such file or directory\n"
    assert [path for _, path, _ in server.asked if not path.endswith(INDEX)] == []


def test_two_processes_download_a_model_once(server: FileServer, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-m", "lingon", "models", "get", "en-de", "--from", server.url, *FAST]
    both = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    outputs = sorted(each.communicate()[0] for each in both)
    assert [each.returncode for each in both] == [0, 0]
    assert any("is there already" in each for each in outputs)
    assert server.gets(f"/{FOLDER}/vocab.ende.spm") == [""]
    assert [path.name for path in (tmp_path / "models" / "en-de").iterdir()] == ["1"]


def hub_environment(tmp_path: Path, endpoint: str, **more: str) -> dict[str, str]:
    own = {
        "HF_ENDPOINT": endpoint,
        "HF_HOME": str(tmp_path / "hub"),
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_TOKEN": "hf_x",
    }
    paths = {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    return {**os.environ, **own, **paths, **more}


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[FileServer]:
    """A hub with one repository."""
    folder = save_opus_mt(tmp_path / "served" / "Helsinki-NLP" / "opus-mt-sv-nb", seed=6)
    (folder / "README.md").write_text("---\nlicense: cc-by-4.0\n---\n# A model\n", encoding="utf-8")
    (folder / "tf_model.h5").write_bytes(b"not read")
    with serve_files(tmp_path / "served") as server:
        yield server


def lingon(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "lingon", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_a_repository_of_the_hub_is_pinned_verified_and_found_by_its_name(hub: FileServer, tmp_path: Path) -> None:
    environment = hub_environment(tmp_path, hub.url)
    name = "Helsinki-NLP/opus-mt-sv-nb"
    ran = lingon(environment, "models", "get", name, "--languages", "sv:nb", *FAST)
    assert ran.returncode == 0, ran.stderr
    bundle = open_bundle(find_model(name))
    assert bundle.folder == Path("models/opus-mt-sv-nb/1")
    assert bundle.manifest.origin is not None
    assert bundle.manifest.origin.source == f"{name}@{REVISION}"
    assert bundle.manifest.origin.licence == "cc-by-4.0"
    asked = {path.rpartition("/")[2] for _, path, _ in hub.asked}
    assert "tf_model.h5" not in asked
    assert hub.keys == {"Bearer hf_x"}
    hub.asked.clear()
    offline = {**environment, "HF_HUB_OFFLINE": "1"}
    again = lingon(offline, "import", name, "--report")
    assert again.returncode == 0, again.stderr
    assert hub.asked == []
    missing = lingon(offline, "import", "Helsinki-NLP/other", "--report")
    assert missing.returncode == 1
    assert "HF_HUB_OFFLINE" in missing.stderr
    assert len(missing.stderr.splitlines()) == 1


def test_a_file_of_the_hub_with_other_bytes_is_refused_and_leaves_the_cache(hub: FileServer, tmp_path: Path) -> None:
    environment = hub_environment(tmp_path, hub.url)
    name, file = "Helsinki-NLP/opus-mt-sv-nb", "source.spm"
    path = f"/{name}/resolve/{REVISION}/{file}"
    size = (hub.folder / name / file).stat().st_size
    hub.break_next(path, Fault(), *[Fault(content=bytes(size))])
    ran = lingon(environment, "import", name, "--report")
    assert ran.returncode == 1, ran.stderr
    assert f"{name}: {file} is not the file that the hub names" in ran.stderr
    ran = lingon(environment, "import", name, "--report")
    assert ran.returncode == 0, ran.stderr


def test_a_repository_that_is_missing_is_one_line(hub: FileServer, tmp_path: Path) -> None:
    ran = lingon(hub_environment(tmp_path, hub.url), "models", "get", "Helsinki-NLP/none")
    assert ran.returncode == 1
    assert ran.stderr.splitlines() == [
        "lingon: error: Helsinki-NLP/none: the hub has no such repository, or it is private and HF_TOKEN does not "
        "permit it"
    ]


@pytest.mark.parametrize(
    ("names", "read"),
    [
        (["model.safetensors", "pytorch_model.bin", "config.json"], ["config.json", "model.safetensors"]),
        (["pytorch_model.bin", "training_args.bin", "optimizer.pt"], ["pytorch_model.bin"]),
        (["flax_model.msgpack", "rust_model.ot", "tf_model.h5", "onnx/model.onnx"], []),
        (["encoder_model.onnx", "decoder_model.onnx"], ["decoder_model.onnx", "encoder_model.onnx"]),
        (
            ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "model.safetensors.index.json"],
            ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "model.safetensors.index.json"],
        ),
    ],
)
def test_of_a_repository_one_form_of_the_weights_is_read(names: list[str], read: list[str]) -> None:
    assert wanted(names) == read


def test_no_host_is_called_for_a_path_that_is_mistyped(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    assert resolve("models/en-dd").name == "en-dd"
    with pytest.raises(SettingsError, match="must be a name such as en-de"):
        source_to_get("models/en-dd", None, None)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (("en-xx",), "the catalogue has no such model; `lingon models available` lists all"),
        (("de-fr",), "has no such model; it has de-en-base, de-en-base-memory"),
        (("en-de", "--size", "huge"), "--size must be one of base-memory, tiny for en-de, got 'huge'"),
        (("en-de", "--from", "nowhere"), "has no such model"),
        (("./en-de",), "must be a name such as en-de, OWNER/NAME of the Hugging Face hub, or a URL"),
    ],
)
def test_a_name_that_there_is_not_is_one_line(
    given: tuple[str, ...], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["models", "get", *given]) == 2
    shown = capsys.readouterr().err
    assert why in shown
    assert len(shown.splitlines()) == 1


def test_a_mirror_cannot_give_other_files_for_a_model_of_the_catalogue(tmp_path: Path) -> None:
    known = packaged().find("en-de-tiny")
    assert known is not None
    other = replace(known, files=(replace(known.files[0], sha256="0" * 64), *known.files[1:]))
    (tmp_path / INDEX).write_bytes(to_json(Catalogue("", (other,))))
    assert main(["models", "get", "en-de", "--from", str(tmp_path)]) == 2


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"[", "not JSON"),
        (b'{"format": 2, "place": "", "models": []}', "format must be 1 to 1, got 2"),
        (b'{"format": 1, "place": ""}', "models is missing"),
    ],
)
def test_an_index_of_another_form_is_refused(content: bytes, why: str) -> None:
    with pytest.raises(SettingsError, match=f"index: {why}"):
        parse(content, "index")


def test_a_file_outside_the_folder_of_its_model_is_refused() -> None:
    offer = replace(packaged().models[0], files=(OfferedFile("../../x", 1, "0" * 64),))
    with pytest.raises(SettingsError, match="must be a path within the bundle"):
        parse(to_json(Catalogue("", (offer,))), "index")


def test_the_best_model_of_a_pair_is_chosen_unless_a_size_is_named() -> None:
    for name in {each.pair for each in packaged().models}:
        best = packaged().find(name)
        assert best is not None
        scores = [each.scores.get("flores-comet", 0) for each in packaged().models if each.pair == name]
        assert best.scores.get("flores-comet", 0) == max(scores)
    tiny = packaged().find("en_DE", "tiny")
    assert tiny is not None
    assert tiny.name == "en-de-tiny"


def test_a_missing_model_names_the_command_that_gets_it(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match=r"get a model: lingon models get en-fr$"):
        find_model("en-fr")
    with pytest.raises(BundleError, match=r"get a model: lingon models get en-fr$"):
        find_model("models/en-fr/4")
    with pytest.raises(LingonError, match=r"get a model: lingon models get en-fr$"):
        Model("en-fr")


@pytest.mark.parametrize(
    ("given", "meant"),
    [("modells", "models"), ("en-dee", "models/en-de"), ("models/en-dee", "models/en-de"), ("models/en-fr", None)],
)
def test_a_mistyped_folder_is_answered_with_the_one_that_it_nearly_names(given: str, meant: str | None) -> None:
    write_small_bundle(Path("models/en-de/1"))
    hint = f"did you mean {meant}?" if meant else "get a model: lingon models get en-fr"
    with pytest.raises(BundleError, match=f"^{given}: no such folder; .*{re.escape(hint)}$"):
        find_model(given)


def test_a_name_that_is_no_pair_of_languages_is_not_offered_for_download() -> None:
    with pytest.raises(BundleError, match=r"get a model: lingon models get en-de$"):
        find_model("nowhere")


def test_a_model_is_found_in_the_folder_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle = write_small_bundle(tmp_path / "elsewhere" / "en-de" / "1")
    monkeypatch.setenv("LINGON_MODELS_FOLDER", str(tmp_path / "elsewhere"))
    assert open_bundle(find_model("en-de")).manifest == bundle.manifest
    nearer = write_small_bundle(tmp_path / "en-de" / "1")
    assert find_model("en-de") == Path("en-de")
    assert nearer.folder == tmp_path / "en-de" / "1"


def test_a_server_serves_models_by_their_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_small_bundle(tmp_path / "models" / "en-de" / "1")
    write_small_bundle(tmp_path / "others" / "x" / "2")
    given = _with_paths(load({"models": ["en-de", "others"]}, {}, None))
    assert given.settings.models == (Path("models/en-de"), Path("others"))
    with pytest.raises(BundleError, match=r"^en-xx: no such folder; .*: lingon models get en-xx$"):
        _with_paths(load({"models": ["en-xx"]}, {}, None))
    monkeypatch.setenv("LINGON_MODELS_FOLDER", "others")
    assert _with_paths(load({}, dict(os.environ), None)).settings.models == (Path("others"),)
    monkeypatch.setenv("LINGON_MODELS_FOLDER", "none")
    with pytest.raises(SettingsError, match=r"there is no folder none here; .*, or get one: lingon models get en-de$"):
        _with_paths(load({}, dict(os.environ), None))


def test_available_models_are_listed_as_text_and_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "available", "en-de"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["en-de-base-memory", "en-de-tiny"]
    assert main(["models", "available", "--json"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(packaged().models)


def test_a_language_without_a_model_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "available", "tlh"]) == 2
    shown = capsys.readouterr()
    assert (shown.out, "tlh: the catalogue has no such model" in shown.err) == ("", True)
