"""`lingon translate` with files of translation memories: what is not asked of the model, and what is written to one."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryFile
from types import SimpleNamespace
from typing import cast

import pytest

from lingon.cli.memory import MemoryTranslator, NewPairs, languages_of
from lingon.cli.options import MemoryFiles
from lingon.client.options import TranslateOptions
from lingon.client.results import ModelInfo, TextResult, Translation
from lingon.errors import SettingsError
from lingon.memories.files import read_segments
from lingon.memories.segment import MOST_SEGMENTS, Segment
from tests.support.scripted_server import Command, FakeService

MEMORY = "source,target,origin\nOne house.,Ein Haus.,Ann\nCats & dogs.,Katzen & Hunde.,\n"


@pytest.fixture
def memory(tmp_path: Path) -> Path:
    path = tmp_path / "memory.csv"
    path.write_text(MEMORY)
    return path


def sent(service: FakeService) -> list[str]:
    return [text for request in service.requests for text in request.texts]


def pairs(path: Path) -> list[tuple[str, str]]:
    return [(each.source, each.target) for each in read_segments(path, "en", "de")]


def test_a_line_of_the_memory_is_not_sent(lingon: Command, service: FakeService, memory: Path, tmp_path: Path):
    (tmp_path / "a.txt").write_text("Two cats.\n  One house.\none house.\n\n")
    status, output, errors = lingon("translate", "--input", tmp_path / "a.txt", "--memory", memory)
    assert (status, output) == (0, "TWO CATS.\n  Ein Haus.\nONE HOUSE.\n\n")
    assert sent(service) == ["Two cats.", "one house."]
    assert errors == ["lingon: 1 line is from a translation memory"]


def segments(service: FakeService) -> list[list[str]]:
    return [[each.target for each in request.memory.segments] for request in service.requests]


@pytest.mark.parametrize("suffix", [".txt", ".md"])
def test_what_the_memory_has_for_the_sentences_of_a_text_is_sent_with_it(
    lingon: Command, service: FakeService, memory: Path, tmp_path: Path, suffix: str
):
    text = "It rains. One house.\n\nOne house is here.\n\none house.\n"
    (tmp_path / f"a{suffix}").write_text(text)
    files = ("--input", tmp_path / f"a{suffix}", "--output", tmp_path / f"b{suffix}", "--batch-size", 1)
    status, _, errors = lingon("translate", *files, "--memory", memory)
    assert status == 0, errors
    assert sorted(each for each in segments(service) if each) == [["Ein Haus."], ["Ein Haus."]]


def test_similar_segments_are_sent_where_results_show_them(
    lingon: Command, service: FakeService, memory: Path, tmp_path: Path
):
    (tmp_path / "a.txt").write_text("One mouse.\n")
    for options, sent_segments in (((), []), (("--json",), ["Ein Haus."])):
        service.requests[:] = []
        lingon("translate", "--input", tmp_path / "a.txt", "--memory", memory, *options)
        assert segments(service) == [sent_segments]


def test_no_request_has_more_segments_than_a_server_takes(lingon: Command, service: FakeService, tmp_path: Path):
    lines = [[f"{line * 10 + number} houses." for number in range(10)] for line in range(MOST_SEGMENTS // 10 + 30)]
    (tmp_path / "m.csv").write_text("source,target\n" + "".join(f"{each},x\n" for line in lines for each in line))
    (tmp_path / "a.txt").write_text("\n".join(map(" ".join, lines)))
    files = ("--input", tmp_path / "a.txt", "--memory", tmp_path / "m.csv")
    assert lingon("translate", *files, "--batch-size", 256)[0] == 0
    given = {text: request for request in service.requests for text in request.texts}
    for line in lines:
        segments = given[" ".join(line)].memory.segments
        assert set(line) <= {each.source for each in segments}
        assert len(segments) <= MOST_SEGMENTS


def test_new_pairs_are_added_to_what_a_file_has(lingon: Command, memory: Path, tmp_path: Path):
    (tmp_path / "a.txt").write_text("One house.\nTwo cats.\nbad\n Two cats.\n")
    arguments = ["--input", tmp_path / "a.txt", "--memory", memory]
    assert lingon("translate", *arguments, "--write-memory", tmp_path / "new.tmx")[0] == 1
    assert pairs(tmp_path / "new.tmx") == [("Two cats.", "TWO CATS.")]
    (tmp_path / "a.txt").write_text("Three birds.\n")
    assert lingon("translate", *arguments, "--write-memory", memory)[0] == 0
    assert pairs(memory) == [
        ("One house.", "Ein Haus."),
        ("Cats & dogs.", "Katzen & Hunde."),
        ("Three birds.", "THREE BIRDS."),
    ]
    (*_, last) = read_segments(memory)
    assert (last.origin, last.changed > 1_600_000_000_000) == ("MT! en-de/1", True)
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == ["a.txt", "memory.csv", "new.tmx"]


def test_a_second_run_asks_for_nothing_and_writes_nothing(lingon: Command, service: FakeService, tmp_path: Path):
    source, written = tmp_path / "a.txt", tmp_path / "m.tmx"
    source.write_text("".join(f"Line {number}.\n" for number in range(100)))
    first = lingon("translate", "--input", source, "--write-memory", written, "--batch-size", 7)
    content, service.requests[:] = written.read_bytes(), []
    second = lingon("translate", "--input", source, "--memory", written, "--write-memory", written)
    assert (second[0], second[1]) == (first[0], first[1]) == (0, "".join(f"LINE {number}.\n" for number in range(100)))
    assert service.requests == []
    assert written.read_bytes() == content


def test_texts_of_a_document_are_looked_up_and_written_without_markup(
    lingon: Command, service: FakeService, memory: Path, tmp_path: Path
):
    (tmp_path / "a.md").write_text("Cats & dogs.\n\nTwo cats.\n")
    files = ("--input", tmp_path / "a.md", "--output", tmp_path / "b.md")
    assert lingon("translate", *files, "--memory", memory, "--write-memory", tmp_path / "new.csv")[0] == 0
    assert (tmp_path / "b.md").read_text() == "Katzen & Hunde.\n\nTWO CATS.\n"
    assert sent(service) == ["Two cats."]
    assert pairs(tmp_path / "new.csv") == [("Two cats.", "TWO CATS.")]


def served(*pairs: str) -> MemoryTranslator:
    """A translator of models with these names, each of one pair of languages."""
    models = [
        ModelInfo(
            **{"name": each, "version": "1", "precision": "fp32", "provider": "CPU"},
            **dict(zip(("source_language", "target_language"), each.split("-"), strict=True)),
            **{"max_source_tokens": 9, "output_factor": 2.0, "output_extra": 9, "max_beam_size": 8, "beam_size": 4},
            **{"num_hypotheses": 1, "length_penalty": 1.0, "has_shortlist": False, "shortlist": False},
        )
        for each in pairs
    ]
    return cast(MemoryTranslator, SimpleNamespace(list_models=lambda: models))


@pytest.mark.parametrize(
    ("pairs", "request_", "languages"),
    [
        (["en-de", "en-fr"], {"target": "de"}, ("en", "de")),
        (["en-de", "en-fr"], {"target": "de-AT"}, ("en", "de-AT")),
        (["en-de", "fr-de"], {"source": "fr"}, ("fr", "de")),
        (["en-de", "en-fr"], {"model": "en-fr"}, ("en", "fr")),
        (["en-de"], {"source": "auto"}, ("en", "de")),
    ],
)
def test_the_languages_of_a_file_are_those_of_the_models_that_a_request_fits(
    pairs: list[str], request_: TranslateOptions, languages: tuple[str, str]
):
    assert languages_of(served(*pairs), MemoryFiles(write_memory=Path("m.tmx")), request_) == languages


@pytest.mark.parametrize(
    ("pairs", "request_"),
    [
        (["en-de", "en-fr"], {}),
        (["en-de", "fr-de"], {"target": "de"}),
        (["en-de", "fr-en"], {"source": "auto", "target": "de"}),
    ],
)
def test_languages_that_are_not_certain_must_be_given(pairs: list[str], request_: TranslateOptions):
    with pytest.raises(SettingsError, match=r"the texts of m\.tmx have a language: give --source and --target"):
        languages_of(served(*pairs), MemoryFiles(write_memory=Path("m.tmx")), request_)


CONTEXT = """source,target,before,after
Open,Offen,Is it closed?,Come in.
Open,Aufmachen,File,Save it
Open,Öffnen,,
"""


@pytest.mark.parametrize("batch_size", [1, 2, 64])
def test_a_text_of_a_document_gets_the_translation_with_its_neighbours(
    lingon: Command, service: FakeService, tmp_path: Path, batch_size: int
):
    (tmp_path / "memory.csv").write_text(CONTEXT)
    (tmp_path / "a.md").write_text("File\n\nOpen\n\nSave it\n\nOpen\n\nIs it closed?\n\nOpen\n\nCome in.\n\nOpen\n")
    files = ("--input", tmp_path / "a.md", "--output", tmp_path / "b.md", "--batch-size", batch_size)
    found = lingon("translate", *files, "--memory", tmp_path / "memory.csv")
    assert found[0] == 0, found
    written = (tmp_path / "b.md").read_text().split("\n\n")
    assert [written[place].strip() for place in (1, 3, 5, 7)] == ["Aufmachen", "Öffnen", "Offen", "Öffnen"]
    assert "Open" not in sent(service)


def test_lines_of_a_file_have_no_neighbours(lingon: Command, memory: Path, tmp_path: Path):
    (tmp_path / "memory.csv").write_text(CONTEXT)
    (tmp_path / "a.txt").write_text("Is it closed?\nOpen\nCome in.\n")
    found = lingon("translate", "--input", tmp_path / "a.txt", "--memory", tmp_path / "memory.csv")
    assert found[1].splitlines()[1] == "Öffnen"


class Shouting:
    """A translator to upper case, with tags as they are."""

    def translate(self, texts, **options):
        return [TextResult((Translation(text.upper().replace("<B>", "<b>"), 0.0, "end"),)) for text in texts]

    find_source = list_models = score = close = None


class OneSegment:
    def segments_for(self, text: str, language: str, *, fuzzy: bool = False) -> list[Segment]:
        return []

    def exact(self, text: str, before: str = "", after: str = "") -> Segment | None:
        return Segment(text, "5 < 6") if text == "1 < 2" else None


def test_a_text_with_tags_is_neither_looked_up_nor_written():
    with TemporaryFile("w+") as file:
        pairs = NewPairs(file)
        translator = MemoryTranslator(Shouting(), OneSegment(), pairs)
        texts = ["1 &lt; 2", "a &amp; b", "a <b>b</b>", "1 < 2"]
        found = [result.text for result in translator.translate(texts, format="xml")]
        assert found == ["5 &lt; 6", "A &AMP; B", "A <b>B</B>", "1 < 2"]
        assert [each.source for each in pairs.segments()] == ["a & b"]


class Context(OneSegment):
    def exact(self, text: str, before: str = "", after: str = "") -> Segment | None:
        return Segment(text, f"{before}|{after}") if text == "b" else None


def test_the_neighbours_of_a_text_are_those_of_its_document_without_tags():
    translator = MemoryTranslator(Shouting(), Context(), None)
    for texts, around, expected in (
        (["<i>A</i> &amp; a", "b", "c"], ("x", "y"), "A & a|c"),
        (["b"], ("x <br/>", "y"), "x |y"),
        (["b"], ("", ""), "|"),
    ):
        found = translator.between(*around).translate(texts, format="xml")
        assert expected.replace("&", "&amp;") in [result.text for result in found]
        assert "|" in [result.text for result in translator.translate(texts, format="xml")]


def test_a_translation_of_the_memory_that_lacks_a_term_is_not_taken(
    lingon: Command, service: FakeService, memory: Path, tmp_path: Path
):
    (tmp_path / "a.txt").write_text("One house.\nCats & dogs.\n")
    (tmp_path / "terms.tsv").write_text("house\tGebäude\ndogs\tHunde\n")
    arguments = ["--input", tmp_path / "a.txt", "--memory", memory]
    assert lingon("translate", *arguments, "--terms", tmp_path / "terms.tsv")[1] == "ONE HOUSE.\nKatzen & Hunde.\n"
    assert sent(service) == ["One house."]
    assert lingon("translate", *arguments, "--glossary", "g")[1] == "ONE HOUSE.\nCATS & DOGS.\n"


def test_options_that_guide_a_translation_leave_the_memory_out(lingon: Command, memory: Path, tmp_path: Path):
    (tmp_path / "a.txt").write_text("One house.\n")
    arguments = ["--input", tmp_path / "a.txt", "--memory", memory, "--write-memory", tmp_path / "new.csv"]
    status, output, _ = lingon("translate", *arguments, "--target-prefix", "Das ")
    assert (status, output) == (0, "Das ONE HOUSE.\n")
    assert not (tmp_path / "new.csv").exists()


@pytest.mark.parametrize(
    ("options", "status", "message"),
    [
        (["--memory", "no.csv"], 1, "no.csv: No such file or directory"),
        (["--memory", "a.txt"], 1, "a.txt: a translation memory must end in .tmx, .xliff, .xlf, .sdlxliff, .csv, .tsv"),
        (["--write-memory", "m.sdlxliff"], 1, "m.sdlxliff: a translation memory must end in .tmx, .xliff, .xlf, .csv"),
        (["--write-memory", "no/m.csv"], 2, "/no/m.csv: No such file or directory"),
        (["--memory", "fr.tmx"], 1, "fr.tmx: no unit has texts in en and de; there are 'en', 'fr'"),
        (["--memory", "bad.tmx"], 1, "bad.tmx: line 1, column 6: the XML is not well-formed"),
    ],
)
def test_a_file_that_is_no_memory_is_named_before_anything_is_sent(
    lingon: Command, service: FakeService, tmp_path: Path, options: list[str], status: int, message: str
):
    unit = "<tu><tuv xml:lang='en'><seg>a</seg></tuv><tuv xml:lang='fr'><seg>b</seg></tuv></tu>"
    (tmp_path / "fr.tmx").write_text(f"<tmx><body>{unit}</body></tmx>")
    (tmp_path / "bad.tmx").write_text("<tmx>")
    (tmp_path / "a.txt").write_text("One house.\n")
    found = lingon("translate", "--input", tmp_path / "a.txt", options[0], tmp_path / options[1])
    assert (found[0], found[1]) == (status, "")
    assert message in found[2][0]
    assert len(found[2]) == 1
    assert service.requests == []


def test_a_segment_of_the_memory_is_no_text_of_another_language(lingon: Command, memory: Path, tmp_path: Path):
    (tmp_path / "a.txt").write_text("One house.\n")
    assert Segment("One house.", "Ein Haus.", origin="Ann") in read_segments(memory)
    (tmp_path / "m.tmx").write_text(
        "<tmx><body><tu><tuv xml:lang='en'><seg>One house.</seg></tuv><tuv xml:lang='fr'><seg>Une maison.</seg></tuv>"
        "<tuv xml:lang='de'><seg>Ein Haus.</seg></tuv></tu></body></tmx>"
    )
    assert lingon("translate", "--input", tmp_path / "a.txt", "--memory", tmp_path / "m.tmx")[1] == "Ein Haus.\n"
