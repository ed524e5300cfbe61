"""`lingon align` with real graphs: a trained system whose links are known, and a Transformer with random weights."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from lingon.alignment import format_links, parse_links
from lingon.bundle.store import Bundle
from lingon.cli.align import align
from lingon.cli.aligning import Aligner, AlignmentHeads, JudgeLinks, LinkFile, PrintLinks
from lingon.client.results import ScoreResult
from lingon.errors import CorpusError, LingonError, ServerError, SettingsError
from tests.support.random_models import publish
from tests.support.repository import ROOT
from tests.support.shipped_model import serving

DIGITS = ROOT / "tests" / "data" / "digits"
PAIRS = [("1 2 3 4", "4 3 2 1"), ("3 1 4 1 5", "5 1 4 1 3")]
LINKS = "0-3 1-2 2-1 3-0\n0-4 1-3 2-2 3-1 4-0\n"
WORDS = [("the fox jumps", "over a dog"), ("a", "my box jumps over the fox"), ("my box", "a")]


@pytest.fixture(scope="module")
def transformer(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return publish(tmp_path_factory.mktemp("models"), "transformer")


class Verb:
    """Runs `lingon align` on pairs in this process; returns what it writes to --output."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.app = folder, typer.Typer()
        self.app.command()(align)

    def __call__(self, pairs: list[tuple[str, str]], *options: object, gold: str | None = None) -> str:
        for name, side in (("source", 0), ("target", 1)):
            (self.folder / name).write_text("".join(f"{pair[side]}\n" for pair in pairs), encoding="utf-8")
        files = ["--source", self.folder / "source", "--target", self.folder / "target"]
        if gold is not None:
            (self.folder / "gold").write_text(gold, encoding="utf-8")
            files += ["--gold", self.folder / "gold"]
        arguments = [*files, "--output", self.folder / "links", *options]
        result = CliRunner().invoke(self.app, list(map(str, arguments)))
        if result.exception is not None:
            raise result.exception
        return (self.folder / "links").read_text(encoding="utf-8")


@pytest.fixture
def lingon_align(tmp_path: Path) -> Verb:
    return Verb(tmp_path)


def model(bundle: Bundle | Path) -> tuple[object, ...]:
    return "--model", bundle.folder if isinstance(bundle, Bundle) else bundle, "--threads", 1, "--engines", 1


def rows(printed: str) -> dict[tuple[int | None, tuple[int, ...], bool], dict[str, Any]]:
    found = [json.loads(line) for line in printed.splitlines()]
    return {(row["layer"], tuple(row["heads"]), row["shift"]): row for row in found}


def test_a_trained_system_links_the_words_that_its_task_links(lingon_align: Verb) -> None:
    assert lingon_align(PAIRS, *model(DIGITS)) == LINKS
    assert lingon_align(PAIRS, *model(DIGITS), "--layer", 0, "--head", 0) == LINKS


def test_links_count_the_words_of_the_caller(lingon_align: Verb) -> None:
    """Of the source the second word is invisible, and of the target two words are far apart."""
    assert lingon_align([("1 \u200b 2 3", "3  2 \u00a0 1")], *model(DIGITS)) == "0-2 2-1 3-0\n"


def test_json_has_the_links_as_numbers(lingon_align: Verb) -> None:
    (found,) = map(json.loads, lingon_align(PAIRS[:1], *model(DIGITS), "--json").splitlines())
    links = [[0, 3], [1, 2], [2, 1], [3, 0]]
    assert found == {"line": 1, "source": PAIRS[0][0], "target": PAIRS[0][1], "links": links}


def test_a_blank_pair_has_no_links(lingon_align: Verb) -> None:
    assert lingon_align([("", ""), PAIRS[0]], *model(DIGITS)) == f"\n{LINKS.splitlines()[0]}\n"


