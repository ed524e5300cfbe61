"""The official clients of DeepL, LibreTranslate and Google, unchanged, with the model that ships."""

from __future__ import annotations

import io
import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from lingon.serving.auth.api_keys import new_key
from tests.support.credentials import write_key_file
from tests.support.foreign_clients import NODE_CLIENT
from tests.support.processes import Server, serving
from tests.support.repository import ROOT

TEA, TEE = "I would like a cup of tea.", "Ich hätte gern eine Tasse Tee."


@pytest.fixture(scope="module")
def key() -> str:
    return new_key()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, key: str) -> Iterator[Server]:
    """A server with HTTP APIs and API keys."""
    folder = tmp_path_factory.mktemp("clients")
    options = ("--http-port", 0, "--http-data-dir", folder / "data", "--api-keys", write_key_file(folder, {"web": key}))
    with serving(ROOT / "models" / "en-de", "--google-v3", *options) as server:
        yield server


@pytest.fixture(scope="module")
def url(server: Server) -> str:
    """The address of its HTTP port."""
    return server.ready.partition("HTTP APIs on ")[2].partition(" ")[0]


class TestDeepL:
    @pytest.fixture(params=["", "/deepl/"])
    def client(self, request: pytest.FixtureRequest, url: str, key: str) -> Any:
        import deepl

        return deepl.DeepLClient(key, server_url=url + request.param)

    def test_texts(self, client: Any):
        assert client.translate_text(TEA, target_lang="DE").text == TEE
        several = client.translate_text([TEA, "It is raining."], source_lang="EN", target_lang="DE")
        assert [each.text for each in several] == [TEE, "Es regnet."]
        assert [each.billed_characters for each in several] == [len(TEA), 14]
        markup = client.translate_text("I like <b>green</b> apples.", target_lang="DE", tag_handling="xml")
        assert markup.text == "Ich mag <b>grüne</b> Äpfel."
        assert client.translate_text("Das ist ein Haus.", target_lang="DE").detected_source_lang == "DE"

    def test_languages_and_usage(self, client: Any):
        assert [str(each) for each in client.get_source_languages()] == ["EN"]
        assert [(str(each), each.supports_formality) for each in client.get_target_languages()] == [("DE", False)]
        assert client.get_usage().character.limit == 10**12

    def test_documents_from_a_path_and_from_memory(self, client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        sleep = time.sleep
        monkeypatch.setattr(time, "sleep", lambda seconds: sleep(min(seconds, 0.1)))  # it asks every five seconds
        (tmp_path / "in.txt").write_text(f"{TEA}\nIt is raining.\n")
        client.translate_document_from_filepath(tmp_path / "in.txt", tmp_path / "out.txt", target_lang="DE")
        assert (tmp_path / "out.txt").read_text() == f"{TEE}\nEs regnet.\n"
        page = io.BytesIO(b"<!doctype html><p>It is <i>raining</i>.</p>")
        client.translate_document(page, out := io.BytesIO(), target_lang="DE", filename="page.html")
        assert out.getvalue() == b"<!doctype html><p>Es <i>regnet</i>.</p>"

    def test_errors(self, client: Any, url: str):
        import deepl

        with pytest.raises(deepl.AuthorizationException):
            deepl.DeepLClient("wrong", server_url=url).translate_text(TEA, target_lang="DE")
        with pytest.raises(deepl.DeepLException, match="'target_lang' not supported: no model translates into 'fr'"):
            client.translate_text(TEA, target_lang="FR")
        with pytest.raises(deepl.DeepLException, match="Invalid file"):
            client.translate_document_upload("Tom", filename="a.invalid", target_lang="DE")

    def test_lists_of_what_is_not_supported(self, client: Any):
        import deepl

        assert client.list_glossaries() == client.list_multilingual_glossaries() == []
        assert (
            client.get_glossary_languages() == client.get_all_style_rules() == client.list_translation_memories() == []
        )
        with pytest.raises(deepl.GlossaryNotFoundException):
            client.get_glossary("a")
        with pytest.raises(deepl.DeepLException, match="glossaries are not supported"):
            client.create_glossary("a", "EN", "DE", {"a": "b"})

    def test_a_text_in_a_variety_of_the_target_language(self, client: Any):
        assert client.translate_text(TEA, source_lang="EN", target_lang="EN-US").text == TEA


@pytest.mark.foreign("node")
def test_deepl_in_node(url: str, key: str, tmp_path: Path):
    (tmp_path / "in.txt").write_text(f"{TEA}\n")
    command = ["node", "deepl.mjs", url, key, str(tmp_path / "in.txt")]
    ran = subprocess.run(command, cwd=NODE_CLIENT, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == {
        "text": TEE,
        "texts": ["Es regnet.", "Wie geht es dir?"],
        "markup": "Ich mag <b>grüne</b> Äpfel.",
        "sources": ["en"],
        "targets": ["de"],
        "limit": 10**12,
        "document": f"{TEE}\n",
        "lists": [[], [], [], [], []],
        "variety": TEA,
        "unserved": "Bad request, message: Value for 'target_lang' not supported: no model translates into 'fr'",
        "refused": "AuthorizationError",
    }


def test_libretranslatepy(url: str, key: str):
    from libretranslatepy import LibreTranslateAPI

    client = LibreTranslateAPI(url, api_key=key)
    assert client.translate(TEA, "en", "de") == TEE
    assert client.detect("Das ist ein Haus.")[0]["language"] == "de"
    assert [each["code"] for each in client.languages()] == ["en", "de"]


def test_deep_translator(url: str, key: str):
    from deep_translator import LibreTranslator

    client = LibreTranslator("en", "de", api_key=key, use_free_api=False, custom_url=f"{url}/")
    assert client.translate(TEA) == TEE
    assert client.translate_batch([TEA, "It is raining."]) == [TEE, "Es regnet."]


class TestGoogle:
    def test_v2(self, url: str, key: str):
        from google.auth.credentials import AnonymousCredentials
        from google.cloud import translate_v2

        options = {"api_endpoint": url, "api_key": key}
        client = translate_v2.Client(credentials=AnonymousCredentials(), client_options={"api_endpoint": url})
        client._http.headers["x-goog-api-key"] = options["api_key"]
        found = client.translate([TEA, "It is <b>raining</b>."], target_language="de")
        assert [each["translatedText"] for each in found] == [TEE, "Es <b>regnet</b>."]
        assert client.translate("Tom & Mary", target_language="de", format_="text")["input"] == "Tom & Mary"
        assert client.detect_language("Das ist ein Haus.")["language"] == "de"
        assert {each["language"] for each in client.get_languages()} == {"de", "en"}

    @pytest.mark.parametrize("over", ["rest", "grpc"])
    def test_v3(self, server: Server, url: str, key: str, over: str):
        from google.auth.credentials import AnonymousCredentials
        from google.cloud import translate_v3
        from google.cloud.translate_v3.services.translation_service import transports

        if over == "rest":
            transport = transports.TranslationServiceRestTransport(
                host=url.removeprefix("http://"), credentials=AnonymousCredentials(), url_scheme="http"
            )
        else:
            transport = transports.TranslationServiceGrpcTransport(channel=grpc.insecure_channel(server.address))
        client, parent = translate_v3.TranslationServiceClient(transport=transport), "projects/p/locations/global"
        sent = {"metadata": (("x-goog-api-key", key), ("authorization", f"Bearer {key}"))}
        request = {"parent": parent, "contents": [TEA, "It is <b>raining</b>."], "target_language_code": "de"}
        found = client.translate_text(request=request, **sent).translations
        assert [each.translated_text for each in found] == [TEE, "Es <b>regnet</b>."]
        assert found[0].detected_language_code == "en"
        plain = client.translate_text(request={**request, "contents": ["Tom & I."], "mime_type": "text/plain"}, **sent)
        assert "&amp;" not in plain.translations[0].translated_text
        detected = client.detect_language(request={"parent": parent, "content": "Das ist ein Haus."}, **sent)
        assert detected.languages[0].language_code == "de"
        languages = client.get_supported_languages(request={"parent": parent}, **sent).languages
        assert {each.language_code for each in languages if each.support_target} == {"de"}
        with pytest.raises(Exception, match="no model translates into 'fr'"):
            client.translate_text(request={**request, "target_language_code": "fr"}, **sent)
