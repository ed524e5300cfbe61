"""One model serves several pairs: its translations and scores are those of PyTorch with the tokens of each pair."""

from __future__ import annotations

import asyncio
import json
import queue
import re
from collections import defaultdict
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lingon.bundle.store import Bundle
from lingon.cli.main import main
from lingon.client.client import AsyncClient
from lingon.serving.decoding.job import DecodeJob, Options, PhaseTimes
from lingon.serving.engine.engine import Engine
from lingon.serving.engine.limits import EngineLimits
from lingon.serving.in_process import LocalTranslator, translate_lines
from lingon.serving.runtime.onnx_runner import load_runner
from lingon.serving.translation.options import WHOLE
from lingon.text import BOS, EOS
from lingon.training.search import SearchSettings, translate
from lingon.translation.v1 import translation_pb2 as pb
from tests.support.random_models import PAIRS, TEXTS, model, tokenizer_of, tokens_of, write_multilingual_bundle
from tests.support.shipped_model import serving

CLOSE = pytest.approx
SEARCHES = ((1, 1, 0.0), (4, 1, 0.0), (4, 4, 1.0))  # beam size, hypotheses and length penalty
TARGETS = ["ooooyyyy", "the quick fox"]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return write_multilingual_bundle(tmp_path_factory.mktemp("models") / "many" / "1")


@pytest.fixture(scope="module")
def translator(bundle: Bundle) -> Iterator[LocalTranslator]:
    with LocalTranslator(bundle.folder, device="cpu", engines=1, threads=1) as found:
        yield found


def languages(pair: tuple[str, str]) -> dict[str, str]:
    return dict(zip(("source_language_code", "target_language_code"), pair, strict=True))


def sources(pair: tuple[str, str]) -> list[list[int]]:
    tokens, tokenizer = tokens_of(*pair), tokenizer_of(*pair)
    return [[*tokens.before, *tokenizer.source.encode(text), EOS, *tokens.after] for text in TEXTS]


def expected(pair: tuple[str, str], search: tuple[int, int, float], begun: tuple[int, ...] = ()) -> list[Any]:
    """What PyTorch finds; begun: tokens after those of the language."""
    settings = SearchSettings(
        beam_size=search[0],
        num_hypotheses=search[1],
        length_penalty=search[2],
        length_factor=1.5,
        length_extra=8 - len(begun),  # the bound of a translation counts the prefix of the user
        forced=(*tokens_of(*pair).forced, *begun),
    )
    return translate(model(), sources(pair), settings)


def log_probs(pair: tuple[str, str], source: list[int], labels: list[int]) -> list[float]:
    """Return the log-probabilities of labels, teacher-forced after the tokens of the language."""
    forced = tokens_of(*pair).forced
    given = torch.tensor([[BOS, *forced, *labels[:-1]]])
    with torch.inference_mode():
        logits = model()(torch.tensor([source]), torch.tensor([len(source)]), given)[:, len(forced) :]
        found: list[float] = model().log_probs(logits)[0].gather(1, torch.tensor(labels)[:, None])[:, 0].tolist()
    return found