def test_the_figures_against_right_links_are_those_computed_by_hand(lingon_align: Verb) -> None:
    """A has 9 links. S has 8, of which 7 are in A; P has one of A more: AER = 1 - (7 + 8) / (9 + 8)."""
    gold = LINKS.replace("0-3", "0p3").replace("4-0", "0-0")
    (found,) = rows(lingon_align(PAIRS, *model(DIGITS), "--json", gold=gold)).values()
    assert found["error_rate"] == pytest.approx(2 / 17)
    assert (found["precision"], found["recall"]) == pytest.approx((8 / 9, 7 / 8))
    assert (found["links"], found["sure"], found["pairs"]) == (9, 8, 2)
    table = lingon_align(PAIRS, *model(DIGITS), gold=gold).splitlines()
    assert table[0].split() == ["layer", "heads", "shift", "AER", "precision", "recall", "links", "sure"]
    assert table[1].split() == ["bundle", "bundle", "no", "0.118", "0.889", "0.875", "9", "8"]


def test_choosing_judges_every_layer_and_head_as_if_it_was_selected(transformer: Bundle, lingon_align: Verb) -> None:
    gold = "0-0 1-1 2-2\n0-0 0-5\n1-0\n"
    found = rows(lingon_align(WORDS, *model(transformer), "--choose", "--json", gold=gold))
    assert list(found.values()) == sorted(found.values(), key=lambda row: row["error_rate"])
    assert len({row["error_rate"] for row in found.values()}) > 2
    heads: list[tuple[int, ...]] = [(0,), (1,), ()]
    assert set(found) == {(layer, head, shift) for layer in (0, 1) for head in heads for shift in (False, True)}
    for layer, head, shift in found:
        options = ["--layer", layer, *(part for each in head for part in ("--head", each)), *["--shift"][: int(shift)]]
        selected = rows(lingon_align(WORDS, *model(transformer), *options, "--json", gold=gold))
        assert selected == {(layer, head, shift): found[layer, head, shift]}


def test_shift_reads_the_step_after_also_with_the_heads_of_the_bundle(transformer: Bundle, lingon_align: Verb) -> None:
    named = transformer.manifest.alignment
    heads = [part for head in named.heads for part in ("--head", head)]
    for shift in ([], ["--shift"]):
        of_bundle = lingon_align(WORDS, *model(transformer), *shift)
        assert of_bundle == lingon_align(WORDS, *model(transformer), "--layer", named.layer, *heads, *shift)
    assert of_bundle != lingon_align(WORDS, *model(transformer))


def test_a_model_of_the_other_direction_has_its_links_turned_round(transformer: Bundle, lingon_align: Verb) -> None:
    turned = [(target, source) for source, target in WORDS]
    for options in ([], ["--layer", 0, "--head", 1, "--shift"]):
        straight = lingon_align(turned, *model(transformer), *options).splitlines()
        links = [parse_links(line, "line").sure for line in straight]
        expected = [format_links((target, source) for source, target in each) for each in links]
        assert lingon_align(WORDS, *model(transformer), *options, "--reverse").splitlines() == expected


async def test_a_server_gives_the_links_of_its_bundle(transformer: Bundle, lingon_align: Verb) -> None:
    """The server returns fewer weights at once than a request of all pairs has."""
    layer = ["--layer", 1]
    expected = [lingon_align(WORDS, *model(transformer), *options) for options in ([], layer)]
    async with serving(models=(transformer.folder,), max_attention_weights=200) as running:
        server = ["--server", f"127.0.0.1:{running.server.port}"]
        found = [await asyncio.to_thread(lingon_align, WORDS, *server, *options) for options in ([], layer)]
    assert found == expected


def test_links_are_combined_with_those_of_a_file(lingon_align: Verb, tmp_path: Path) -> None:
    (tmp_path / "other").write_text("0-3 1-1\n\n", encoding="utf-8")
    other = ["--other", tmp_path / "other", "--symmetrisation"]
    assert lingon_align(PAIRS, *model(DIGITS), *other, "intersection") == "0-3\n\n"
    with_other = LINKS.replace("1-2", "1-1 1-2")
    assert lingon_align(PAIRS, *model(DIGITS), *other, "union") == with_other
    (found,) = rows(lingon_align(PAIRS, *model(DIGITS), *other, "union", "--json", gold=with_other)).values()
    assert found["error_rate"] == 0
    with pytest.raises(CorpusError, match="other: has 2 lines, but there are 1 pairs"):
        lingon_align(PAIRS[:1], *model(DIGITS), *other, "union")


