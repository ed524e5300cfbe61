"""Attention through the API: on real graphs of several systems, by a server and in process, bounded and checked."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import numpy as np
import pytest
import torch

from lingon.bundle.store import Bundle
from lingon.cli.backend import BackendOptions, open_translator
from lingon.client.client import AsyncClient, Client
from lingon.client.options import AttentionSelection
from lingon.client.results import AttentionMatrix, ScoreResult
from lingon.errors import ServerError
from lingon.serving.engine.limits import EngineLimits
from lingon.text import BOS
from lingon.training.models.interface import AttentionModel
from lingon.translation.v1 import translation_pb2 as pb
from tests.support.random_models import publish, system_model
from tests.support.shipped_model import serving

PAIRS = [("the fox jumps", "over a dog"), ("a", "my box jumps over the fox"), ("my box", "a")]
SYSTEMS = ("transformer", "rnnsearch gru", "luong local-predictive", "rnnenc lstm")
ATTENTIVE = SYSTEMS[:3]


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Bundle]:
    return {name: publish(tmp_path_factory.mktemp("models"), name) for name in SYSTEMS}


def score(bundle: Bundle, pairs: list[tuple[str, str]], **selection: Any) -> list[ScoreResult]:
    with open_translator(BackendOptions(model=str(bundle.folder), threads=1, engines=1)) as translator:
        return translator.score(pairs, attention=AttentionSelection(**selection))


def keys(result: ScoreResult) -> list[tuple[str, int, int | None]]:
    return [(each.kind, each.layer, each.head) for each in result.attention]


@pytest.mark.parametrize("name", ATTENTIVE)
def test_all_matrices_come_in_order_and_their_rows_sum_to_one_unless_a_gaussian_scales_them(
    bundles: dict[str, Bundle], name: str
) -> None:
    for result in score(bundles[name], PAIRS):
        source, target = len(result.source_pieces), len(result.target_pieces)
        shapes = {"encoder": (source, source), "decoder": (target, target), "cross": (target, source)}
        found = keys(result)
        kinds = ["encoder", "decoder", "cross"] if name == "transformer" else ["cross"]
        assert list(dict.fromkeys(kind for kind, _, _ in found)) == kinds
        assert found == sorted(found, key=lambda each: (kinds.index(each[0]), *each[1:]))
        for matrix in result.attention:
            weights = np.array(matrix.weights)
            assert weights.shape == shapes[matrix.kind]
            sums = weights.sum(axis=1)
            assert sums.max() < 1 + 1e-5
            assert name.startswith("luong local") or sums.min() > 1 - 1e-5
            assert matrix.kind != "decoder" or not np.triu(weights, 1).any()


@pytest.mark.parametrize("name", ATTENTIVE)
def test_cross_attention_is_that_of_the_trained_model(bundles: dict[str, Bundle], name: str) -> None:
    tokenizer, model = bundles[name].tokenizer(), system_model(name)
    assert isinstance(model, AttentionModel)
    for (source, target), result in zip(PAIRS, score(bundles[name], PAIRS, kinds=["cross"]), strict=True):
        ids, begun = tokenizer.encode_source(source), [BOS, *tokenizer.encode_target(target)]
        with torch.inference_mode():
            weights = model.attention(torch.tensor([ids]), torch.tensor([len(ids)]), torch.tensor([begun]))
        for matrix in result.attention:
            expected = weights[0, matrix.layer, matrix.head].numpy()
            assert np.abs(np.array(matrix.weights) - expected).max() < 1e-4


def test_the_pieces_have_their_spans_and_an_unknown_character_too(bundles: dict[str, Bundle]) -> None:
    (result,) = score(bundles["transformer"], [("  the Ω fox", "a\tdog")], alignment=True)
    assert (result.normalised_source, result.normalised_target) == ("the Ω fox", "a dog")
    for text, pieces in ((result.normalised_source, result.source_pieces), ("a dog", result.target_pieces)):
        *words, end = pieces
        assert "".join(text[slice(*each.span)] for each in words).replace(" ", "") == text.replace(" ", "")
        assert (end.piece, end.span) == ("</s>", (len(text), len(text)))
        for each in words:
            covered = text[slice(*each.span)].strip()
            assert each.piece.removeprefix("▁") == covered or (each.piece, covered) == ("<unk>", "Ω")
    assert [each.piece for each in result.target_pieces] == [each.piece for each in result.tokens]


def test_a_selection_gives_those_layers_and_heads_once_each(bundles: dict[str, Bundle]) -> None:
    (chosen,) = score(bundles["transformer"], PAIRS[:1], kinds=["cross", "encoder"], layers=[1, 1], heads=[1, 0])
    assert keys(chosen) == [("encoder", 1, 0), ("encoder", 1, 1), ("cross", 1, 0), ("cross", 1, 1)]
    (mean,) = score(bundles["transformer"], PAIRS[:1], kinds=["cross"], layers=[1], mean_of_heads=True)
    assert keys(mean) == [("cross", 1, None)]


def test_the_matrix_of_alignments_is_the_mean_over_the_heads_of_the_manifest(bundles: dict[str, Bundle]) -> None:
    named = bundles["transformer"].manifest.alignment
    (found,) = score(bundles["transformer"], PAIRS[:1], alignment=True)
    (mean,) = score(
        bundles["transformer"], PAIRS[:1], kinds=["cross"], layers=[named.layer], heads=named.heads, mean_of_heads=True
    )
    assert len(named.heads) > 1
    assert found.attention == mean.attention


@pytest.mark.parametrize(
    ("name", "selection", "status", "message"),
    [
        ("rnnenc lstm", {}, "UNIMPLEMENTED", "attention: the model random/1 has no attention"),
        ("rnnenc lstm", {"alignment": True}, "UNIMPLEMENTED", "attention: the model random/1 has no attention"),
        (
            "rnnsearch gru",
            {"kinds": ["encoder"]},
            "UNIMPLEMENTED",
            "attention.kinds: the model random/1 has no encoder attention, only cross",
        ),
        (
            "transformer",
            {"kinds": ["cross"], "layers": [0, 2]},
            "INVALID_ARGUMENT",
            "attention.layers must be 0 to 1 for cross attention of this model, got 2",
        ),
        (
            "transformer",
            {"heads": [2]},
            "INVALID_ARGUMENT",
            "attention.heads must be 0 to 1 for encoder attention of this model, got 2",
        ),
        (
            "transformer",
            {"alignment": True, "heads": [1]},
            "INVALID_ARGUMENT",
            "attention.alignment selects layer and heads itself; unset attention.heads",
        ),
    ],
)
def test_what_a_model_does_not_have_is_named(
    bundles: dict[str, Bundle], name: str, selection: dict[str, Any], status: str, message: str
) -> None:
    with pytest.raises(ServerError) as caught:
        score(bundles[name], PAIRS, **selection)
    assert (caught.value.status, str(caught.value)) == (status, message)


async def test_both_clients_read_the_matrices_of_a_server(bundles: dict[str, Bundle]) -> None:
    (expected,) = score(bundles["transformer"], PAIRS[:1])
    async with serving(models=(bundles["transformer"].folder,)) as server:
        address = f"127.0.0.1:{server.server.port}"
        async with AsyncClient(address) as client:
            (awaited,) = await client.score(PAIRS[:1], attention=AttentionSelection())
            (plain,) = await client.score(PAIRS[:1])

        def blocking() -> ScoreResult:
            with Client(address) as client:
                return client.score(PAIRS[:1], attention=AttentionSelection())[0]

        assert await asyncio.to_thread(blocking) == awaited == expected
    assert isinstance(awaited.attention[0], AttentionMatrix)
    assert (plain.attention, plain.source_pieces, plain.normalised_source) == ((), (), "")


async def test_a_request_for_too_many_weights_is_refused_before_the_scorer_runs(bundles: dict[str, Bundle]) -> None:
    (result,) = score(bundles["transformer"], PAIRS[:1])
    weights = sum(len(each.weights) * len(each.weights[0]) for each in result.attention)
    settings = {"models": (bundles["transformer"].folder,), "max_attention_weights": 2 * weights}
    (source, target), *_ = PAIRS
    request = pb.ScoreRequest(pairs=[pb.ScorePair(source=source, target=target)] * 3, attention=pb.AttentionSelection())
    told = f"attention comes to {3 * weights} weights or more; a request may have {2 * weights} at most; select fewer"
    async with serving(**settings) as server, AsyncClient(f"127.0.0.1:{server.server.port}") as client:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await server.stub.Score(request, timeout=60)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert str(caught.value.details()).startswith(told)
        assert server.counted("lingon_scored_pairs_total", model="random", version="1") == 0
        assert len(await client.score(PAIRS[:1] * 3, attention=AttentionSelection())) == 3  # sent in two requests
        assert server.counted("lingon_scored_pairs_total", model="random", version="1") == 3


async def test_a_reply_with_as_many_weights_as_the_default_allows_fits_the_default_of_a_grpc_client() -> None:
    pair = ("a " * 50, "ein Haus " * 50)
    async with serving() as server:
        request = pb.ScoreRequest(
            pairs=[pb.ScorePair(source=pair[0], target=pair[1])], attention=pb.AttentionSelection()
        )
        one = (await server.stub.Score(request, timeout=60)).results[0]
        count = EngineLimits().max_attention_weights // sum(len(matrix.weights) for matrix in one.attention)
        request.pairs.extend([request.pairs[0]] * (count - 1))
        reply = await server.stub.Score(request, timeout=60)  # raises for a reply of more than 4 MiB
    assert reply.ByteSize() > 2**20
    assert count > 1