def attention(pair: tuple[str, str], source: list[int], target: list[int]) -> np.ndarray:
    """Return the mean of two heads of layer 0 for target, EOS included, without the tokens of the languages."""
    tokens = tokens_of(*pair)
    given = torch.tensor([[BOS, *tokens.forced, *target]])
    with torch.inference_mode():
        found = model().attention(torch.tensor([source]), torch.tensor([len(source)]), given)[0, 0, :2].mean(0).numpy()
    last = len(source) - len(tokens.after)
    return found[len(tokens.forced) :, len(tokens.before) : last]


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("pair", PAIRS)
def test_the_hypotheses_of_a_pair_are_those_of_pytorch_with_its_tokens(
    translator: LocalTranslator, pair: tuple[str, str], search: tuple[int, int, float]
) -> None:
    """Their log-probabilities are of the shown tokens alone, and the score is made of them."""
    beam_size, count, penalty = search
    options = pb.DecodingOptions(beam_size=beam_size, num_hypotheses=count, length_penalty=penalty, return_tokens=True)
    reply = translator.translate(pb.TranslateRequest(texts=TEXTS, options=options, text=WHOLE, **languages(pair)))
    tokenizer = tokenizer_of(*pair)
    for source, result, wanted in zip(sources(pair), reply.results, expected(pair, search), strict=True):
        for mine, theirs in zip(result.hypotheses, wanted, strict=True):
            assert [token.piece for token in mine.tokens] == tokenizer.target_pieces(theirs.tokens)
            assert mine.text == tokenizer.decode(theirs.tokens).strip()
            assert mine.score == CLOSE(theirs.score, abs=1e-4)
            found = log_probs(pair, source, [*theirs.tokens, EOS])
            assert [token.log_prob for token in mine.tokens] == CLOSE(found[:-1], abs=1e-4)


def test_the_translations_of_the_pairs_differ() -> None:
    """Otherwise the test above would say nothing of the tokens."""
    found = {pair: [best.tokens for best, *_ in expected(pair, (1, 1, 0.0))] for pair in PAIRS}
    assert len(set(map(str, found.values()))) == len(PAIRS)


@pytest.mark.parametrize("beam_size", [1, 4])
@pytest.mark.parametrize("pair", PAIRS)
def test_a_prefix_of_the_user_follows_the_hidden_one(
    translator: LocalTranslator, pair: tuple[str, str], beam_size: int
) -> None:
    tokenizer = tokenizer_of(*pair)
    prefix = tuple(tokenizer.encode_target("the"))
    options = pb.DecodingOptions(beam_size=beam_size, num_hypotheses=1, length_penalty=0, return_tokens=True)
    reply = translator.translate(
        pb.TranslateRequest(
            texts=TEXTS, target_prefixes=["the"] * len(TEXTS), options=options, text=WHOLE, **languages(pair)
        )
    )
    for result, (best, *_) in zip(reply.results, expected(pair, (beam_size, 1, 0.0), prefix), strict=True):
        (mine,) = result.hypotheses
        assert [token.piece for token in mine.tokens] == tokenizer.target_pieces([*prefix, *best.tokens])
        assert [token.log_prob for token in mine.tokens[: len(prefix)]] == [0.0] * len(prefix)
        assert all(token.log_prob < 0 for token in mine.tokens[len(prefix) :])
        assert mine.score == CLOSE(best.score, abs=1e-4)
        assert mine.text.startswith("the")


@pytest.mark.parametrize("pair", PAIRS)
def test_scores_and_alignments_leave_the_tokens_of_the_languages_out(
    translator: LocalTranslator, pair: tuple[str, str]
) -> None:
    asked = [pb.ScorePair(source=text, target=target) for text in TEXTS[:2] for target in TARGETS]
    choice = pb.AttentionSelection(
        kinds=[pb.ATTENTION_KIND_CROSS, pb.ATTENTION_KIND_ENCODER, pb.ATTENTION_KIND_DECODER]
    )
    reply = translator.score(pb.ScoreRequest(pairs=asked, return_alignment=True, attention=choice, **languages(pair)))
    tokenizer = tokenizer_of(*pair)
    framed = dict(zip(TEXTS, sources(pair), strict=True))
    for each, result in zip(asked, reply.results, strict=True):
        target, source = tokenizer.encode_target(each.target), framed[each.source]
        wanted = log_probs(pair, source, [*target, EOS])
        assert [token.log_prob for token in result.tokens] == CLOSE(wanted, abs=1e-4)
        assert result.log_prob == CLOSE(sum(wanted), abs=1e-3)
        weights = attention(pair, source, target)
        pieces = weights.shape[1] - 1
        places = weights[: len(target)].argmax(1)
        linked = [weights[row, column] for row, column in enumerate(places) if column < pieces]
        assert [link.weight for link in result.alignment] == CLOSE(linked, abs=1e-4)
        assert [piece.piece for piece in result.source_pieces][:-1] == tokenizer.source.encode(
            each.source, out_type=str
        )
        sizes = {(matrix.rows, matrix.columns) for matrix in result.attention}
        assert sizes == {(len(target) + 1, pieces + 1), (pieces + 1, pieces + 1), (len(target) + 1, len(target) + 1)}