class Bounded:
    """A translator that refuses more than two pairs at once, and a long pair at all."""

    def __init__(self) -> None:
        self.sent: list[int] = []

    def score(self, pairs: list[tuple[str, str]], **options: Any) -> list[ScoreResult]:
        self.sent.append(len(pairs))
        if len(pairs) > 2 or any("long" in source for source, _ in pairs):
            raise ServerError("too large", 3, reason="REQUEST_TOO_LARGE")
        return [ScoreResult(log_prob=float(source)) for source, _ in pairs]


def test_a_request_that_is_too_large_is_sent_in_parts_and_a_pair_that_is_too_large_is_an_error_of_its_line() -> None:
    work, translator = PrintLinks(aligner=Aligner(options={}), shift=False, as_json=False), Bounded()
    items = [(str(number), "x") for number in range(5)] + [("long", "x"), ("6", "x")]
    found = work.answer(translator, list(range(1, 8)), items)
    assert [result.log_prob for result in found] == [0, 1, 2, 3, 4, 0, 6]
    assert [result.error is None for result in found] == [True] * 5 + [False, True]
    assert max(translator.sent[1:]) < 7


def test_a_pair_that_cannot_be_aligned_is_left_out_of_the_figures() -> None:
    gold = LinkFile(Path("gold"), [parse_links("0-0", "gold:1")] * 2)
    work = JudgeLinks(aligner=Aligner(options={}), gold=gold, heads=AlignmentHeads(), as_json=True)
    error = ServerError("too large", 3)
    for number, result in ((1, ScoreResult()), (2, ScoreResult(error=error))):
        work.render(number, ("a", "b"), result)
    assert json.loads(work.summary())["sure"] == 1


@pytest.mark.parametrize(
    ("gold", "message"),
    [
        ("0-0\n", "gold:2: ends here, but the pairs go on"),
        ("0-0\n" * 3, "gold: has 3 lines, but there are 2 pairs"),
        ("0-0\n5-0\n", "gold:2: link 5-0: the source has 5 words, counted from 0"),
        ("0-0\n0 0\n", "gold:2: a link must be i-j or ipj with i and j from 0 to 999999999, got '0'"),
    ],
)
def test_right_links_that_do_not_fit_the_pairs_are_an_error(lingon_align: Verb, gold: str, message: str) -> None:
    with pytest.raises(CorpusError) as error:
        lingon_align(PAIRS, *model(DIGITS), gold=gold)
    assert str(error.value) == f"{lingon_align.folder}/{message}"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--choose"], "--choose needs --gold FILE, by which it chooses"),
        (["--symmetrisation", "both"], "must be intersection, union, grow-diag-final-and, got 'both'"),
        (["--head", 1], "--head needs --layer, since each layer has heads of its own"),
        (["--choose", "--gold", ROOT, "--shift"], "tries every layer and head, with and without --shift; leave out"),
    ],
)
def test_options_that_do_not_go_together_are_refused(lingon_align: Verb, options: list[object], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        lingon_align(PAIRS, *model(DIGITS), *options)


def test_a_head_that_the_model_does_not_have_is_an_error_with_its_bound(lingon_align: Verb) -> None:
    with pytest.raises(LingonError, match=r"--head must be 0 to 0 .* got 3"):
        lingon_align(PAIRS, *model(DIGITS), "--layer", 0, "--head", 3)


def test_a_model_without_attention_cannot_align(lingon_align: Verb, tmp_path: Path) -> None:
    bundle = publish(tmp_path / "models", "rnnenc lstm")
    with pytest.raises(LingonError, match="declares no attention heads for alignments"):
        lingon_align(WORDS, *model(bundle))
