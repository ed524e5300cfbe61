"""The verb `evaluate`: translates a line-parallel test set with a checkpoint or a bundle and scores it."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from lingon.bundle.manifest import poor_quality
from lingon.cli.options import OwnBeamSizeOption, OwnDeviceOption, SourceLanguageOption, TargetLanguageOption
from lingon.cli.output import check_output, line_progress, print_message, writing
from lingon.errors import CorpusError, LingonError, SettingsError
from lingon.extras import find_entry_points, name_missing_extra
from lingon.files import TranslatedLines, read_parallel
from lingon.scoring import Scores, score

ModelArgument = Annotated[
    Path, typer.Argument(help="A checkpoint, a training run or a bundle (models/NAME or models/NAME/VERSION).")
]
TestSourceOption = Annotated[
    Path, typer.Option(metavar="FILE", help="Text to translate, one sentence a line, plain or packed.")
]
TestTargetOption = Annotated[
    Path, typer.Option(metavar="FILE", help="Reference translations of --source, line by line.")
]
OwnLengthPenaltyOption = Annotated[
    float, typer.Option(min=0.0, help="alpha in the score of a translation, log-probability / length^alpha.")
]
PrecisionOption = Annotated[
    str | None,
    typer.Option(help="Precision of a bundle, such as fp32, fp16 or int8.", show_default="the best one for the device"),
]
LimitOption = Annotated[
    int | None, typer.Option(min=1, help="Evaluate only this many sentences from the beginning.", show_default="all")
]
TranslationsOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Write the translations to this file, one a line, compressed if it ends in .gz.",
        show_default="not written",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the scores as one JSON object. Default: a table.")]


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The scores of a test set and the speed of translating it, loading the model included."""

    sentences: int
    scores: Scores
    sentences_per_second: float


def evaluate(
    model: ModelArgument,
    source: TestSourceOption,
    target: TestTargetOption,
    source_language: SourceLanguageOption = None,
    target_language: TargetLanguageOption = None,
    beam_size: OwnBeamSizeOption = 4,
    length_penalty: OwnLengthPenaltyOption = 1.0,
    device: OwnDeviceOption = "auto",
    precision: PrecisionOption = None,
    limit: LimitOption = None,
    output: TranslationsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Translate a test set and print BLEU and chrF: a checkpoint by the reference search, a bundle by the engine.

    A terminal shows how many sentences are done and how much time is left.

    A line that is longer than the bundle reads is translated in parts, of a checkpoint too.
    """
    if output is not None:
        check_output(output, source, target)
    sources, references = _read(source, target, limit)
    settings = {"beam_size": beam_size, "length_penalty": length_penalty, "device": device, "precision": precision}
    languages = {"source_language": source_language, "target_language": target_language}
    start = time.perf_counter()
    with line_progress(len(sources)) as on_progress:
        hypotheses, language = _translate(model, sources, on_progress=on_progress, **settings, **languages)
    seconds = time.perf_counter() - start
    try:  # write the file and print the scores even if one of the two fails
        if output is not None:
            _write(output, hypotheses)
    finally:
        result = Evaluation(len(sources), score(hypotheses, references, language), len(sources) / seconds)
        figures = {"model": str(model), "beam_size": beam_size, "length_penalty": length_penalty, **_figures(result)}
        typer.echo(json.dumps(figures) if as_json else _table(figures))
        if poor := poor_quality(result.scores.bleu):
            print_message(f"warning: {poor}")


def kind_of(model: Path) -> str:
    """Return the kind of a model folder: `bundle` (or the folder of its versions) or `checkpoint` (or a training
    run).
    """
    if not model.is_dir():
        raise SettingsError(f"{model}: no such folder; give a checkpoint, a training run or a bundle")
    manifests = [model / "manifest.json", *(model.glob("[0-9]*/manifest.json"))]
    return "bundle" if any(manifest.is_file() for manifest in manifests) else "checkpoint"


def _translate(model: Path, lines: list[str], **settings: Any) -> TranslatedLines:
    """Return the translations of lines by the package that handles this kind of model.

    Its entry point is a function translate_lines(model, lines, *, beam_size, length_penalty, device="auto",
    precision=None, source_language=None, target_language=None, on_progress).
    """
    kind = kind_of(model)
    entry = find_entry_points("lingon.translators").get(kind)
    if entry is None:
        raise LingonError(f"this installation has no translator for a {kind} (entry point lingon.translators: {kind})")
    with name_missing_extra(f"evaluating a {kind}", entry.extras):
        translations: TranslatedLines = entry.load()(model, lines, **settings)
        return translations


def _read(source: Path, target: Path, limit: int | None) -> tuple[list[str], list[str]]:
    pairs = list(read_parallel(source, target))[:limit]
    if not pairs:
        raise CorpusError(f"{source}: holds no line to translate")
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]


def _write(output: Path, hypotheses: list[str]) -> None:
    with writing(output) as file:
        for line in hypotheses:
            file.write(f"{line}\n".encode())


def _figures(result: Evaluation) -> dict[str, Any]:
    return {
        "sentences": result.sentences,
        **asdict(result.scores),
        "sentences_per_second": round(result.sentences_per_second, 2),
    }


def _table(figures: dict[str, Any]) -> str:
    width = max(map(len, figures))
    shown = {name: f"{value:.2f}" if isinstance(value, float) else value for name, value in figures.items()}
    return "\n".join(f"{name:{width}}  {value}" for name, value in shown.items())