@pytest.mark.parametrize("pair", PAIRS)
def test_the_alignment_of_a_translation_leaves_the_tokens_of_the_languages_out(
    translator: LocalTranslator, pair: tuple[str, str]
) -> None:
    options = pb.DecodingOptions(beam_size=1, num_hypotheses=1, length_penalty=0, return_alignment=True)
    reply = translator.translate(pb.TranslateRequest(texts=TEXTS, options=options, text=WHOLE, **languages(pair)))
    found = zip(TEXTS, sources(pair), reply.results, expected(pair, (1, 1, 0.0)), strict=True)
    for text, source, result, (best, *_) in found:
        weights = attention(pair, source, list(best.tokens))
        places = weights[: len(best.tokens)].argmax(1)
        linked = [(row, column) for row, column in enumerate(places) if column < weights.shape[1] - 1]
        links = result.hypotheses[0].alignment
        assert [link.weight for link in links] == CLOSE([weights[place] for place in linked], abs=1e-4)
        pieces = tokenizer_of(*pair).source.encode(text, out_type=str)
        for link, (_, column) in zip(links, linked, strict=True):
            assert text[link.source.begin : link.source.end].strip() == pieces[column].replace("\u2581", " ").strip()


async def test_streams_show_no_token_of_a_language_and_all_pairs_share_a_server(bundle: Bundle) -> None:
    options = pb.DecodingOptions(beam_size=1, num_hypotheses=1, length_penalty=0)

    async def ask(stub: Any, pair: tuple[str, str]) -> tuple[list[str], list[str], list[str]]:
        request = pb.TranslateStreamRequest(texts=TEXTS, options=options, text=WHOLE, **languages(pair))
        deltas, texts = [""] * len(TEXTS), [""] * len(TEXTS)
        async for event in stub.TranslateStream(request, timeout=60):
            if event.HasField("start"):
                shown = [event.start.source_language_code, event.start.target_language_code]
            elif event.HasField("delta"):
                deltas[event.delta.text_index] += event.delta.text
            else:
                texts[event.done.text_index] = event.done.result.hypotheses[0].text
        return shown, deltas, texts

    async with serving(models=(bundle.folder,)) as served:
        found = await asyncio.gather(*(ask(served.stub, pair) for pair in PAIRS))
        listed = (await served.stub.ListModels(pb.ListModelsRequest(), timeout=60)).models
    for pair, (shown, deltas, texts) in zip(PAIRS, found, strict=True):
        best = [tokenizer_of(*pair).decode(best.tokens).strip() for best, *_ in expected(pair, (1, 1, 0.0))]
        assert (shown, deltas, texts) == (list(pair), best, best)
    assert list(listed[0].source_language_codes) == ["en", "de", "fr"]
    assert list(listed[0].target_language_codes) == ["en", "de", "fr"]
    assert (listed[0].source_language_code, listed[0].target_language_code) == ("mul", "mul")


