"""Chat completions in the form of OpenAI's API, for programs that speak no other: the last user message is translated.

`model` is the name of a served model, a pair of languages such as `en-de` or `auto-de`, or `lingon` for any model. A
system message can name the languages, and says nothing else: `Translate to German`, `Translate from en to pt-BR`.
What a translator cannot do, such as calling tools, is refused. Sampling parameters have no effect, because programs
send them with every request; the header x-lingon-ignored names them.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from google.rpc import code_pb2
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from lingon.client.messages import write_request
from lingon.client.steps import TRANSLATE
from lingon.errors import ServerError
from lingon.gateway.body import Fields, checked_text, parse_json
from lingon.gateway.endpoint import Call, Endpoints, Streamed, as_problem, bearer, json_error
from lingon.gateway.problem import Problem, problem_of
from lingon.gateway.translate import Wanted, check_pair, detect, name_of
from lingon.language_tags import ServedPairs, is_one_language, pairs_of, serves
from lingon.status import server_error
from lingon.translation.v1 import translation_pb2 as pb

ROOT = "/openai/v1"
ANY_MODEL, DETECTED = "lingon", "auto"
MOST_CHOICES, MOST_TOKENS = 128, 10**6  # bounds of n, as OpenAI has it, and of max_tokens; those of the model are lower
SHOWN = 60  # characters of a value in a message

IGNORED = {
    *("temperature", "top_p", "seed", "frequency_penalty", "presence_penalty", "verbosity", "reasoning_effort"),
    *("user", "safety_identifier", "metadata", "store", "service_tier", "prompt_cache_key", "prompt_cache_retention"),
    "parallel_tool_calls",
}
"""Parameters that change no translation. Programs send some of them with every request."""

REFUSED: dict[str, Sequence[Any]] = {
    **dict.fromkeys(("tools", "functions"), ([],)),
    **dict.fromkeys(("stop", "top_logprobs", "audio", "prediction", "web_search_options", "moderation"), ()),
    "tool_choice": ("none", "auto"),
    "function_call": ("none", "auto"),
    "logprobs": (False,),
    "logit_bias": ({},),
    "modalities": (["text"],),
    "response_format": ({"type": "text"},),
}
"""Parameters that a translator cannot follow, each with the values that ask for nothing; null does so too."""

READ = {"messages", "model", "n", "max_tokens", "max_completion_tokens", "stream", "stream_options"}
INSTRUCTION = re.compile(r"translate(?:\s+from\s+(?P<source>.+?))?\s+(?:in)?to\s+(?P<target>.+?)\s*[.!]?", re.I | re.S)
STATED = "'Translate to LANGUAGE' or 'Translate from LANGUAGE to LANGUAGE'"

FINISH = {pb.FINISH_REASON_LENGTH: "length"}  # "stop" for the others
TYPES = {403: "permission_error", 404: "invalid_request_error", 429: "rate_limit_exceeded"}
CODES = {"UNKNOWN_MODEL": "model_not_found", "TEXT_TOO_LONG": "context_length_exceeded"}
CODES |= {"REQUEST_TOO_LARGE": "context_length_exceeded", "QUOTA_EXCEEDED": "insufficient_quota"}
PARAMETERS = {"options.beam_size": "n", "options.num_hypotheses": "n", "options.max_output_tokens": "max_tokens"}


class OpenAiApi:
    """`/openai/v1`, the base URL for clients: chat completions, also as streams, and the list of models."""

    name = "openai"
    key_in_body = False

    def routes(self, endpoints: Endpoints) -> Iterable[Route]:
        yield endpoints.route(self, f"{ROOT}/chat/completions", self.chat, message=True, method=TRANSLATE)
        yield endpoints.route(self, f"{ROOT}/models", self.models, ("GET",))
        yield endpoints.route(self, f"{ROOT}/models/{{model:path}}", self.model, ("GET",))

    def key_of(self, request: Request, fields: Fields) -> str | None:
        """Return the key of the header `Authorization: Bearer KEY`."""
        return bearer(request)

    def error(self, problem: Problem, request: Request) -> Response:
        status = 404 if problem.reason == "UNKNOWN_MODEL" else problem.http_status
        return json_error(status, json.dumps(_error(problem, status)).encode(), problem)

    async def chat(self, call: Call) -> Response:
        """Translate the last user message, and send the translation whole or as events while it is decoded."""
        asked = ChatRequest.read(parse_json(call.body))
        models = await call.backend.models(call.caller, fresh=False)
        route = Translation.of(asked, models)
        route = await route.with_source(call, asked, models)
        reply = Reply(asked, f"chatcmpl-{call.caller.request_id}", int(time.time()))
        headers = {"x-lingon-ignored": ", ".join(asked.ignored)} if asked.ignored else {}
        if asked.stream:
            events = await _begin(call, asked, route, reply)
            return Streamed(events, headers=headers, media_type="text/event-stream")
        if route.stays:
            return JSONResponse(reply.whole([(asked.text, "stop")], 0, 0), headers=headers)
        found = await call.backend.translate(route.request(pb.TranslateRequest, asked), call.caller)
        result = _checked(found.results[0])
        choices = [(each.text, FINISH.get(each.finish_reason, "stop")) for each in result.hypotheses]
        return JSONResponse(reply.whole(choices, *_tokens(result)), headers=headers)

    async def models(self, call: Call) -> Response:
        """List the served models, and `auto-LANGUAGE` for each language into which one translates."""
        served = await call.backend.models(call.caller)
        names = [each.name for each in served.models]
        names += [f"{DETECTED}-{target}" for target in ServedPairs.of(served).targets]
        data = [_model(name) for name in dict.fromkeys([*names, ANY_MODEL])]
        return JSONResponse({"object": "list", "data": data})

    async def model(self, call: Call) -> Response:
        """Describe a model. A pair of languages need not be in the list."""
        name = call.request.path_params["model"]
        Translation.named(name, await call.backend.models(call.caller))
        return JSONResponse(_model(name))


def _model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "lingon"}


def _error(problem: Problem, status: int) -> dict[str, Any]:
    """Return an error in OpenAI's form, with the name that a field has in this API."""
    param = PARAMETERS.get(problem.field, problem.field)
    message = str(problem).replace(problem.field, param) if problem.field else str(problem)
    code = CODES.get(problem.reason, "invalid_api_key" if status == 401 else None)
    kind = TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
    return {"error": {"message": message, "type": kind, "param": param or None, "code": code}}


