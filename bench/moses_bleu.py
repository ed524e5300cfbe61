"""BLEU over Moses tokens, as papers on Multi30k and WMT14 report it, beside the BLEU that tokenises text itself."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version

from sacrebleu.metrics.bleu import BLEU
from sacremoses import MosesPunctNormalizer, MosesTokenizer

from lingon.errors import CorpusError

HYPHEN = re.compile(r"(\S)-(\S)")


@dataclass(frozen=True, kw_only=True, slots=True)
class MosesTokens:
    """The steps from a line of text to Moses tokens, in their order; the last one is left out by default.

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
        """The steps as a part of a signature of BLEU."""
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