async def test_the_command_and_the_client_list_the_languages(
    bundle: Bundle, capsys: pytest.CaptureFixture[str]
) -> None:
    verb = [EntryPoint("models", "lingon.cli.models:models", "lingon.verbs")]
    async with serving(models=(bundle.folder,), admin_port=0) as served:
        listing = ["models", "list", "--server", f"127.0.0.1:{served.server.admin_port}"]
        assert await asyncio.to_thread(main, listing, verb) == 0
        assert await asyncio.to_thread(main, [*listing, "--json"], verb) == 0
        async with AsyncClient(f"127.0.0.1:{served.server.port}") as client:
            (info,) = await client.list_models()
    line, values = capsys.readouterr().out.splitlines()
    assert line.startswith("many/1: serving, [en, de, fr] to [en, de, fr], fp32 on CPU, ")
    assert json.loads(values)["source_language_codes"] == ["en", "de", "fr"]
    assert json.loads(values)["target_language_codes"] == ["en", "de", "fr"]
    assert (info.source_languages, info.target_languages) == (("en", "de", "fr"), ("en", "de", "fr"))
    assert (info.source_language, info.target_language) == ("mul", "mul")


def jobs_of(
    pair: tuple[str, str], beam_size: int, done: queue.SimpleQueue[Any], streamed: Any = None
) -> list[DecodeJob]:
    options = Options(beam_size=beam_size, num_hypotheses=beam_size, length_penalty=1.0, max_output_tokens=30)
    forced = tokens_of(*pair).forced
    return [
        DecodeJob(
            source_ids=tuple(source),
            options=options,
            prefix=forced,
            hidden=len(forced),
            on_done=lambda found, key=(pair, place): done.put((key, found)),
            on_tokens=None if streamed is None or beam_size > 1 else streamed[pair, place].append,
            phase_times=PhaseTimes(0.0),
        )
        for place, source in enumerate(sources(pair)[:3])
    ]


def run(engine: Engine, jobs: list[DecodeJob], done: queue.SimpleQueue[Any]) -> dict[Any, Any]:
    engine.submit(jobs)
    return dict(done.get(timeout=60) for _ in jobs)


def at_once(one: DecodeJob, other: DecodeJob) -> bool:
    """Whether two jobs were decoded at the same time, which is in one batch."""
    first, second = one.phase_times, other.phase_times
    assert first is not None
    assert second is not None
    return max(first.encoded or 0, second.encoded or 0) < min(first.ended or 0, second.ended or 0)


@pytest.mark.parametrize("beam_size", [1, 4])
def test_a_batch_of_several_pairs_gives_each_text_the_bits_that_it_has_alone(bundle: Bundle, beam_size: int) -> None:
    """The same text is in the batch with several target languages."""
    done: queue.SimpleQueue[Any] = queue.SimpleQueue()
    streamed: dict[Any, list[int]] = defaultdict(list)
    engine = Engine(load_runner(bundle, "fp32", threads=1), EngineLimits())
    engine.start()
    try:
        alone: dict[Any, Any] = {}
        for pair in PAIRS:
            for job in jobs_of(pair, beam_size, done):
                alone |= run(engine, [job], done)
        jobs = [job for pair in PAIRS for job in jobs_of(pair, beam_size, done, streamed)]
        together = run(engine, jobs, done)
    finally:
        engine.stop(0)
    assert all(any(at_once(job, other) for other in jobs if other.prefix != job.prefix) for job in jobs)
    assert together == alone
    assert streamed == ({} if beam_size > 1 else {key: list(found[0].tokens) for key, found in together.items()})
    assert len({str(found) for found in together.values()}) > len(PAIRS)


def test_words_are_forced_in_the_translation_of_any_pair_and_samples_repeat(translator: LocalTranslator) -> None:
    """The rules of a request begin after the tokens of the language."""
    for pair in PAIRS:
        forced = pb.DecodingOptions(beam_size=4, num_hypotheses=1, forced_words=["fox"])
        sampled = pb.DecodingOptions(
            beam_size=1, num_hypotheses=1, return_tokens=True, sampling=pb.SamplingOptions(seed=3)
        )
        for options in (forced, sampled):
            request = pb.TranslateRequest(texts=TEXTS[:2], options=options, **languages(pair))
            first, second = (translator.translate(request).results for _ in range(2))
            assert first == second
            for result in first:
                assert options is sampled or "fox" in result.hypotheses[0].text
                assert not any(token.piece.startswith("<2") for token in result.hypotheses[0].tokens)


