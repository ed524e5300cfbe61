"""A server does with a recurrent system what it does with a Transformer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from lingon.admin.v1 import admin_pb2, admin_pb2_grpc
from lingon.bundle.manifest import Alignment
from lingon.bundle.store import write_bundle
from lingon.errors import BundleError
from lingon.serving.models.loading import LoadOptions, load_translator
from lingon.serving.translation.options import WHOLE
from lingon.translation.v1 import translation_pb2 as pb
from tests.support.random_models import KINDS, PHRASES, publish
from tests.support.shipped_model import RealServer, serving

kinds = pytest.mark.parametrize("name", KINDS)


async def streamed(server: RealServer, text: str) -> str:
    """Return the text of a translation, put together from the parts of its stream."""
    request = pb.TranslateStreamRequest(texts=[text], options=pb.DecodingOptions(beam_size=1), text=WHOLE)
    found = ""
    async for reply in server.stub.TranslateStream(request, timeout=60):
        found += reply.delta.text
    return found


@kinds
async def test_every_option_of_a_request_works(name: str, tmp_path: Path) -> None:
    publish(tmp_path, name)
    async with serving(models=(tmp_path / "random",)) as server:
        greedy = list((await server.translate(PHRASES, WHOLE, beam_size=1)).results)
        assert [(await server.translate([text], WHOLE, beam_size=1)).results[0] for text in PHRASES] == greedy
        several = (await server.translate(PHRASES, beam_size=4, num_hypotheses=3)).results
        assert all(
            len({tuple(token.piece for token in each.tokens) for each in result.hypotheses}) == 3 for result in several
        )
        sampling = pb.SamplingOptions(temperature=1.5, seed=7)
        sampled = [list((await server.translate(PHRASES, beam_size=1, sampling=sampling)).results) for _ in range(2)]
        assert sampled[0] == sampled[1] != greedy
        limits: dict[str, Any] = {"min_output_tokens": 8, "no_repeat_ngram_size": 1}
        (kept,) = (await server.translate(PHRASES[:1], beam_size=1, **limits)).results
        pieces = [token.piece for token in kept.hypotheses[0].tokens]
        assert len(set(pieces)) == len(pieces) >= 8
        assert await streamed(server, PHRASES[0]) == greedy[0].hypotheses[0].text
        request = pb.TranslateRequest(
            texts=PHRASES[:1], options=pb.DecodingOptions(beam_size=1), target_prefixes=["box"]
        )
        assert (await server.stub.Translate(request, timeout=60)).results[0].hypotheses[0].text.startswith("box")


@kinds
async def test_score_and_alignments_are_those_of_the_system(name: str, tmp_path: Path) -> None:
    publish(tmp_path, name)
    async with serving(models=(tmp_path / "random",)) as server:
        pairs = [pb.ScorePair(source="the fox", target="my box")]
        (scored,) = (await server.stub.Score(pb.ScoreRequest(pairs=pairs), timeout=60)).results
        assert scored.log_prob == pytest.approx(sum(token.log_prob for token in scored.tokens), abs=1e-4)
        aligned = pb.ScoreRequest(pairs=pairs, return_alignment=True)
        wanted = pb.TranslateRequest(texts=["the fox"], options=pb.DecodingOptions(return_alignment=True))
        for method, request in ((server.stub.Score, aligned), (server.stub.Translate, wanted)):
            if name.startswith("rnnenc"):
                with pytest.raises(grpc.aio.AioRpcError, match="declares no attention heads for alignments") as refused:
                    await method(request, timeout=60)
                assert refused.value.code() == grpc.StatusCode.UNIMPLEMENTED
            else:
                (result,) = (await method(request, timeout=60)).results
                assert len(result.alignment if request is aligned else result.hypotheses[0].alignment) > 0


def test_a_manifest_with_alignments_that_the_scorer_cannot_give_is_refused(tmp_path: Path) -> None:
    bundle = publish(tmp_path, KINDS[0])
    files = {name: bundle.read(name) for name in bundle.manifest.checksums}
    wrong = write_bundle(tmp_path / "2", replace(bundle.manifest, version=2, alignment=Alignment(0, (0,))), files)
    load_translator(bundle, LoadOptions(threads=1)).engine.stop(0)
    with pytest.raises(BundleError, match=r"scorer\.onnx: has no output cross_attention, unlike the states of"):
        load_translator(wrong, LoadOptions(threads=1))


async def test_a_model_is_swapped_for_one_of_another_system(tmp_path: Path) -> None:
    publish(tmp_path, KINDS[0])
    async with serving(models=(tmp_path / "random",), admin_port=0) as server:
        address = f"127.0.0.1:{server.server.admin_port}"
        for version, name in enumerate(KINDS[1:], start=2):
            path = publish(tmp_path, name, version).folder
            async with grpc.aio.insecure_channel(address) as channel:
                stub: Any = admin_pb2_grpc.ModelServiceStub(channel)
                await stub.SwapModel(admin_pb2.SwapModelRequest(path=str(path)), timeout=60)
            reply = await server.translate(PHRASES, beam_size=4)
            assert reply.version == str(version)
            assert all(result.status.code == 0 for result in reply.results)
