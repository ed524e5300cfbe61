"""The chat completions of OpenAI's API, called by the official client."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import openai
import pytest

from lingon.gateway.app import GatewayOptions
from lingon.serving.auth.api_keys import new_key
from tests.support.credentials import write_key_file
from tests.support.gateway import BUNDLES, TwoModels, gateway
from tests.support.processes import serving
from tests.support.repository import ROOT

TEA, TEE = "I would like a cup of tea.", "Ich hätte gern eine Tasse Tee."
BOTH, BEIDE = f"{TEA} It is raining.", f"{TEE} Es regnet."
CHAT = "/openai/v1/chat/completions"


@pytest.fixture(scope="module")
def key() -> str:
    return new_key()


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory, key: str) -> Iterator[str]:
    """The base URL of a server with both models that ship, API keys, and this API alone."""
    keys = write_key_file(tmp_path_factory.mktemp("openai"), {"chat": key})
    options = ("--http-port", 0, "--http-apis", "openai", "--api-keys", keys)
    with serving(ROOT / "models" / "en-de", ROOT / "models" / "en-fr", *options) as server:
        yield server.ready.partition("HTTP APIs on ")[2].partition(" ")[0] + "/openai/v1"


@pytest.fixture(scope="module")
def client(url: str, key: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=url, api_key=key, max_retries=0) as made:
        yield made


def user(text: Any) -> dict[str, Any]:
    return {"role": "user", "content": text}


def system(text: str) -> dict[str, Any]:
    return {"role": "system", "content": text}


def ask(client: openai.OpenAI, model: str, *messages: dict[str, Any], **options: Any) -> Any:
    return client.chat.completions.create(model=model, messages=list(messages), **options)


@pytest.mark.parametrize(
    ("model", "instruction"),
    [
        ("en-de", None),
        ("en-de/10", None),
        ("auto-de", None),
        ("lingon", "Translate to German."),
        ("lingon", "translate from English into de"),
        ("en-de", "Translate to de-AT"),
        ("auto-de", "Translate from en to German!"),
    ],
)
def test_the_last_message_of_the_user_is_translated(client: openai.OpenAI, model: str, instruction: str | None):
    given = [] if instruction is None else [system(instruction)]
    history = [user("How are you?"), {"role": "assistant", "content": "Wie geht es dir?"}]
    answer = ask(client, model, *given, *history, user(TEA))
    (choice,) = answer.choices
    assert (choice.message.role, choice.message.content, choice.finish_reason) == ("assistant", TEE, "stop")
    assert (answer.model, answer.object) == (model, "chat.completion")
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens > 2


def test_a_message_may_be_in_parts(client: openai.OpenAI):
    parts = [{"type": "text", "text": text} for text in (TEA, " It is raining.")]
    assert ask(client, "en-de", user(parts)).choices[0].message.content == BEIDE


def test_the_parts_of_a_stream_joined_are_the_translation(client: openai.OpenAI):
    stream = ask(client, "en-de", user(BOTH), stream=True, stream_options={"include_usage": True})
    *chunks, last = list(stream)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == BEIDE
    assert [chunk.choices[0].finish_reason for chunk in chunks][-2:] == [None, "stop"]
    assert len([chunk for chunk in chunks if chunk.choices[0].delta.content]) > 1
    assert chunks[0].choices[0].delta.role == "assistant"
    assert (last.choices, last.usage.total_tokens > 2) == ([], True)
    assert {chunk.usage for chunk in chunks} == {None}


def test_several_choices_are_several_translations(client: openai.OpenAI):
    choices = ask(client, "en-de", user("How are you?"), n=3).choices
    assert len({choice.message.content for choice in choices}) == 3
    assert [choice.index for choice in choices] == [0, 1, 2]
    streamed = dict.fromkeys(range(3), "")
    for chunk in ask(client, "en-de", user("How are you?"), n=3, stream=True):
        streamed[chunk.choices[0].index] += chunk.choices[0].delta.content or ""
    assert list(streamed.values()) == [choice.message.content for choice in choices]


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_a_bound_of_tokens_is_said_to_have_ended_a_translation(client: openai.OpenAI, name: str):
    (choice,) = ask(client, "en-de", user(TEA), **{name: 3}).choices
    assert choice.finish_reason == "length"
    assert TEE.startswith(choice.message.content[:8])
    *_, last = ask(client, "en-de", user(TEA), **{name: 3}, stream=True)
    assert last.choices[0].finish_reason == "length"


@pytest.mark.parametrize("stream", [False, True])
def test_a_text_in_the_target_language_stays_as_it_is(client: openai.OpenAI, stream: bool):
    text = "Das ist ein Haus in der Stadt, und der Hund schläft."
    answer = ask(client, "auto-de", user(text), stream=stream)
    if stream:
        assert "".join(chunk.choices[0].delta.content or "" for chunk in answer) == text
    else:
        assert answer.choices[0].message.content == text


def test_sampling_parameters_have_no_effect_and_a_header_says_so(client: openai.OpenAI):
    options = {"temperature": 1.9, "top_p": 0.5, "seed": 3, "user": "a"}
    raw = client.chat.completions.with_raw_response.create(model="en-de", messages=[user(TEA)], **options)
    assert raw.parse().choices[0].message.content == TEE
    assert raw.headers["x-lingon-ignored"] == "seed, temperature, top_p, user"
    quiet = client.chat.completions.with_raw_response.create(model="en-de", messages=[user(TEA)])
    assert "x-lingon-ignored" not in quiet.headers


def test_the_models_are_the_served_ones_and_their_targets(client: openai.OpenAI):
    assert [model.id for model in client.models.list()] == ["en-de", "en-fr", "auto-de", "auto-fr", "lingon"]
    assert client.models.retrieve("en-fr").owned_by == "lingon"
    with pytest.raises(openai.NotFoundError, match="the model 'gpt-4o' does not exist"):
        client.models.retrieve("gpt-4o")


TOOL = {"type": "function", "function": {"name": "look"}}
IMAGE = [{"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}]


@pytest.mark.parametrize(
    ("model", "messages", "options", "param", "message"),
    [
        ("gpt-4o", [user(TEA)], {}, "model", "the model 'gpt-4o' does not exist"),
        ("de-en", [user(TEA)], {}, "model", "the model 'de-en' does not exist"),
        ("lingon", [user(TEA)], {}, "messages", "the model 'lingon' needs a system message, 'Translate to LANGUAGE'"),
        ("lingon", [system("Translate to Klingon"), user(TEA)], {}, "target", "no model translates into 'Klingon'"),
        (
            "en-de",
            [system("You are a pirate."), user(TEA)],
            {},
            "messages[0].content",
            "must be 'Translate to LANGUAGE'",
        ),
        ("en-de", [system("Translate to French"), user(TEA)], {}, "model", "model names the target de"),
        ("en-de", [system("Translate to de")] * 2 + [user(TEA)], {}, "messages", "1 system message at most, got 2"),
        ("en-de", [], {}, "messages", "messages must be a list of one message or more"),
        ("en-de", [user(TEA), {"role": "assistant", "content": "a"}], {}, "messages", "must have the role user"),
        ("en-de", [user(IMAGE)], {}, "messages[0].content", "messages[0].content[0] must have the type text"),
        ("en-de", [user(None)], {}, "messages[0].content", "must be text, got nothing"),
        ("en-de", [user(TEA)], {"tools": [TOOL]}, "tools", "tools is not supported: this server translates alone"),
        ("en-de", [user(TEA)], {"response_format": {"type": "json_object"}}, "response_format", "is not supported"),
        ("en-de", [user(TEA)], {"stop": ["."]}, "stop", "stop is not supported"),
        ("en-de", [user(TEA)], {"extra_body": {"top_k": 3}}, "top_k", "'top_k' is no parameter of chat completions"),
        ("en-de", [user(TEA)], {"n": 0}, "n", "n must be 1 to 128, got 0"),
        ("en-de", [user(TEA)], {"n": 128}, "n", "n must be 1 to 8, got 128"),
        ("en-de", [user(TEA)], {"max_tokens": 0}, "max_tokens", "max_tokens must be 1 to 1000000, got 0"),
        ("en-de", [user(TEA)], {"stream": True, "stream_options": {"x": 1}}, "stream_options", "include_usage alone"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_what_cannot_be_done_is_refused_in_the_form_of_the_api(
    client: openai.OpenAI,
    model: str,
    messages: list[dict[str, Any]],
    options: dict[str, Any],
    param: str,
    message: str,
    stream: bool,
):
    """Before a stream begins too."""
    with pytest.raises(openai.APIStatusError) as caught:
        ask(client, model, *messages, **{"stream": stream, **options})
    assert caught.value.status_code == (404 if "exist" in message or "Klingon" in message else 400)
    assert (caught.value.param, caught.value.type) == (param, "invalid_request_error")
    assert message in caught.value.body["message"]


def test_a_wrong_key_is_an_authentication_error(url: str):
    with openai.OpenAI(base_url=url, api_key="wrong", max_retries=0) as stranger:
        with pytest.raises(openai.AuthenticationError) as caught:
            ask(stranger, "en-de", user(TEA))
        assert caught.value.code == "invalid_api_key"
        with pytest.raises(openai.AuthenticationError):
            stranger.models.list()


async def test_the_api_is_off_unless_it_is_named():
    assert "openai" not in GatewayOptions().apis
    async with gateway() as http:
        assert (await http.post(CHAT, {"model": "en-de", "messages": [user("Tom")]})).status == 404
    async with gateway(http_apis=("openai",)) as http:
        assert (await http.post(CHAT, {"model": "en-de", "messages": [user("Tom")]})).status == 200


async def test_a_pair_without_a_model_goes_through_the_pivot_language():
    async with gateway(loader=TwoModels, bundles=BUNDLES, http_apis=("openai",)) as http:
        for name in ("de-fr", "auto-fr"):
            reply = await http.post(CHAT, {"model": name, "messages": [user("Der alte Mann.")]})
            assert reply.json["choices"][0]["message"]["content"] == "Le vieil homme."
        listed = [model["id"] for model in (await http.get("/openai/v1/models")).json["data"]]
    assert listed == ["de-en", "en-fr", "auto-en", "auto-fr", "lingon"]