@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_a_test_set_is_translated_between_the_languages_that_are_asked_for(
    bundle: Bundle, pair: tuple[str, str]
) -> None:
    wanted = [tokenizer_of(*pair).decode(found[0].tokens) for found in expected(pair, (1, 1, 0.0))]
    search = {"beam_size": 1, "length_penalty": 0.0, "device": "cpu"}
    source, target = pair
    found = translate_lines(bundle.folder, TEXTS, **search, source_language=source, target_language=target)  # type: ignore[arg-type]
    assert found.lines == [" ".join(text.split()) for text in wanted]
    assert found.language == target


def test_the_verbs_that_score_need_languages_of_a_bundle_of_several(
    bundle: Bundle, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "source").write_text("\n".join(TEXTS) + "\n")
    (tmp_path / "target").write_text("\n".join(reversed(TEXTS)) + "\n")
    files = ["--source", str(tmp_path / "source"), "--target", str(tmp_path / "target")]
    model = ["--model", str(bundle.folder)]
    for verb in (["score", *model, *files], ["align", *model, *files], ["attend", "--json", *model, *TEXTS[:2]]):
        assert main(verb) == 1
        assert re.search(r"error: --source-language must name a language of many/1: [\w, -]+$", capsys.readouterr().err)
        shown = []
        for target in ("fr", "de"):
            assert main([*verb, "--source-language", "en", "--target-language", target]) == 0, capsys.readouterr().err
            shown.append(capsys.readouterr().out)
        assert verb[0] == "align" or shown[0] != shown[1]
    assert main(["evaluate", str(bundle.folder), *files]) == 1
    assert "--source-language must name a language of many/1: " in capsys.readouterr().err


def test_the_verb_bulk_asks_for_the_languages_that_a_bundle_of_several_needs(
    bundle: Bundle, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "source.txt").write_text("\n".join(TEXTS) + "\n")
    verb = ["bulk", str(tmp_path / "source.txt"), str(tmp_path / "out"), "--model", str(bundle.folder)]
    assert main(verb) == 1
    assert re.search(r"error: --source-language must name a language of many/1: [\w, -]+$", capsys.readouterr().err)
    assert main([*verb, "--source", "en"]) == 1
    assert "error: --target-language must name a language of many/1: " in capsys.readouterr().err


def test_a_teacher_of_several_languages_is_asked_for_a_pair(
    bundle: Bundle, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "source").write_text("\n".join(TEXTS) + "\n")
    verb = ["distill", "--beam-size", "1", "--model", str(bundle.folder), "--source", str(tmp_path / "source")]
    assert main([*verb, "--output", str(tmp_path / "none")]) == 1
    assert "--source-language must name a language of many/1: " in capsys.readouterr().err
    assert not (tmp_path / "none").exists()
    for target in ("fr", "de"):
        pair = ["--source-language", "en", "--target-language", target]
        assert main([*verb, *pair, "--output", str(tmp_path / target)]) == 0, capsys.readouterr().err
    assert main([*verb, *pair, "--output", str(tmp_path / "fr")]) == 2
    assert "was begun with another value of options" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--beam-size", "99"], "--beam-size must be 1 to 8, got 99"),
        (["--beam-size", "99999999999"], "'--beam-size': must be less than or equal to 128, got 99999999999"),
        (["--length-penalty", "99"], "--length-penalty must be 0 to 10, got 99"),
    ],
)
def test_what_cannot_be_evaluated_is_named_as_on_the_command_line(
    bundle: Bundle, tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    (tmp_path / "both").write_text("the\nthe\n")
    files = ["--source", str(tmp_path / "both"), "--target", str(tmp_path / "both")]
    pair = ["--source-language", "en", "--target-language", "fr"]
    assert main(["evaluate", str(bundle.folder), *files, *pair, *options]) > 0
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("lingon: error: ")]
    assert message in line
