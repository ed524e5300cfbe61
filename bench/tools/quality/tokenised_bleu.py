"""Tokenised BLEU of files with translations.

    python -m lingon.bench.tools.quality.tokenised_bleu REFERENCE TRANSLATIONS...

The way of papers on WMT14 English to German is `--language de --split-hyphens`: Moses tokens with case, and hyphens
apart. BLEU and chrF of sacreBLEU stand beside it, because they are the ones that compare across papers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from lingon.bench.moses_bleu import MosesTokens, tokenised_bleu
from lingon.bench.results_file import save
from lingon.lines import read_lines
from lingon.scoring import score


def row_of(translations: Path, reference: Path, tokens: MosesTokens) -> dict[str, Any]:
    """The scores of one file of translations."""
    hypotheses, references = list(read_lines(translations)), list(read_lines(reference))
    tokenised, plain = tokenised_bleu(hypotheses, references, tokens), score(hypotheses, references)
    return {
        "translations": translations.name,
        "reference": reference.name,
        "sentences": len(references),
        "bleu_tokenised": round(tokenised.bleu, 2),
        "bleu": round(plain.bleu, 2),
        "chrf": round(plain.chrf, 2),
        "hypothesis_tokens": tokenised.hypothesis_tokens,
        "reference_tokens": tokenised.reference_tokens,
        "signatures": {
            "bleu_tokenised": tokenised.signature,
            "bleu": plain.bleu_signature,
            "chrf": plain.chrf_signature,
        },
    }


def main(
    reference: Annotated[Path, typer.Argument(help="Reference translations, one a line, plain or .gz.")],
    translations: Annotated[list[Path], typer.Argument(help="Files with translations of the same lines.")],
    language: Annotated[str, typer.Option(help="Language of the translations, for the rules of Moses.")],
    lower_case: Annotated[bool, typer.Option("--lower-case", help="Put both sides into lower case.")] = False,
    normalise: Annotated[bool, typer.Option("--normalise", help="Normalise the punctuation of both sides.")] = False,
    split_hyphens: Annotated[
        bool, typer.Option("--split-hyphens", help="Separate words at hyphens: a ##AT##-##AT## b.")
    ] = False,
    results: Annotated[Path | None, typer.Option(help="Folder for DATE-NAME.json. Default: not written.")] = None,
    name: Annotated[str, typer.Option(help="NAME of the results.")] = "tokenised-bleu",
) -> None:
    """Print tokenised BLEU of each file beside BLEU and chrF of sacreBLEU, with all signatures."""
    tokens = MosesTokens(language=language, lower_case=lower_case, normalise=normalise, split_hyphens=split_hyphens)
    rows = [row_of(path, reference, tokens) for path in translations]
    table = Table("translations", "sentences", "tokenised BLEU", "BLEU", "chrF")
    for row in rows:
        scores = (f"{row[score]:.1f}" for score in ("bleu_tokenised", "bleu", "chrf"))
        table.add_row(row["translations"], str(row["sentences"]), *scores)
    Console().print(table)
    for score_name, signature in rows[0]["signatures"].items():
        typer.echo(f"{score_name}: {signature}")
    if results is not None:
        typer.echo(f"written: {save(name, rows, results)}")


if __name__ == "__main__":
    typer.run(main)
