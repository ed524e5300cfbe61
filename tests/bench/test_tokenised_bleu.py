"""BLEU over Moses tokens: the tokens, and the score against a count by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lingon.bench.tokenised_bleu import MosesTokens, main, tokenised_bleu
from lingon.errors import CorpusError

PAPER = MosesTokens(language="de", lower_case=True, normalise=True)


def test_the_score_is_the_geometric_mean_of_the_precisions_counted_by_hand() -> None:
    """Seven tokens on each side: 6 of 7 words match, 4 of 6 pairs, 2 of 5 triples, 1 of 4 quadruples."""
    found = tokenised_bleu(["Die Katze saß auf der Matte."], ["Die Katze saß auf einer Matte."], PAPER)
    assert found.bleu == pytest.approx(100 * (6 / 7 * 4 / 6 * 2 / 5 * 1 / 4) ** 0.25)
    assert (found.hypothesis_tokens, found.reference_tokens) == (7, 7)


def test_a_short_hypothesis_pays_the_brevity_penalty_of_its_tokens() -> None:
    """Five of seven tokens, all right: exp(1 - 7 / 5)."""
    found = tokenised_bleu(["Die Katze saß auf einer"], ["Die Katze saß auf einer Matte."], PAPER)
    assert found.bleu == pytest.approx(100 * 2.718281828 ** (1 - 7 / 5))


@pytest.mark.parametrize(
    ("tokens", "text", "expected"),
    [
        (PAPER, "Ein Hund, der bellt.", "ein hund , der bellt ."),
        (PAPER, "Der Spieler hat die Nummer 10.", "der spieler hat die nummer 10."),
        (PAPER, "„Halt“ – rief er", "&quot; halt &quot; - rief er"),
        (MosesTokens(language="fr", lower_case=True, normalise=True), "L'homme dort.", "l&apos; homme dort ."),
        (MosesTokens(language="de"), "Ein Schwarz-Weiß-Bild.", "Ein Schwarz-Weiß-Bild ."),
        (
            MosesTokens(language="de", split_hyphens=True),
            "Ein Schwarz-Weiß-Bild.",
            "Ein Schwarz ##AT##-##AT## Weiß ##AT##-##AT## Bild .",
        ),
    ],
)
def test_a_line_has_the_tokens_of_the_moses_scripts(tokens: MosesTokens, text: str, expected: str) -> None:
    assert tokens.split([text]) == [expected]


def test_case_counts_unless_the_text_is_in_lower_case() -> None:
    hypotheses, references = ["DIE KATZE SASS AUF DEM TISCH"], ["die katze sass auf dem tisch"]
    assert tokenised_bleu(hypotheses, references, PAPER).bleu == pytest.approx(100)
    assert tokenised_bleu(hypotheses, references, MosesTokens(language="de", normalise=True)).bleu == 0


def test_the_signature_names_every_step() -> None:
    tokens = MosesTokens(language="de", lower_case=True, normalise=True, split_hyphens=True)
    signature = tokenised_bleu(["ein Hund"], ["ein Hund"], tokens).signature
    assert "|tok:none|" in signature
    assert "|moses:lc.norm.tok.atat|lang:de|sacremoses:" in signature


@pytest.mark.parametrize("references", [[], ["ein Hund", "eine Katze"]])
def test_hypotheses_that_do_not_fit_the_references_are_refused(references: list[str]) -> None:
    with pytest.raises(CorpusError, match=f"got 1 hypotheses and {len(references)} references"):
        tokenised_bleu(["ein Hund"], references, PAPER)


def test_the_command_scores_each_file_and_writes_the_scores(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = {
        "reference": "ein Schwarz-Weiß-Bild an der Wand",
        "same": "ein Schwarz-Weiß-Bild an der Wand",
        "other": "x",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(f"{text}\n", encoding="utf-8")
    files = [tmp_path / "same", tmp_path / "other"]
    main(tmp_path / "reference", files, language="de", split_hyphens=True, results=tmp_path / "results", name="trial")
    (path,) = (tmp_path / "results").glob("*-trial.json")
    rows = json.loads(path.read_text())["rows"]
    assert [(row["translations"], row["bleu_tokenised"]) for row in rows] == [("same", 100.0), ("other", 0.0)]
    assert {row["reference_tokens"] for row in rows} == {9}
    assert "|moses:tok.atat|lang:de|" in capsys.readouterr().out
