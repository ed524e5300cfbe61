"""BLEU over Moses tokens, as papers on Multi30k and WMT14 report it, of a run or of files with translations.

    python -m lingon.bench.tokenised_bleu REFERENCE TRANSLATIONS...

The way of papers on WMT14 English to German is `--language de --split-hyphens`: Moses tokens with case, and hyphens
apart. BLEU and chrF of sacreBLEU are beside it, because they compare across papers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer
from sacrebleu.metrics.bleu import BLEU
from sacremoses import MosesPunctNormalizer, MosesTokenizer

from lingon.bench.options import ToolResults
from lingon.bench.results_file import keep, show
from lingon.errors import CorpusError
from lingon.files import read_lines
from lingon.scoring import score

HYPHEN = re.compile(r"(\S)-(\S)")


@dataclass(frozen=True, kw_only=True, slots=True)
class MosesTokens:
    """The steps from a line of text to Moses tokens, in their order, by default without the last one.

    Lower case, punctuation and tokens are the steps of the files `lc.norm.tok` of the Multi30k repository: of its test
    sets they give the same number of tokens and of characters.
    """

    language: str  # of the rules for abbreviations and apostrophes, such as de
    lower_case: bool = False
    normalise: bool = False  # punctuation, as normalize-punctuation.perl does
    split_hyphens: bool = False  # a-b becomes a ##AT##-##AT## b, as in papers on WMT14 English to German

    def split(self, lines: Sequence[str]) -> list[str]:
        """Return the tokens of each line, separated by spaces."""
        normalizer, tokenizer = MosesPunctNormalizer(lang=self.language), MosesTokenizer(lang=self.language)
        found = []
        for line in lines:
            text = line.lower() if self.lower_case else line
            text = normalizer.normalize(text) if self.normalise else text
            tokens = tokenizer.tokenize(text, return_str=True)
            found.append(HYPHEN.sub(r"\1 ##AT##-##AT## \2", tokens) if self.split_hyphens else tokens)
        return found

    def __str__(self) -> str:
        """Return the steps as a part of a signature of BLEU."""
        steps = ["lc"] * self.lower_case + ["norm"] * self.normalise + ["tok"] + ["atat"] * self.split_hyphens
        return f"moses:{'.'.join(steps)}|lang:{self.language}|sacremoses:{version('sacremoses')}"


@dataclass(frozen=True, slots=True)
class TokenisedBleu:
    """BLEU over given tokens, with the lengths that the brevity penalty compares."""

    bleu: float
    hypothesis_tokens: int
    reference_tokens: int
    signature: str


def tokenised_bleu(hypotheses: Sequence[str], references: Sequence[str], tokens: MosesTokens) -> TokenisedBleu:
    """Return BLEU of plain hypotheses against one plain reference each, both split into tokens in the same way."""
    if len(hypotheses) != len(references) or not references:
        raise CorpusError(
            f"tokenised BLEU needs one hypothesis for each of 1 or more references, "
            f"got {len(hypotheses)} hypotheses and {len(references)} references"
        )
    metric = BLEU(tokenize="none", force=True)
    found = metric.corpus_score(tokens.split(hypotheses), [tokens.split(references)])
    return TokenisedBleu(found.score, found.sys_len, found.ref_len, f"{metric.get_signature()}|{tokens}")


def row_of(translations: Path, reference: Path, tokens: MosesTokens) -> dict[str, Any]:
    """Return the scores of one file of translations."""
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
    reference: Annotated[Path, typer.Argument(help="Reference translations, one a line, plain or packed.")],
    translations: Annotated[list[Path], typer.Argument(help="Files with translations of the same lines.")],
    language: Annotated[str, typer.Option(help="Language of the translations, for the rules of Moses.")],
    lower_case: Annotated[bool, typer.Option("--lower-case", help="Put both sides into lower case.")] = False,
    normalise: Annotated[bool, typer.Option("--normalise", help="Normalise the punctuation of both sides.")] = False,
    split_hyphens: Annotated[
        bool, typer.Option("--split-hyphens", help="Separate words at hyphens: a ##AT##-##AT## b.")
    ] = False,
    results: ToolResults = None,
    name: Annotated[str, typer.Option(help="NAME of the results.")] = "tokenised-bleu",
) -> None:
    """Print tokenised BLEU of each file beside BLEU and chrF of sacreBLEU, with all signatures."""
    tokens = MosesTokens(language=language, lower_case=lower_case, normalise=normalise, split_hyphens=split_hyphens)
    rows = [row_of(path, reference, tokens) for path in translations]
    show(
        [{name: row[name] for name in ("translations", "sentences", "bleu_tokenised", "bleu", "chrf")} for row in rows]
    )
    for score_name, signature in rows[0]["signatures"].items():
        typer.echo(f"{score_name}: {signature}")
    keep(name, rows, results)


if __name__ == "__main__":
    typer.run(main)