@dataclass(frozen=True, kw_only=True, slots=True)
class ChatRequest:
    """What a program asks for.

    text: the last user message; source, target: the languages of the system message as it names them, empty if it does
        not; choices: translations; most_tokens: of a translation, 0 for the bound of the model
    usage: whether a stream ends with the numbers of tokens; ignored: parameters without effect
    """

    model: str
    text: str
    source: str = ""
    target: str = ""
    choices: int = 1
    most_tokens: int = 0
    stream: bool = False
    usage: bool = False
    ignored: tuple[str, ...] = ()

    @classmethod
    def read(cls, body: Mapping[str, Any]) -> ChatRequest:
        """Read the parameters. Raises Problem, which names the parameter."""
        given = {name: value for name, value in body.items() if value is not None}
        for name, value in given.items():
            if name in REFUSED and value not in REFUSED[name]:
                raise Problem(400, f"{name} is not supported: this server translates alone", field=name)
            if name not in READ | IGNORED | REFUSED.keys():
                raise Problem(400, f"{name[:SHOWN]!r} is no parameter of chat completions", field=name[:SHOWN])
        messages = _list_of_objects(given.get("messages"))
        source, target = _languages(messages)
        options = given.get("stream_options", {})
        if not isinstance(options, dict) or options.keys() - {"include_usage", "include_obfuscation"}:
            raise Problem(400, "stream_options may have include_usage alone", field="stream_options")
        tokens = "max_completion_tokens" if "max_completion_tokens" in given else "max_tokens"
        return cls(
            model=_text(given.get("model"), "model"),
            text=_last_user_message(messages),
            source=source,
            target=target,
            choices=_number(given.get("n", 1), "n", MOST_CHOICES),
            most_tokens=_number(given[tokens], tokens, MOST_TOKENS) if tokens in given else 0,
            stream=_flag(given.get("stream", False), "stream"),
            usage=_flag(options.get("include_usage", False), "stream_options.include_usage"),
            ignored=tuple(sorted(IGNORED & given.keys())),
        )


def _list_of_objects(messages: Any) -> list[dict[str, Any]]:
    if not isinstance(messages, list) or not messages or not all(isinstance(each, dict) for each in messages):
        raise Problem(400, "messages must be a list of one message or more", field="messages")
    return messages


def _languages(messages: Sequence[Mapping[str, Any]]) -> tuple[str, str]:
    """Return the languages that the system message names, empty ones without it."""
    places = [place for place, each in enumerate(messages) if each.get("role") in ("system", "developer")]
    if not places:
        return "", ""
    if len(places) > 1:
        raise Problem(400, f"there may be 1 system message at most, got {len(places)}", field="messages")
    field = f"messages[{places[0]}].content"
    text = _content(messages[places[0]], field).strip()
    found = INSTRUCTION.fullmatch(text)
    if found is None:
        raise Problem(400, f"a system message must be {STATED}, got {text[:SHOWN]!r}", field=field)
    return (found["source"] or "").strip(), found["target"].strip()


