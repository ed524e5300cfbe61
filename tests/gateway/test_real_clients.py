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
WITH_TERM = "Ich hätte gern eine Schale Tee."  # with Schale for cup
WITH_TERMS = "Ich hätte gern eine Schale Kaffee."  # and with Kaffee for tea
REMEMBERED = "Tee, bitte."  # translation of TEA in a translation memory
MEMORY = f"""<tmx version="1.4"><header srclang="en" datatype="plaintext" segtype="sentence" adminlang="en"
creationtool="t" creationtoolversion="1" o-tmf="t"/><body>
<tu><tuv xml:lang="en"><seg>{TEA}</seg></tuv><tuv xml:lang="de"><seg>{REMEMBERED}</seg></tuv></tu>
<tu><tuv xml:lang="en"><seg>Good &amp; bad.</seg></tuv><tuv xml:lang="de"><seg>Gut &amp; schlecht.</seg></tuv></tu>
</body></tmx>"""


@pytest.fixture(scope="module")
def key() -> str:
    return new_key()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, key: str) -> Iterator[Server]:
    """A server with HTTP APIs and API keys."""
    folder = tmp_path_factory.mktemp("clients")
    options = ("--http-port", 0, "--http-data-dir", folder / "data", "--data-dir", folder / "kept")
    options += ("--api-keys", write_key_file(folder, {"web": key}))
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
        assert client.get_all_style_rules() == []

    def test_glossaries_of_one_pair(self, client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        import deepl

        assert [(each.source_lang, each.target_lang) for each in client.get_glossary_languages()] == [("en", "de")]
        glossary = client.create_glossary("Mine", "EN", "DE", {"cup": "Schale"})
        of_csv = client.create_glossary_from_csv("CSV", "EN", "DE", "cup,Humpen,en,de\n")
        try:
            assert (glossary.name, glossary.ready, glossary.entry_count) == ("Mine", True, 1)
            assert client.get_glossary(glossary.glossary_id).creation_time == glossary.creation_time
            assert client.get_glossary_entries(of_csv) == {"cup": "Humpen"}
            assert {each.name for each in client.list_glossaries()} == {"Mine", "CSV"}
            assert client.translate_text(TEA, source_lang="EN", target_lang="DE", glossary=glossary).text == WITH_TERM
            assert client.translate_text_with_glossary(TEA, glossary).text == WITH_TERM
            monkeypatch.setattr(time, "sleep", lambda seconds, sleep=time.sleep: sleep(min(seconds, 0.1)))
            document = client.translate_document(
                io.BytesIO(TEA.encode()),
                out := io.BytesIO(),
                source_lang="EN",
                target_lang="DE",
                filename="a.txt",
                glossary=glossary,
            )
            assert (document.ok, out.getvalue().decode()) == (True, WITH_TERM)
        finally:
            client.delete_glossary(glossary)
            client.delete_glossary(of_csv)
        with pytest.raises(deepl.GlossaryNotFoundException):
            client.get_glossary(glossary.glossary_id)
        with pytest.raises(deepl.DeepLException, match="Invalid glossary entries provided: "):
            client.create_glossary_from_csv("CSV", "EN", "DE", "cup\n")

    def test_glossaries_of_several_pairs(self, client: Any):
        import deepl
        from deepl.api_data import MultilingualGlossaryDictionaryEntries as Entries

        both = [Entries("EN", "DE", {"cup": "Humpen"}), Entries("DE", "EN", {"Humpen": "cup"})]
        glossary = client.create_multilingual_glossary("Both", both)
        one = client.create_glossary("One", "EN", "DE", {"tea": "Kaffee"})
        try:
            assert client.update_multilingual_glossary_name(glossary, "New name").name == "New name"
            edited = client.update_multilingual_glossary_dictionary(glossary, Entries("EN", "DE", {"cup": "Schale"}))
            assert [each.entry_count for each in edited.dictionaries] == [1, 1]
            replaced = client.replace_multilingual_glossary_dictionary(
                glossary, Entries("DE", "EN", {"a": "b", "c": "d"})
            )
            assert replaced.entry_count == 2
            (entries,) = client.get_multilingual_glossary_entries(glossary, "EN", "DE").dictionaries
            assert entries.entries == "cup\tSchale"
            languages = {"source_lang": "EN", "target_lang": "DE"}
            assert client.translate_text(TEA, **languages, glossary=glossary).text == WITH_TERM
            assert client.translate_text(TEA, **languages, glossary_ids=[glossary, one]).text == WITH_TERMS
            client.delete_multilingual_glossary_dictionary(glossary, source_lang="DE", target_lang="EN")
            (listed,) = (each for each in client.list_multilingual_glossaries() if each.name == "New name")
            assert [each.source_lang for each in listed.dictionaries] == ["EN"]
        finally:
            client.delete_multilingual_glossary(glossary)
            client.delete_glossary(one)
        with pytest.raises(deepl.GlossaryNotFoundException):
            client.get_multilingual_glossary(glossary.glossary_id)

    def test_translation_memories(self, client: Any, tmp_path: Path):
        import deepl

        (tmp_path / "mine.tmx").write_text(MEMORY)
        job = client.import_translation_memory_from_filepath(tmp_path / "mine.tmx", display_name="Mine")
        memory = client.get_translation_memory(job.result.translation_memory_id)
        try:
            assert (memory.name, memory.source_language, memory.target_languages) == ("Mine", "en", ["de"])
            assert [each.translation_memory_id for each in client.list_translation_memories(0, 25)] == [
                memory.translation_memory_id
            ]
            page = client.list_translation_memory_segments(memory, page_size=1)
            (segment,) = page.segments
            assert (page.segment_count, segment.source_text, segment.targets[0].target_text) == (2, TEA, REMEMBERED)
            rest = client.list_translation_memory_segments(memory, page_cursor=page.next_page_cursor)
            assert ([each.source_text for each in rest], rest.next_page_cursor) == (["Good & bad."], None)
            assert len(client.list_translation_memory_segments(memory, filter_text="no such text")) == 0
            languages = {"source_lang": "EN", "target_lang": "DE"}
            found = client.translate_text(TEA, **languages, translation_memory=memory, translation_memory_threshold=100)
            assert found.text == REMEMBERED
            client.export_translation_memory_to_filepath(memory, tmp_path / "out.tmx")
            assert "<seg>Good &amp; bad.</seg>" in (tmp_path / "out.tmx").read_text()
        finally:
            client.delete_translation_memory(memory)
        assert client.list_translation_memories() == []
        with pytest.raises(deepl.DeepLException, match="Translation memory not found"):
            client.get_translation_memory(memory)
        (tmp_path / "broken.tmx").write_text(MEMORY[:-20])
        with pytest.raises(deepl.DeepLException, match="Error occurred while importing translation memory: "):
            client.import_translation_memory_from_filepath(tmp_path / "broken.tmx")

    def test_a_text_in_a_variety_of_the_target_language(self, client: Any):
        assert client.translate_text(TEA, source_lang="EN", target_lang="EN-US").text == TEA


@pytest.mark.foreign("node")
def test_deepl_in_node(url: str, key: str, tmp_path: Path):
    (tmp_path / "in.txt").write_text(f"{TEA}\n")
    (tmp_path / "mine.tmx").write_text(MEMORY)
    command = ["node", "deepl.mjs", url, key, str(tmp_path / "in.txt"), str(tmp_path / "mine.tmx")]
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
        "pairs": [{"sourceLang": "en", "targetLang": "de"}],
        "styles": [],
        "single": ["Single", True, "en", "de", 1],
        "got": "Single",
        "entries": {"cup": "Humpen"},
        "listed": ["CSV", "Single"],
        "withTerms": WITH_TERM,
        "documentWithTerms": f"{WITH_TERM}\n",
        "created": ["de-en 1", "en-de 1"],
        "renamed": "New name",
        "edited": ["de-en 1", "en-de 2"],
        "editedWithCsv": ["de-en 1", "en-de 3"],
        "replaced": 2,
        "dictionary": {"tea": "Kaffee", "milk": "Milch", "sea": "Meer"},
        "withBoth": WITH_TERMS,
        "left": ["en-de 3"],
        "names": ["New name", "Single"],
        "gone": "GlossaryNotFoundError",
        "memory": ["Mine", "en", ["de"], 2],
        "memories": ["Mine"],
        "segments": [[TEA, REMEMBERED], ["Good & bad.", "Gut & schlecht."]],
        "remembered": REMEMBERED,
        "exported": True,
        "memoriesLeft": [],
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


def client_of_v3(server: Server, url: str, key: str, over: str) -> Any:
    """Return Google's client; over: rest or grpc."""
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import translate_v3
    from google.cloud.translate_v3.services.translation_service import transports

    if over == "rest":
        transport = transports.TranslationServiceRestTransport(
            host=url.removeprefix("http://"), credentials=AnonymousCredentials(), url_scheme="http"
        )
    else:
        transport = transports.TranslationServiceGrpcTransport(channel=grpc.insecure_channel(server.address))
    return translate_v3.TranslationServiceClient(transport=transport)


def metadata_of(key: str) -> tuple[tuple[str, str], ...]:
    return ("x-goog-api-key", key), ("authorization", f"Bearer {key}")


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
        client, sent = client_of_v3(server, url, key, over), {"metadata": metadata_of(key)}
        parent = "projects/p/locations/global"
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

    @pytest.mark.parametrize("over", ["rest", "grpc"])
    def test_sets_of_equivalent_terms_of_v3(self, server: Server, url: str, key: str, over: str):
        client, sent = client_of_v3(server, url, key, over), {"metadata": metadata_of(key)}
        parent = "projects/p/locations/global"
        name, codes = f"{parent}/glossaries/set-{over}", ["en", "de", "fr"]
        source = {"gcs_source": {"input_uri": "data:text/csv,en%2Cde%2Cfr%0Acup%2CHumpen%2Ctasse"}}
        glossary = {"name": name, "language_codes_set": {"language_codes": codes}, "input_config": source}
        created = client.create_glossary(parent=parent, glossary=glossary, **sent).result()
        try:
            assert (created.entry_count, sorted(created.language_codes_set.language_codes)) == (1, sorted(codes))
            assert client.get_glossary(name=name, **sent) == created
            terms = [{"language_code": "en", "text": "tea"}, {"language_code": "de", "text": "Kaffee"}]
            added = client.create_glossary_entry(parent=name, glossary_entry={"terms_set": {"terms": terms}}, **sent)
            assert client.get_glossary_entry(name=added.name, **sent) == added
            added.terms_set.terms[0].text = "Kakao"
            added = client.update_glossary_entry(glossary_entry=added, **sent)
            listed = client.list_glossary_entries(request={"parent": name, "page_size": 1}, **sent)
            found = [{term.language_code: term.text for term in each.terms_set.terms} for each in listed]
            assert found == [{"en": "cup", "de": "Humpen", "fr": "tasse"}, {"en": "tea", "de": "Kakao"}]
            pair = {"source_language_code": "en", "target_language_code": "de"}
            request = {"parent": parent, "contents": [TEA], "mime_type": "text/plain", **pair}
            reply = client.translate_text(request={**request, "glossary_config": {"glossary": name}}, **sent)
            assert all(word in reply.glossary_translations[0].translated_text for word in ("Humpen", "Kakao"))
            client.delete_glossary_entry(name=added.name, **sent)
            assert client.get_glossary(name=name, **sent).entry_count == 1
        finally:
            client.delete_glossary(name=name, **sent).result()

    @pytest.mark.parametrize("over", ["rest", "grpc"])
    def test_glossaries_of_v3(self, server: Server, url: str, key: str, over: str):
        client, sent = client_of_v3(server, url, key, over), {"metadata": metadata_of(key)}
        parent = "projects/p/locations/global"
        name, pair = f"{parent}/glossaries/{over}", {"source_language_code": "en", "target_language_code": "de"}
        source = {"gcs_source": {"input_uri": "data:text/csv,cup%2CHumpen%0Atea%2CKaffee"}}
        glossary = {"name": name, "display_name": "Mine", "language_pair": pair, "input_config": source}
        created = client.create_glossary(parent=parent, glossary=glossary, **sent)
        try:
            assert (created.result().name, created.result().entry_count) == (name, 2)
            assert created.metadata.state.name == "SUCCEEDED"
            assert client.get_operation({"name": created.operation.name}, **sent).done
            found = client.get_glossary(name=name, **sent)
            assert (found.display_name, found.language_pair.target_language_code) == ("Mine", "de")
            assert name in [each.name for each in client.list_glossaries(parent=parent, **sent)]
            (entry,) = (
                each
                for each in client.list_glossary_entries(request={"parent": name, "page_size": 1}, **sent)
                if each.terms_pair.source_term.text == "cup"
            )
            entry.terms_pair.target_term.text = "Schale"
            client.update_glossary_entry(glossary_entry=entry, **sent)
            assert client.get_glossary_entry(name=entry.name, **sent) == entry
            request = {"parent": parent, "contents": [TEA], "mime_type": "text/plain", **pair}
            reply = client.translate_text(request={**request, "glossary_config": {"glossary": name}}, **sent)
            assert [each.translated_text for each in reply.translations] == [TEE]
            assert [each.translated_text for each in reply.glossary_translations] == [WITH_TERMS]
            assert reply.glossary_translations[0].glossary_config.glossary == name
            renamed = {"glossary": {"name": name, "display_name": "New"}, "update_mask": {"paths": ["display_name"]}}
            assert client.update_glossary(**renamed, **sent).result().display_name == "New"
            wrong = {**glossary, "name": f"{parent}/glossaries/gs"}
            wrong["input_config"] = {"gcs_source": {"input_uri": "gs://bucket/terms.csv"}}
            with pytest.raises(Exception, match="must be a data: address"):
                client.create_glossary(parent=parent, glossary=wrong, **sent)
        finally:
            assert client.delete_glossary(name=name, **sent).result().name == name
        with pytest.raises(Exception, match="glossary"):
            client.get_glossary(name=name, **sent)
