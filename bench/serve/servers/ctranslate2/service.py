"""The gRPC service of lingon.translation.v1 on CTranslate2: the method Translate, as a user would write it."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
from google.rpc import code_pb2, status_pb2

from lingon.bench.serve.servers.ctranslate2.batching import Batcher, Search
from lingon.bundle import Manifest
from lingon.errors import QueueFull
from lingon.text import Tokenizer, normalise
from lingon.translation.v1 import translation_pb2 as pb

SERVICE = pb.DESCRIPTOR.services_by_name["TranslationService"].full_name


class CTranslate2Service:
    """Tokenises texts, translates them in batches, and detokenises the results."""

    def __init__(self, manifest: Manifest, tokenizer: Tokenizer, batcher: Batcher) -> None:
        self._manifest, self._tokenizer, self._batcher = manifest, tokenizer, batcher

    def handler(self) -> grpc.GenericRpcHandler:
        """The handler for grpc.aio.Server; it returns UNIMPLEMENTED for the other methods."""
        translate = grpc.unary_unary_rpc_method_handler(
            self.translate, pb.TranslateRequest.FromString, pb.TranslateResponse.SerializeToString
        )
        return grpc.method_handlers_generic_handler(SERVICE, {"Translate": translate})

    async def translate(
        self, request: pb.TranslateRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> pb.TranslateResponse:
        """See the proto file; only the options beam_size and length_penalty are supported."""
        search = self._search(request.options)
        try:
            results = await asyncio.gather(*(self._translated(text, search) for text in request.texts))
        except QueueFull as error:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, str(error))
        manifest = self._manifest
        return pb.TranslateResponse(results=results, model=manifest.name, version=str(manifest.version))

    def _search(self, options: pb.DecodingOptions) -> Search:
        defaults = self._manifest.defaults
        beam_size = options.beam_size if options.HasField("beam_size") else defaults.beam_size
        penalty = options.length_penalty if options.HasField("length_penalty") else defaults.length_penalty
        return Search(beam_size, penalty)

    async def _translated(self, text: str, search: Search) -> pb.TextResult:
        source = self._tokenizer.encode_source(normalise(text))
        most = self._manifest.limits.max_source_tokens
        if not 1 < len(source) <= most:
            message = f"a text must have 1 to {most - 1} tokens, got {len(source) - 1}"
            return pb.TextResult(status=status_pb2.Status(code=code_pb2.INVALID_ARGUMENT, message=message))
        target = await self._batcher.translate(source, search)
        hypothesis = pb.Hypothesis(text=self._tokenizer.decode(target), finish_reason=pb.FINISH_REASON_END)
        usage = pb.Usage(source_tokens=len(source), target_tokens=len(target) + 1)
        return pb.TextResult(hypotheses=[hypothesis], usage=usage)
