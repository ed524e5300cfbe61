"""The verbs export, calibrate and verify. They import PyTorch and ONNX only when they run, and verify no PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lingon.bundle.manifest import poor_quality
from lingon.cli.options import OptionGroup, with_option_groups
from lingon.cli.output import print_message, print_table

if TYPE_CHECKING:
    from lingon.bundle.store import Bundle
    from lingon.export.shortlist import ShortlistSettings
    from lingon.export.verification import CheckResult
    from lingon.training.checkpoint import Checkpoint
    from lingon.training.config import LanguagePair
    from lingon.training.corpus import Pair

# The options of `lingon export`.

TextFiles = tuple[Path, Path] | None
PAIR = "SOURCE TARGET"  # how help texts show two files
CheckpointArgument = Annotated[Path, typer.Argument(help="Checkpoint, or folder of a run for its best checkpoint.")]
FolderArgument = Annotated[Path, typer.Argument(help="models/NAME; the next version is written below this folder.")]
PrecisionsOption = Annotated[
    str | None,
    typer.Option(
        help="Comma-separated precisions: fp32 (CPU; always exported), fp32-cuda and fp16 (CUDA; only a Transformer), "
        "int8, int8-native and fp32-native (CPU). Default: all of these that the model can have. fp16-native (CUDA) is "
        "written only if it is named, together with fp16."
    ),
]
TrainDataOption = Annotated[
    TextFiles,
    typer.Option(
        metavar=PAIR, help="Source and target file for the int8 ranges and the shortlist. Default: the training text."
    ),
]
LearnShortlistOption = Annotated[
    bool | None,
    typer.Option(
        help="Export a shortlist: the likely target pieces of each source piece, for faster decoding.",
        show_default="shortlist, but none for several languages",
    ),
]
MaxBeamSizeOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=128,
        help="Largest beam size of a request, at most 128.",
        show_default="8, or the default beam size if that is larger",
    ),
]
ShortlistByDefaultOption = Annotated[
    bool, typer.Option(help="Decode with the shortlist if a request does not set shortlist.")
]


@dataclass(frozen=True, kw_only=True, slots=True)
class GateOptions(OptionGroup):
    """The text for the gates, how much of it they take, and where they run."""

    gate_data: Annotated[
        TextFiles,
        typer.Option(
            metavar=PAIR, help="Source and target file for the gates. Default: the validation set of the checkpoint."
        ),
    ] = None
    gate_sentences: Annotated[
        int,
        typer.Option(
            min=1, help="Number of gate sentences for BLEU and chrF of fp16, int8 and the shortlist against fp32."
        ),
    ] = 2500
    parity_sentences: Annotated[
        int, typer.Option(min=1, help="Number of gate sentences whose tokens must equal those of the checkpoint.")
    ] = 500
    gate_on: Annotated[
        str,
        typer.Option(
            metavar="auto|cpu|cuda",
            help="Where the gates of the precisions for CUDA run. auto: on CUDA if it is usable, else on the CPU, and "
            "the manifest says so. cuda: on CUDA, or the export fails before it begins.",
        ),
    ] = "auto"


@dataclass(frozen=True, kw_only=True, slots=True)
class DefaultOptions(OptionGroup):
    """What the bundle does unless a request says otherwise."""

    beam_size: Annotated[int, typer.Option(min=1, help="Default beam size of the bundle; the gates use it too.")] = 4
    max_beam_size: MaxBeamSizeOption = None
    length_penalty: Annotated[
        float, typer.Option(min=0.0, help="Default length penalty of the bundle; the gates use it too.")
    ] = 1.0
    alignment_layer: Annotated[
        int | None,
        typer.Option(
            help="Decoder layer, from 0, whose cross-attention gives alignments. Default: the one that training "
            "guided, else the last but one, of two the last."
        ),
    ] = None
    alignment_head: Annotated[
        list[int] | None,
        typer.Option(
            help="Head of that layer, from 0, that gives alignments; the mean of several if repeated. Default: the "
            "heads that training guided, else all."
        ),
    ] = None


CardOption = Annotated[
    Path | None,
    typer.Option(help="File with the model card's own text, such as attribution and scores. Default: none."),
]
AttachOption = Annotated[
    list[Path] | None,
    typer.Option(help="Picture or text to put into the bundle with the card. May be repeated. Default: none."),
]


@with_option_groups
def export(
    *,
    checkpoint: CheckpointArgument,
    folder: FolderArgument,
    precision: PrecisionsOption = None,
    train_data: TrainDataOption = None,
    shortlist: LearnShortlistOption = None,
    shortlist_by_default: ShortlistByDefaultOption = False,
    gates: GateOptions,
    defaults: DefaultOptions,
    card: CardOption = None,
    attach: AttachOption = None,
) -> None:
    """Export a checkpoint as an ONNX bundle, verified against the checkpoint."""
    from lingon.files import check_files

    check_files(path for files in (train_data, gates.gate_data) for path in files or ())
    from lingon.export.graphs.precisions import DEFAULT_PRECISIONS, check_heads, precisions_of
    from lingon.export.manifest import check_folder, check_precisions
    from lingon.export.pipeline import check_gate_device, export_checkpoint
    from lingon.export.settings import ExportSettings, ExportTexts, runnable
    from lingon.training.checkpoint import load_checkpoint

    names = () if precision is None else tuple(name.strip() for name in precision.split(","))
    check_gate_device(gates.gate_on)
    check_folder(folder)  # before anything is read, which may take minutes
    loaded = load_checkpoint(checkpoint)
    check_heads(loaded)
    possible = precisions_of(loaded.model)
    names = names or runnable([name for name in DEFAULT_PRECISIONS if name in possible], typer.echo)
    settings = ExportSettings(
        precisions=names,
        shortlist=_shortlist(loaded, shortlist, by_default=shortlist_by_default),
        shortlist_by_default=shortlist_by_default,
        beam_size=defaults.beam_size,
        max_beam_size=defaults.max_beam_size,
        length_penalty=defaults.length_penalty,
        alignment_layer=defaults.alignment_layer,
        alignment_heads=tuple(dict.fromkeys(defaults.alignment_head or ())) or None,
        parity_sentences=gates.parity_sentences,
        gate_sentences=gates.gate_sentences,
        gate_on=gates.gate_on,
        card=_text(card) if card else "",
        attachments=tuple(attach or ()),
    )
    check_precisions(loaded.model, settings)
    held_out = held_out_pairs(loaded, gates.gate_data)
    training = _training_pairs(loaded, train_data) if settings.reads_training_text else ()
    others = {} if gates.gate_data else other_sources(loaded)
    texts = ExportTexts(held_out[: max(gates.gate_sentences, gates.parity_sentences)], training, others)
    print_report(export_checkpoint(loaded, folder, texts, settings, log=lambda line: typer.echo(line, err=True)))


def _shortlist(checkpoint: Checkpoint, wanted: bool | None, *, by_default: bool) -> ShortlistSettings | None:
    """Return how to learn a shortlist. None, with a line, if none is asked for and the model serves several pairs."""
    from lingon.export.shortlist import ONE_PAIR, ShortlistSettings, check_one_pair, serves_one_pair

    languages = checkpoint.config.languages
    if wanted is None and not by_default and not serves_one_pair(languages):
        typer.echo(f"no shortlist: {ONE_PAIR}", err=True)
        return None
    if wanted is False:
        return None
    check_one_pair(languages)
    return ShortlistSettings()


def held_out_pairs(checkpoint: Checkpoint, files: TextFiles = None) -> Sequence[Pair]:
    """Return the pairs for the gates, without those whose source is longer than the training text had.

    Those of the checkpoint are its validation text in the pair of languages of the block data.
    """
    from lingon.errors import SettingsError
    from lingon.training.config import Corpus, pair_name
    from lingon.training.corpus import read_pairs

    data, longest = checkpoint.config.data, checkpoint.config.max_source_tokens
    own = [corpus for corpus in data.valid if data.languages_of(corpus) == data.languages]
    corpora = [Corpus(source=files[0], target=files[1])] if files else own
    if not corpora:
        raise SettingsError(
            f"{checkpoint.folder}: its settings have no validation text of {pair_name(data.languages)}; name some with "
            "--gate-data"
        )
    pairs = [pair for corpus in corpora for pair in read_pairs(corpus) if pair.source and pair.target]
    readable = [pair for pair in pairs if len(checkpoint.tokenizer.encode_source(pair.source)) <= longest]
    if not readable:
        raise SettingsError(
            f"{corpora[0].files()[0]}: no sentence for the gates: of {len(pairs):,} pairs none has at most "
            f"data.max_tokens = {longest} source tokens"
        )
    return readable


def other_sources(checkpoint: Checkpoint) -> dict[LanguagePair, Sequence[str]]:
    """Return the validation sources in other languages than the source language of the block data, by pair.

    As for the gates, those that are longer than the training text had are left out.
    """
    from lingon.training.corpus import by_languages, read_validation_text

    config = checkpoint.config
    found: dict[LanguagePair, Sequence[str]] = {}
    others = config.tokenizers_of_others(checkpoint.tokenizer)
    for languages, pairs in by_languages(read_validation_text(config.data), config.data.languages).items():
        if languages[0] != config.data.source_language:
            encode = others[languages].encode_source
            texts = [each.source for each in pairs if each.source]
            found[languages] = [text for text in texts if len(encode(text)) <= config.max_source_tokens]
    return {languages: texts for languages, texts in found.items() if texts}


def _training_pairs(checkpoint: Checkpoint, files: TextFiles) -> Sequence[Pair]:
    """Return the pairs that the model was trained on, or those of files, without pairs that are too long."""
    from lingon.training.config import Corpus
    from lingon.training.prepare import training_pairs

    config = checkpoint.config
    if files:
        corpora = (Corpus(source=files[0], target=files[1]),)
        data = config.data.model_copy(update={"train": corpora, "valid": (), "held_out": ()})
        config = config.model_copy(update={"data": data})
    return training_pairs(config, checkpoint.tokenizer)


def _text(path: Path) -> str:
    from lingon.errors import SettingsError

    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"--card {path}: {error}") from None


def print_report(bundle: Bundle) -> None:
    """Print the results of the gate of every precision: a line for each check, which a terminal of any width shows."""
    typer.echo(f"{bundle.label}: parity")
    for name, precision in bundle.manifest.precisions.items():
        typer.echo(f"{name} on {precision.provider.removesuffix('ExecutionProvider')}: gate {precision.gate}")
        for check, found in precision.report.items():
            typer.echo(f"  {check}: {_figures(found)}")
    typer.echo(f"written: {bundle.folder}")
    if poor := poor_quality(bundle.manifest.measured_bleu()):
        print_message(f"warning: {poor}")


def _figures(found: object) -> str:
    if not isinstance(found, dict):
        return str(found)
    return ", ".join(f"{name.replace('_', ' ')} {_short(value)}" for name, value in found.items())


def _short(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    return str(len(value)) if isinstance(value, list | tuple) else str(value)


@dataclass(frozen=True, kw_only=True, slots=True)
class SecondOptions(OptionGroup):
    """The second translator that a threshold is chosen for, and the text that it is chosen on."""

    second: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Choose the threshold for this second translator, the URL of an OpenAI-shaped API such as "
            "http://127.0.0.1:8000/v1. The text of --second-data is sent there, and the bundle stays as it is.",
            show_default="no text leaves this machine",
        ),
    ] = None
    second_model: Annotated[
        str | None, typer.Option(metavar="NAME", help="Name of the model there.", show_default="needed with --second")
    ] = None
    second_key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File with the key of the API.", show_default="no key is sent")
    ] = None
    second_data: Annotated[
        TextFiles,
        typer.Option(
            metavar=PAIR,
            help="Source and target file of text such as the server gets, one sentence a line, with translations by "
            "people; neither model may have learned from it.",
            show_default="needed with --second",
        ),
    ] = None
    second_share: Annotated[
        float, typer.Option(min=0.001, max=1, help="Share of the sentences that may be sent, for the recommendation.")
    ] = 0.2
    second_lines: Annotated[
        int, typer.Option(min=200, help="Lines of --second-data that are read at most, evenly spaced.")
    ] = 2000
    second_timeout: Annotated[float, typer.Option(min=0.1, help="Seconds that an answer may take.")] = 60.0
    second_concurrency: Annotated[int, typer.Option(min=1, max=256, help="Sentences that are asked about at once.")] = 8
    second_output: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Folder for figures, picture and answers. A run that ended before its time goes on with the answers "
            "there.",
            show_default="needed with --second",
        ),
    ] = None


@with_option_groups
def calibrate(
    *,
    model: Annotated[Path, typer.Argument(help="models/NAME for its highest version, or models/NAME/VERSION.")],
    train_data: Annotated[
        TextFiles,
        typer.Option(
            metavar=PAIR,
            help="Source and target file of the training text; 1,000 pairs or more.",
            show_default="needed without --second",
        ),
    ] = None,
    valid_data: Annotated[
        TextFiles,
        typer.Option(
            metavar=PAIR,
            help="Source and target file of text that the model was not trained on, of the kind that it is for; 2,500 "
            "pairs are read. They fit the confidence.",
            show_default="the confidence of the bundle stays",
        ),
    ] = None,
    other_data: Annotated[
        TextFiles,
        typer.Option(
            metavar=PAIR,
            help="The same of other kinds of text, such as news, so that the confidence is low where the model is not "
            "at home; only with --valid-data.",
            show_default="none",
        ),
    ] = None,
    second: SecondOptions,
) -> None:
    """Write the next version of a bundle with new text data, by which a server judges and mends translations.

    Text data names words that the model translates to themselves, which stand for placeholders, URLs and other strings
    that a translation keeps. It has the usual lengths of translations, profiles of both languages, and the regression
    for the confidence. All other files of the bundle stay as they are.

    With --second, choose the sentences that a server sends to its second translator instead.
    """
    from lingon.errors import SettingsError

    if second.second is not None:
        if train_data or valid_data or other_data:
            raise SettingsError("--second reads --second-data alone; name neither --train-data nor other text")
        _calibrate_second(model, second)
        return
    if train_data is None:
        raise SettingsError("lingon calibrate needs --train-data, or --second for the threshold of a second translator")
    _write_text_data(model, train_data, valid_data, other_data)


def _write_text_data(model: Path, train_data: tuple[Path, Path], valid_data: TextFiles, other_data: TextFiles) -> None:
    from lingon.errors import SettingsError
    from lingon.files import check_files, read_parallel

    given = [files for files in (train_data, valid_data, other_data) if files]
    check_files(path for files in given for path in files)
    if other_data and not valid_data:
        raise SettingsError("--other-data needs --valid-data: the confidence is fitted to both")
    from lingon.export.text_data import CalibrationText, add_text_data

    texts = CalibrationText.of(
        *(read_parallel(*files) if files else () for files in (train_data, valid_data, other_data))
    )
    for files, pairs in ((valid_data, texts.held_out), (other_data, texts.other)):
        if files and not pairs:
            raise SettingsError(f"{files[0]}: has no line with text in both files")
    bundle = add_text_data(model, texts, log=lambda line: typer.echo(line, err=True))
    assert bundle.manifest.text is not None
    typer.echo(
        f"{bundle.folder}: words that translate to themselves: {', '.join(bundle.manifest.text.words) or 'none'}"
    )


def _calibrate_second(model: Path, options: SecondOptions) -> None:
    from lingon.cli.output import line_progress
    from lingon.errors import SettingsError
    from lingon.files import check_files, read_parallel

    for option, value in (
        ("--second-model", options.second_model),
        ("--second-data", options.second_data),
        ("--second-output", options.second_output),
    ):
        if value is None:
            raise SettingsError(f"--second needs {option}")
    assert options.second is not None
    assert options.second_model is not None
    assert options.second_data is not None
    assert options.second_output is not None
    check_files(options.second_data)
    text = list(read_parallel(*options.second_data))
    from lingon.export.second_calibration import SecondSettings, calibrate_second
    from lingon.export.second_report import HEAD, advice, rows

    settings = SecondSettings(
        url=options.second,
        model=options.second_model,
        key_file=options.second_key,
        share=options.second_share,
        lines=options.second_lines,
        at_once=options.second_concurrency,
        seconds=options.second_timeout,
        folder=options.second_output,
    )
    with line_progress(len(text)) as on_progress:
        found = calibrate_second(model, text, settings, lambda line: typer.echo(line, err=True), on_progress)
    for reason, count in found.left_out.most_common():
        print_message(f"{count:,} lines {reason}, and do not count")
    print_table("", HEAD, rows(found.report))
    for line in advice(found.report):
        typer.echo(line)
    typer.echo(f"written: {options.second_output}")


def verify(
    bundle: Annotated[Path, typer.Argument(help="models/NAME/VERSION, or models/NAME for the highest version.")],
    device: Annotated[
        str, typer.Option(metavar="auto|cpu|cuda", help="Device to check on, as of lingon serve.")
    ] = "auto",
    precision: Annotated[
        str | None,
        typer.Option(
            help="Precision to check, such as fp32, fp16 or int8.", show_default="the bundle's best for the device"
        ),
    ] = None,
    gate_data: Annotated[
        tuple[Path, Path] | None,
        typer.Option(
            metavar=PAIR,
            help="Source and target file of sentences to translate; needs lingon[train] for BLEU.",
            show_default="the golden sentences of the bundle",
        ),
    ] = None,
    languages: Annotated[
        str | None,
        typer.Option(
            metavar="SOURCE:TARGET",
            help="Pair of the sentences, as en:de, of a bundle of several languages.",
            show_default="that of the first golden sentence, else the first pair of the bundle",
        ),
    ] = None,
    sentences: Annotated[
        int,
        typer.Option(
            min=1,
            help="Number of sentences for BLEU and chrF, whose bounds are for 2,500; the other checks use at most 500.",
        ),
    ] = 2500,
    publish: Annotated[
        bool,
        typer.Option(
            "--publish",
            help="If all checks pass, write the next version, whose manifest has the report and gate passed.",
        ),
    ] = False,
) -> None:
    """Check a bundle on the device that will serve it, against its own fp32 graphs; exit code 1 if a check fails."""
    from lingon.extras import name_missing_extra
    from lingon.files import check_files

    if gate_data is not None:
        check_files(gate_data)
        with name_missing_extra("lingon verify --gate-data", ["train"]):
            import sacrebleu  # noqa: F401  # a missing package is found before the checks, which take minutes
    from lingon.bundle.store import find_model, open_bundle
    from lingon.errors import ParityError
    from lingon.export.verification import (
        check_known,
        next_version,
        pair_of,
        publish_verified,
        read_gate_data,
        verify_bundle,
    )
    from lingon.serving.runtime.device import choose_device
    from lingon.text import printable

    opened = open_bundle(find_model(bundle))
    choice = choose_device(opened, device, precision)
    check_known(opened, choice.precision)
    pair = pair_of(opened, languages)
    target = next_version(opened) if publish else None
    pairs = read_gate_data(*gate_data) if gate_data else None
    found = verify_bundle(opened, choice, pairs, sentences, lambda line: typer.echo(printable(line), err=True), pair)
    what = f"{opened.label}: {choice.precision} on {choice.provider.removesuffix('ExecutionProvider')}"
    what += f", {' to '.join(pair)}" if pair else ""
    _print_table(what, found.rows)
    if found.failed:
        raise ParityError(f"{what}: {len(found.failed)} of {len(found.rows)} checks failed: {'; '.join(found.failed)}")
    if target is not None:
        report = {**found.report, **({"languages": ":".join(pair)} if pair else {})}
        typer.echo(f"written: {publish_verified(opened, choice, report, target).folder}")


def _print_table(title: str, rows: list[CheckResult]) -> None:
    """Print check, result and bound of every row, with lines on a terminal only."""
    cells = [(row.check, "passed" if row.passed else "FAILED", row.result, row.bound) for row in rows]
    print_table(title, ("check", "", "result", "bound"), cells)
