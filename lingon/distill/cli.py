"""The verb distill and its options."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lingon.cli.backend import BackendOptions
from lingon.cli.options import OwnBeamSizeOption, SourceLanguageOption, TargetLanguageOption, with_option_groups
from lingon.distill.shards import PairChoice
from lingon.errors import SettingsError

if TYPE_CHECKING:
    from lingon.distill.shards import DistillReport

TextFilesOption = Annotated[
    list[Path],
    typer.Option(metavar="FILE", help="Text to translate, one a line, plain or packed; may be given several times."),
]
FolderOption = Annotated[Path, typer.Option(help="Folder for the corpus; a run that was ended goes on from it.")]
HumanTranslationsOption = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="FILE", help="Human translations of each --source, which --choose closest needs.", show_default="none"
    ),
]
NumHypothesesOption = Annotated[
    int | None,
    typer.Option(
        "--num-hypotheses",
        "--n-best",
        min=1,
        help="Translations of each text, at most --beam-size.",
        show_default="1, else --beam-size",
    ),
]
PairChoiceOption = Annotated[
    PairChoice,
    typer.Option(
        help="Which translations become training pairs: the best one, all of --num-hypotheses, or the one that is "
        "closest to a human translation by chrF."
    ),
]

BackwardOption = Annotated[
    bool,
    typer.Option(
        "--backward",
        help="The texts are the targets of the pairs, and their translations the sources: more training text for the "
        "other direction, from text in its target language alone.",
    ),
]
WholeOption = Annotated[
    bool,
    typer.Option(
        "--whole",
        help="The teacher reads each text as it is: none is split, no string is kept, numbers alone are read too.",
    ),
]


@with_option_groups
def distill(
    source: TextFilesOption,
    output: FolderOption,
    target: HumanTranslationsOption = None,
    source_language: SourceLanguageOption = None,
    target_language: TargetLanguageOption = None,
    beam_size: OwnBeamSizeOption = 4,
    num_hypotheses: NumHypothesesOption = None,
    choose: PairChoiceOption = PairChoice.BEST,
    backward: BackwardOption = False,
    whole: WholeOption = False,
    *,
    backend: BackendOptions,
) -> None:
    """Translate training text with a teacher, for a smaller and faster student to be trained on.

    Writes OUTPUT/distilled.source.gz and OUTPUT/distilled.target.gz, line by line, which a config names under
    [[data.train]], and OUTPUT/report.json. A text occurs once. Texts whose translation is suspect are left out.

    A run that was ended, at any time, goes on where it was. A terminal shows texts done, rate and time left.
    """
    from lingon.cli.backend import open_translator
    from lingon.cli.output import progress_bar, wants_progress
    from lingon.distill.shards import REPORT, DistillPlan, Shards, digest, unique_texts
    from lingon.distill.teacher import Teacher, missing_bytes
    from lingon.source_language import check_named

    targets, hypotheses = target or [], _hypotheses(choose, num_hypotheses, beam_size)
    _check(source, targets, choose)
    check_named(source_language, "a distillation")
    texts = unique_texts(source, targets)
    languages = {"source": source_language, "target": target_language}
    options: dict[str, Any] = {"beam_size": beam_size, "num_hypotheses": hypotheses}
    options |= {name: language for name, language in languages.items() if language}  # else the plan is as without them
    options |= {"split_sentences": "off", "protect": False, "lower_capitals": False} if whole else {}
    with open_translator(backend) as translator:
        teacher = Teacher(translator, {"model": backend.server_model, **options})  # type: ignore[typeddict-item]
        model = teacher.model_for(texts[0])
        shards = Shards(output, DistillPlan(len(texts), digest(texts), model, options), texts)
        missing = len(shards.missing())
        print(f"{len(texts):,} texts in {len(shards):,} shards, {missing:,} to translate with {model}")
        try:
            with progress_bar(missing_bytes(shards), wants_progress(typed=False, output=output / REPORT)) as advance:
                teacher.translate(shards, model, advance)
        except BaseException:
            translator.close()
            raise
    _print(shards.publish(choose, backward=backward), output)


def _hypotheses(choose: PairChoice, given: int | None, beam_size: int) -> int:
    """Return the translations to ask for, by default only those that are of use."""
    if choose is PairChoice.BEST and (given or 1) > 1:
        raise SettingsError(f"--num-hypotheses {given} needs --choose all or closest; best takes one")
    if given is not None and given > beam_size:
        raise SettingsError(f"--num-hypotheses {given} is more than --beam-size {beam_size}")
    return given or (1 if choose is PairChoice.BEST else beam_size)


def _check(sources: list[Path], targets: list[Path], choose: PairChoice) -> None:
    """Raise an error for files that do not fit before a model is loaded."""
    from lingon.files import check_files

    check_files([*sources, *targets])
    if targets and len(targets) != len(sources):
        raise SettingsError(f"--target: {len(targets)} files for {len(sources)} of --source; give one for each")
    if choose is PairChoice.CLOSEST and not targets:
        raise SettingsError("--choose closest needs --target: it compares with human translations")


def _print(report: DistillReport, output: Path) -> None:
    from lingon.distill.shards import SOURCE, TARGET

    left_out = ", ".join(f"{count:,} {reason}" for reason, count in sorted(report.left_out.items()))
    print(f"{report.pairs:,} pairs of {report.texts:,} texts (left out: {left_out or 'none'})")
    if report.backward:
        print(f'{output / SOURCE} and {output / TARGET}: name them under [[data.train]], with a tag such as "<BT>"')
    else:
        print(f"{output / SOURCE} and {output / TARGET}: name them under [[data.train]] in the config of the student")
