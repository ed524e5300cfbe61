"""The setup of a run: text, tokenizer, model and optimizer, new or from the last checkpoint of the run."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import torch
from torch import nn

from lingon.errors import CheckpointError, CorpusError, SettingsError
from lingon.files import lock_path, make_folders, write_bytes, write_text
from lingon.machine import free_bytes
from lingon.text import UNK, Tokenizer
from lingon.training import checkpoint as checkpoints
from lingon.training.batches import filter_by_length
from lingon.training.checkpoint import MovingAverage
from lingon.training.config import (
    CORPUS,
    Config,
    LanguagePair,
    TrainingSettings,
    model_differences,
    pair_name,
    pair_names,
    parse_config,
    setting_differences,
)
from lingon.training.corpus import Pair, by_languages, read_validation_text
from lingon.training.epochs import epoch_sizes
from lingon.training.interrupt import Interrupt
from lingon.training.model_settings import ModelSettings
from lingon.training.models.build import build_model, count_weights
from lingon.training.prepare import LEARNT, prepare
from lingon.training.prepared import PreparedCorpus
from lingon.training.processes import Processes, fast_kernels, join_processes, slow_precision
from lingon.training.report import Report
from lingon.training.tokenizer import SPACE
from lingon.training.trainer import Trainer

BYTES_OF_WEIGHT = 16  # in training: the weight, its gradient and the two moments of Adam, in fp32


@contextmanager
def open_run(
    config: Config,
    folder: Path,
    interrupt: Interrupt,
    init_from: Path | None = None,
    report: Callable[..., Report] = Report,
) -> Iterator[Trainer]:
    """Join the processes of a run, lock its folder, open its report and yield its trainer.

    init_from: a checkpoint. A new run starts with its weights and tokenizer (fine-tuning)
    report: makes the report, with the arguments of `Report`
    """
    with join_processes(config.training.device) as group, ExitStack() as stack:
        check_accumulation(config.training.accumulate, group.world_size)
        if group.is_leader:
            stack.enter_context(run_folder(folder))
        opened = stack.enter_context(report(folder, config.training.max_steps, enabled=group.is_leader))
        trainer = build_trainer(config, folder, group, opened, interrupt, init_from)
        # Only now: with it the process keeps freed memory, and reading text frees much.
        stack.enter_context(fast_kernels(group.device))
        yield trainer


def check_accumulation(accumulate: int, world_size: int) -> None:
    """Raise SettingsError if the micro-batches of an update do not divide evenly among the processes."""
    if accumulate % world_size:
        raise SettingsError(f"training.accumulate must be a multiple of the {world_size} processes, got {accumulate}")


@contextmanager
def run_folder(folder: Path) -> Iterator[None]:
    """Create the folder of a run, lock it against other runs, and remove the partial files of a killed run."""
    with ExitStack() as stack:
        try:
            make_folders(folder)
            stack.enter_context(lock_path(folder))
        except BlockingIOError:
            raise SettingsError(f"--output {folder}: another run uses this folder") from None
        except OSError as error:
            raise SettingsError(f"--output {folder}: {error.strerror}") from None
        checkpoints.remove_leftovers(folder)
        yield


def build_trainer(
    config: Config,
    folder: Path,
    processes: Processes,
    report: Report,
    interrupt: Interrupt,
    init_from: Path | None = None,
) -> Trainer:
    """Return the trainer of a run, at its last checkpoint if it has one, else at its beginning."""
    last = next(reversed(checkpoints.saved_steps(folder)), None)
    if last is not None:
        _check_tokenizer_kept(config, folder, last)
        if init_from is not None:
            report.message(f"--init-from {init_from} is ignored: the run resumes from {last}")
    start = last or (
        init_from and checkpoints.resolve_checkpoint(init_from)
    )  # before reading text, which takes minutes
    config = _with_fast_precision(_with_facts(config, start).with_languages(), processes.device, report)
    assert config.data.valid, "only an imported model has no validation text"
    corpus = _corpus(config, start, folder, processes, report, interrupt)
    valid = read_validation_text(config.data)
    tokenizer = _tokenizer(config, corpus, start or config.tokenizer.path, folder, processes)
    if start is None:
        config = _with_silent_pieces(config, tokenizer)
    others = config.tokenizers_of_others(tokenizer)
    for line in _described(config, corpus):
        report.message(line)
    valid = _scorable(valid, config, tokenizer, others, report)
    vocabs = tokenizer.source_vocab, tokenizer.target_vocab
    weights = _check_model(config.model, vocabs, processes.device)
    torch.manual_seed(config.training.seed)
    model = build_model(config.model, *vocabs).to(processes.device)
    report.message(f"model: {weights:,} weights on {processes.device}, {processes.world_size} process(es)")
    optimizer = _optimizer(model, config.training)
    decay = config.training.average_decay
    average = MovingAverage(decay) if decay else None
    trainer = Trainer(
        config, folder, processes, report, tokenizer, others, corpus, valid, model, optimizer, interrupt, average
    )
    _begin(trainer, last, start)
    if processes.is_leader:
        write_text(folder / checkpoints.CONFIG, config.model_dump_json(indent=2) + "\n")
    model.train()
    return trainer


def _begin(trainer: Trainer, last: Path | None, start: Path | None) -> None:
    """Give a trainer the state of its last checkpoint, or without one the weights of the checkpoint `start`, if any."""
    config = trainer.config
    digest = trainer.corpus.digest([each.repeat for each in config.data.train])
    measured = _validation_digest(trainer.valid, config.training)
    if last is not None:
        _resume(trainer, last, digest, measured)
    else:
        if start is not None:
            checkpoints.load_weights(trainer.model, start)
            trainer.report.message(f"starts from the weights of {start}")
        if trainer.average is not None:
            trainer.average.begin(trainer.model)
    trainer.progress.text, trainer.progress.validation = digest, measured


def _check_model(settings: ModelSettings, vocabs: tuple[int, int], device: torch.device) -> int:
    """Return the number of weights. Raise SettingsError if pieces are not there, or the training has no room."""
    never = settings.never_generated
    if max(never, default=0) >= vocabs[1]:
        raise SettingsError(
            f"model.never_generated must be below {vocabs[1]}, the pieces of a target, got {max(never)}"
        )
    weights = count_weights(settings, *vocabs)
    free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else free_bytes()
    if 0 < free < BYTES_OF_WEIGHT * weights:  # 0 where the system does not tell
        raise SettingsError(
            f"the training of {weights:,} weights needs {BYTES_OF_WEIGHT * weights / 2**30:,.1f} GiB of memory, of "
            f"which {free / 2**30:,.1f} are free; lower the sizes in [model]"
        )
    return weights


def _with_fast_precision(config: Config, device: torch.device, report: Report) -> Config:
    """Return the settings, with fp32 for a precision that the CPU computes many times more slowly."""
    if not slow_precision(config.training.precision, device, _cpuinfo()):
        return config
    report.message("this CPU has no instructions for bf16, which would take many times as long: trains in fp32")
    return config.model_copy(update={"training": config.training.model_copy(update={"precision": "fp32"})})


def _cpuinfo() -> str:
    path = Path("/proc/cpuinfo")
    return path.read_text(encoding="utf-8") if path.exists() else ""


def _with_facts(config: Config, start: Path | None) -> Config:
    """Return the settings with the facts about the model of the checkpoint that a run goes on from, if they lack them.

    These are the languages of a model of several, the pieces that it never generates, whether its sources have an end
    token, and where it was imported from.
    """
    if start is None:
        return config
    known, values = checkpoints.read_config(start).model_dump(), config.model_dump()
    for name in ("languages", "origin"):
        values[name] = values[name] or known[name]
    if "never_generated" not in config.model.model_fields_set:
        values["model"]["never_generated"] = known["model"]["never_generated"]
    if "source_end" not in config.tokenizer.model_fields_set:
        values["tokenizer"]["source_end"] = known["tokenizer"]["source_end"]
    return parse_config(values, str(start))


def _with_silent_pieces(config: Config, tokenizer: Tokenizer) -> Config:
    """Return the settings of a new model, which generates no tag, no marker of terms and no piece of languages unless
    they say otherwise.

    The pieces of both sides are in a joint vocabulary. Those that a text may have stay possible.
    """
    languages, model = config.languages, config.model
    if not (languages or config.tags or config.markers) or "never_generated" in model.model_fields_set:
        return config
    pieces = (*languages.source_pieces, *languages.target_pieces) if languages else ()
    ids = map(tokenizer.target.piece_to_id, (*pieces, *config.tags))
    silent = {each for each in ids if tokenizer.target.is_control(each)}
    silent |= {tokenizer.target.piece_to_id(piece) for each in config.markers for piece in (each, SPACE + each)}
    never = tuple(sorted(each for each in silent if each > UNK))
    return config.model_copy(update={"model": model.model_copy(update={"never_generated": never})})


def _corpus(
    config: Config, start: Path | None, run: Path, processes: Processes, report: Report, interrupt: Interrupt
) -> PreparedCorpus:
    """Return the prepared corpus of a run. The leader prepares it, if it is not there yet.

    start: the checkpoint whose tokenizer the run has
    """
    folder, given = config.data.prepared or run / CORPUS, start or config.tokenizer.path
    tokenizer = Tokenizer.read(given) if given else None
    if processes.is_leader:
        prepare(config, folder, tokenizer, watch=report, stopped=interrupt.stop_signal)
    processes.barrier()
    return PreparedCorpus(folder)


def _described(config: Config, corpus: PreparedCorpus) -> Iterator[str]:
    """Yield lines about the training text."""
    yield f"training text: {corpus.counts}"
    yield from _several_pairs(config, corpus)
    yield from _stages(config, corpus)
    if config.linked:
        yield from _links(config, corpus)


def _stages(config: Config, corpus: PreparedCorpus) -> Iterator[str]:
    """Yield a line for each stage. Raises CorpusError if there is no text for one."""
    kept = {
        settings.name: facts.kept for settings, facts in zip(config.data.train, corpus.manifest.corpora, strict=True)
    }
    for number, stage in enumerate(config.training.stage):
        weights = {name: weight for name, weight in stage.weights.items() if kept[name]}
        if stage.weights and not weights:
            raise CorpusError(f"training.stage.{number}: no pair of {', '.join(stage.weights)} passes the filters")
        total = sum(weights.values())
        shares = ", ".join(f"{name} {weight / total:.1%}" for name, weight in weights.items()) or "all text by its size"
        yield f"stage {number + 1}, until update {stage.until or config.training.max_steps:,}: {shares}"


def _links(config: Config, corpus: PreparedCorpus) -> Iterator[str]:
    """Yield lines that say what word alignments are used for. Raises CorpusError if no pair has a link."""
    linked = sum(each.linked for each in corpus.manifest.corpora)
    if not linked:
        files = ", ".join(str(each.alignment) for each in config.data.corpora if each.alignment)
        raise CorpusError(f"{files}: none of {corpus.counts.kept:,} pairs that pass the filters has a link")
    if config.training.guided_alignment:
        layer, heads = config.guided
        heads_named = ", ".join(map(str, heads))
        yield f"guided alignment: {linked:,} pairs with links; decoder layer {layer}, heads {heads_named}"
    if config.data.terms is not None:
        yield f"terms: {config.data.terms.share:.1%} of {linked:,} pairs with links are annotated in an epoch"


def _several_pairs(config: Config, corpus: PreparedCorpus) -> Iterator[str]:
    """Yield lines that say what a run trains of each pair of languages, if it trains several.

    Raises CorpusError if there is no text of one of them.
    """
    trained = config.data.trained
    if len(trained) < 2:
        return
    found: Counter[LanguagePair] = Counter()
    for facts, settings in zip(corpus.manifest.corpora, config.data.train, strict=True):
        found[facts.languages] += facts.kept * settings.repeat
    for languages in trained:
        if not found[languages]:
            raise CorpusError(f"no pair of {pair_name(languages)} passes the filters of the training text")
    sizes = np.array([found[languages] for languages in trained])
    shown = epoch_sizes(sizes, config.data.temperature).tolist()
    for languages, size in zip(trained, shown, strict=True):
        yield f"{pair_name(languages)}: {size:,} pairs in an epoch, {size / sum(shown):.1%} of all"
    validated = {*map(config.data.languages_of, config.data.valid)}
    if unseen := [pair for pair in trained if pair not in validated]:
        yield f"trained without validation text: {pair_names(unseen)}"
    assert config.languages is not None, "with_languages makes them"
    if untrained := [pair for pair in config.languages.pairs if pair not in trained]:
        yield f"served without training text: {pair_names(untrained)}"


def _tokenizer(
    config: Config, corpus: PreparedCorpus, given: Path | None, run: Path, processes: Processes
) -> Tokenizer:
    """Return the tokenizer of the corpus. One that it was learnt from is saved in the folder of the run.

    given: the folder whose tokenizer the corpus was prepared with, if there was one
    """
    found = corpus.tokenizer()
    if given is None:
        if processes.is_leader:
            _write_tokenizer(found, run)
        processes.barrier()
    tokenizer = config.tokenizer_of_pair(found)
    # two models that were learnt of like texts may number their pieces alike. They are still one for each language
    alike = tokenizer.joint if config.tokenizer.joint else len(tokenizer.files()) == 1
    if config.tokenizer.joint != alike:
        has = "one vocabulary for both languages" if alike else "one for each language"
        raise SettingsError(
            f"tokenizer.joint = {str(config.tokenizer.joint).lower()}, but {given or corpus.folder} has {has}"
        )
    return tokenizer


def _check_tokenizer_kept(config: Config, run: Path, last: Path) -> None:
    """Raise SettingsError if a setting has changed by which a run would get another tokenizer than it has."""
    saved = checkpoints.read_config(last).tokenizer
    for name in (*LEARNT, "path"):
        before, now = getattr(saved, name), getattr(config.tokenizer, name)
        if before == now or (name == "path" and now and Tokenizer.read(now).files() == Tokenizer.read(last).files()):
            continue
        raise SettingsError(
            f"tokenizer.{name} must stay {_shown(before)}, as {run} has its tokenizer already, got {_shown(now)}; "
            "set it back, or choose another --output"
        )


def _shown(value: object) -> str:
    return "unset" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _write_tokenizer(tokenizer: Tokenizer, run: Path) -> None:
    """Write the tokenizer into the folder of the run and remove the files of an earlier one."""
    for name in (*Tokenizer.JOINT, *Tokenizer.SEPARATE):
        (run / name).unlink(missing_ok=True)
    for name, content in tokenizer.files().items():
        write_bytes(run / name, content)


def _scorable(
    pairs: list[Pair], config: Config, tokenizer: Tokenizer, others: Mapping[LanguagePair, Tokenizer], report: Report
) -> list[Pair]:
    """Return the validation pairs that have both sides and are not longer than the bundle of the model reads."""
    usable = [pair for pair in pairs if pair.source and pair.target]
    usable = filter_by_length(usable, tokenizer, config.max_source_tokens, others)
    read, kept = (by_languages(each, config.data.languages) for each in (pairs, usable))
    for corpus in config.data.valid:
        if (languages := config.data.languages_of(corpus)) not in kept:
            count = len(read.get(languages, ()))
            raise CorpusError(f"{corpus.files()[0]}: none of {count} validation pairs can be scored")
    if dropped := len(pairs) - len(usable):
        limit = f"data.max_tokens = {config.max_source_tokens}"
        report.message(f"validation text: {len(usable):,} pairs; dropped {dropped:,} empty or longer than {limit}")
    return usable


def _validation_digest(pairs: Sequence[Pair], settings: TrainingSettings) -> str:
    """Return a digest of what decides the scores of a validation, beside the weights."""
    texts = [[pair.source, pair.target, *(pair.languages or ())] for pair in pairs]
    facts = [settings.valid_sentences, settings.valid_beam_size, texts]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def _resume(trainer: Trainer, folder: Path, digest: str, measured: str) -> None:
    """Restore a trainer from a checkpoint and report every setting that has changed since.

    digest: of the training text; measured: of what a validation measures. Raises CheckpointError if the model has
    changed.
    """
    with _naming_remedy(trainer.folder, folder):
        saved = checkpoints.load_checkpoint(folder)
    if other := model_differences(saved.config.model, trainer.config.model):
        raise CheckpointError(f"{folder} was trained with another model ({other[0]}); choose another --output")
    changed = list(setting_differences(saved.config, trainer.config))
    if saved.progress.text not in ("", digest):
        changed.append("the pairs of the training text")
    trainer.model.load_state_dict(saved.model.state_dict())
    if trainer.average is not None:
        trainer.average.begin(trainer.model)  # with the weights that the checkpoint shows: the average, if it had one
    with _naming_remedy(trainer.folder, folder):
        checkpoints.load_optimizer(trainer.model, trainer.optimizer, folder)
    trainer.progress = saved.progress
    if saved.progress.validation not in ("", measured):
        changed.append("what validations measure: the next one is the best so far")
        trainer.progress.forget_best()
    else:
        _mark_best_again(trainer)
    trainer.report.message(f"resumes after step {saved.progress.step}")
    if changed:
        trainer.report.message(f"changed since then: {'; '.join(changed)}")


@contextmanager
def _naming_remedy(run: Path, last: Path) -> Iterator[None]:
    """Add to an error of the last checkpoint of a run what to do about it."""
    try:
        yield
    except CheckpointError as error:
        before = checkpoints.saved_steps(run)[:-1]
        resume = f"resume from {before[-1].name}" if before else "begin again, as the run has no other checkpoint"
        raise CheckpointError(f"{error}; remove {last} and run the same command again to {resume}") from None


def _mark_best_again(trainer: Trainer) -> None:
    """Mark the best checkpoint again if its mark was removed. Without the mark the run would delete that checkpoint."""
    best = checkpoints.step_folder(trainer.folder, trainer.progress.best_step)
    if trainer.processes.is_leader and best.is_dir() and not (trainer.folder / checkpoints.BEST).is_file():
        checkpoints.mark_best(trainer.folder, best, {"bleu": trainer.progress.best_bleu})


def _optimizer(model: nn.Module, settings: TrainingSettings) -> torch.optim.Optimizer:
    """Adam (Kingma and Ba, 2015) with the constants of Vaswani et al. (2017), section 5.3.

    With weight_decay it is AdamW (Loshchilov and Hutter, 2019).
    """
    optimizer = torch.optim.AdamW if settings.weight_decay else torch.optim.Adam
    return optimizer(
        model.parameters(),
        lr=settings.learning_rate,
        betas=(0.9, 0.98),
        eps=1e-9,
        weight_decay=settings.weight_decay,
        fused=True,
    )