def _last_user_message(messages: Sequence[Mapping[str, Any]]) -> str:
    last = len(messages) - 1
    if (role := messages[last].get("role")) != "user":
        raise Problem(400, f"the last message must have the role user, got {str(role)[:SHOWN]!r}", field="messages")
    return _content(messages[last], f"messages[{last}].content")


def _content(message: Mapping[str, Any], field: str) -> str:
    """Return the text of a message, which may be in parts."""
    content = message.get("content")
    if not isinstance(content, list):
        return _text(content, field)
    for place, part in enumerate(content):
        if not isinstance(part, dict) or part.get("type") != "text":
            raise Problem(400, f"{field}[{place}] must have the type text", field=field)
    return "".join(_text(part.get("text"), field) for part in content)


def _text(value: Any, field: str) -> str:
    if value is None:
        raise Problem(400, f"{field} must be text, got nothing", field=field)
    return checked_text(field, value)


def _number(value: Any, field: str, most: int) -> int:
    if type(value) is not int or not 1 <= value <= most:
        raise Problem(400, f"{field} must be 1 to {most}, got {str(value)[:SHOWN]}", field=field)
    return value


def _flag(value: Any, field: str) -> bool:
    if not isinstance(value, bool):
        raise Problem(400, f"{field} must be true or false, got {str(value)[:SHOWN]}", field=field)
    return value


@dataclass(frozen=True, kw_only=True, slots=True)
class Translation:
    """The model and the languages of a translation; empty ones are left to the server, or are to be detected.

    stays: whether the text is in the target language already, and is its own translation
    """

    model: str = ""
    source: str = ""
    target: str = ""
    stays: bool = False

    @classmethod
    def of(cls, asked: ChatRequest, models: pb.ListModelsResponse) -> Translation:
        """Return the route that the name of the model and the system message say together. Raises Problem."""
        named, pairs = cls.named(asked.model, models), ServedPairs.of(models)
        source = _tag(asked.source, pairs.sources) or named.source
        target = _tag(asked.target, pairs.targets) or named.target
        for side, one, other in (("source", named.source, source), ("target", named.target, target)):
            if one and not is_one_language(one, other):
                raise Problem(
                    400, f"model names the {side} {one}, and the system message {other[:SHOWN]}", field="model"
                )
        if not target:
            raise Problem(400, f"the model {asked.model!r} needs a system message, {STATED}", field="messages")
        return cls(model=named.model, source=source, target=target)

    @classmethod
    def named(cls, name: str, models: pb.ListModelsResponse) -> Translation:
        """Return what the name of a model says alone. Raises Problem if nothing served has this name."""
        if name == ANY_MODEL:
            return cls()
        for each in models.models:
            if name in (each.name, f"{each.name}/{each.version}"):
                sources, targets = ({*side} for side in zip(*pairs_of(each), strict=True))
                return cls(model=name, source=_only(sources), target=_only(targets))
        pairs = ServedPairs.of(models).pairs
        for source, target in _splits(name):
            wanted = "" if source == DETECTED else source
            if any((not wanted or serves(one, wanted)) and serves(other, target) for one, other in pairs):
                return cls(source=wanted, target=target)
        raise Problem(404, f"the model {name[:SHOWN]!r} does not exist", reason="UNKNOWN_MODEL", field="model")

    async def with_source(self, call: Call, asked: ChatRequest, models: pb.ListModelsResponse) -> Translation:
        """Return the route with the source language, which is detected if nothing names it. Raises Problem."""
        if self.source:
            if not self.model:
                check_pair(models, self.source, self.target)
            return self
        (found,) = await detect(call.backend, [asked.text], call.caller, Wanted(self.target))
        return Translation(model=self.model, source=found.language, target=self.target, stays=found.stays)

    def request(self, kind: Any, asked: ChatRequest) -> Any:
        """Return the request of the gRPC service; kind: TranslateRequest or TranslateStreamRequest."""
        options = pb.DecodingOptions(long_text=pb.LONG_TEXT_POLICY_SPLIT)
        if asked.most_tokens:
            options.max_output_tokens = asked.most_tokens
        if asked.choices > 1:
            options.num_hypotheses = options.beam_size = asked.choices
        elif asked.stream:
            options.num_hypotheses = options.beam_size = 1  # otherwise no text is sent before the end
        return write_request(
            kind,
            texts=[asked.text],
            model=self.model,
            source_language_code=self.source,
            target_language_code=self.target,
            options=options,
        )


def _only(tags: set[str]) -> str:
    return next(iter(tags)) if len(tags) == 1 else ""


def _splits(name: str) -> Iterable[tuple[str, str]]:
    """Yield the pairs that a name may be: pt-BR-de is pt and BR-de, or pt-BR and de."""
    parts = name.split("-")
    return (("-".join(parts[:cut]), "-".join(parts[cut:])) for cut in range(1, len(parts)))


def _tag(language: str, served: Sequence[str]) -> str:
    """Return the tag of a language that is named by its tag or in English. One that nothing serves stays as it is."""
    for tag in served:
        if language.lower() in (tag.lower(), name_of(tag).lower()):
            return tag
    return language


@dataclass(frozen=True, slots=True)
class Reply:
    """The form of replies, whole and in events; created: seconds since 1970."""

    asked: ChatRequest
    id: str
    created: int

    def whole(self, choices: Sequence[tuple[str, str]], read: int, written: int) -> dict[str, Any]:
        """Return the reply; choices: translations with why they ended; read, written: tokens."""
        listed = [
            {
                "index": index,
                "message": {"role": "assistant", "content": text, "refusal": None},
                "logprobs": None,
                "finish_reason": reason,
            }
            for index, (text, reason) in enumerate(choices)
        ]
        return {**self._head("chat.completion"), "choices": listed, "usage": _usage(read, written)}

    def event(self, index: int, delta: Mapping[str, str], reason: str | None = None) -> str:
        """Return an event with a part of a translation, or with why it ended."""
        choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": reason}
        return self._event([choice], None)

    def end(self, read: int, written: int) -> str:
        """Return the last events of a stream."""
        counted = self._event([], _usage(read, written)) if self.asked.usage else ""
        return f"{counted}data: [DONE]\n\n"

    def _event(self, choices: list[Any], usage: dict[str, int] | None) -> str:
        content = {**self._head("chat.completion.chunk"), "choices": choices}
        if self.asked.usage:
            content["usage"] = usage
        return f"data: {json.dumps(content, ensure_ascii=False)}\n\n"

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.asked.model}


def _usage(read: int, written: int) -> dict[str, int]:
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}


def _checked(result: pb.TextResult) -> pb.TextResult:
    """Return a result. Raises its error as a Problem."""
    if result.status.code != code_pb2.OK:
        raise problem_of(server_error(result.status))
    return result


def _tokens(result: pb.TextResult) -> tuple[int, int]:
    return result.usage.source_tokens, result.usage.target_tokens


async def _begin(call: Call, asked: ChatRequest, route: Translation, reply: Reply) -> AsyncIterator[str]:
    """Return the events of a stream. Raises ServerError for what the server refuses before it decodes."""
    if route.stays:
        return _unchanged(asked, reply)
    messages = aiter(call.backend.stream(route.request(pb.TranslateStreamRequest, asked), call.caller))
    first = [await anext(messages), await anext(messages, None)]
    return _events(first, messages, asked, reply)


async def _unchanged(asked: ChatRequest, reply: Reply) -> AsyncIterator[str]:
    yield reply.event(0, {"role": "assistant", "content": asked.text})
    yield reply.event(0, {}, "stop") + reply.end(0, 0)


async def _events(
    first: Iterable[pb.TranslateStreamResponse | None],
    rest: AsyncIterator[pb.TranslateStreamResponse],
    asked: ChatRequest,
    reply: Reply,
) -> AsyncIterator[str]:
    """Yield the events of a stream. An error after its begin is an event too."""
    for index in range(asked.choices):
        yield reply.event(index, {"role": "assistant", "content": ""})
    async with aclosing(rest):  # type: ignore[type-var]
        try:
            for message in first:
                if message is not None and (events := _part(message, asked, reply)):
                    yield events
            async for message in rest:
                yield _part(message, asked, reply)
        except (ServerError, Problem) as error:
            problem = as_problem(error)
            yield f"data: {json.dumps(_error(problem, problem.http_status))}\n\n"


def _part(message: pb.TranslateStreamResponse, asked: ChatRequest, reply: Reply) -> str:
    """Return the events of a message, none for its start. Raises Problem if the text was not translated."""
    if message.HasField("delta"):
        return reply.event(0, {"content": message.delta.text})
    if not message.HasField("done"):
        return ""
    result, events = _checked(message.done.result), []
    for index, each in enumerate(result.hypotheses):
        if asked.choices > 1:  # there were no deltas
            events.append(reply.event(index, {"content": each.text}))
        events.append(reply.event(index, {}, FINISH.get(each.finish_reason, "stop")))
    return "".join([*events, reply.end(*_tokens(result))])
