"""The tools of `lingon mcp`, called by the official client of the Model Context Protocol."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters

from tests.support.processes import serving
from tests.support.repository import ROOT

MODEL = str(ROOT / "models" / "en-de")
TEA, TEE = "I would like a cup of tea.", "Ich hätte gern eine Tasse Tee."
HAUS = "Das ist ein Haus in der Stadt, und der Hund schläft."
IN_PROCESS = ("--model", MODEL, "--device", "cpu", "--engines", "1", "--threads", "1")


@asynccontextmanager
async def tools(*options: str) -> AsyncIterator[Client]:
    """A client that has started `lingon mcp` with these options."""
    command = StdioServerParameters(command=sys.executable, args=["-m", "lingon", "mcp", *options], cwd=str(ROOT))
    async with Client(command, read_timeout_seconds=120) as client:
        yield client


async def call(client: Client, name: str, **arguments: Any) -> Any:
    """What a tool returns. Fails if it returns an error."""
    result = await client.call_tool(name, arguments)
    assert not result.is_error, result.content
    return result.structured_content


async def test_a_text_is_translated_by_a_model_in_the_process():
    async with tools(*IN_PROCESS) as client:
        translated = await call(client, "translate", text=TEA, target="de")
        languages = await call(client, "list_languages")
    assert translated == {"text": TEE, "source": "en", "model": "en-de/10", "warnings": []}
    assert languages == {"result": [{"model": "en-de/10", "sources": ["en"], "targets": ["de"]}]}


async def test_a_text_is_translated_by_a_server():
    with serving(ROOT / "models" / "en-de", ROOT / "models" / "en-fr") as server:
        async with tools("--server", server.address) as client:
            translated = await call(client, "translate", text=TEA, target="fr", source="en")
            (text,) = [
                block.text for block in (await client.call_tool("translate", {"text": TEA, "target": "de"})).content
            ]
            unchanged = await call(client, "translate", text=HAUS, target="de")
            languages = await call(client, "list_languages")
    assert unchanged == {"text": HAUS, "source": "de", "model": "", "warnings": []}
    assert translated["model"].startswith("en-fr/")
    assert "thé" in translated["text"]
    assert json.loads(text)["text"] == TEE  # for clients that read no structured content
    assert [each["targets"] for each in languages["result"]] == [["de"], ["fr"]]


async def test_the_tools_describe_themselves():
    async with tools(*IN_PROCESS) as client:
        listed = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert set(listed) == {"translate", "list_languages"}
    schema = listed["translate"].input_schema
    assert (schema["required"], set(schema["properties"])) == (["text", "target"], {"text", "target", "source"})
    assert all(value["description"] for value in schema["properties"].values())
    assert all(tool.annotations.read_only_hint for tool in listed.values())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"text": TEA, "target": "fr"}, "no model translates into 'fr'"),
        ({"text": TEA, "target": "de", "source": "fr"}, "no model translates from fr to de"),
        ({"text": TEA}, "target"),
        ({"text": 3, "target": "de"}, "text"),
    ],
)
async def test_an_error_is_a_result_that_the_assistant_reads(arguments: dict[str, Any], message: str):
    async with tools(*IN_PROCESS) as client:
        result = await client.call_tool("translate", arguments)
    assert result.is_error
    assert message in result.content[0].text


async def test_a_server_that_is_away_is_an_error_of_the_tools_alone():
    async with tools("--server", "127.0.0.1:1", "--timeout", "5") as client:
        result = await client.call_tool("translate", {"text": TEA, "target": "de"})
    assert result.is_error
    assert "127.0.0.1:1" in result.content[0].text


def test_standard_output_has_messages_alone_and_its_end_ends_the_command():
    ran = subprocess.run(
        [sys.executable, "-m", "lingon", "mcp", *IN_PROCESS],
        input="",
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


def test_a_model_that_is_not_there_is_one_line(tmp_path: Path):
    command = [sys.executable, "-m", "lingon", "mcp", "--model", str(tmp_path / "none")]
    ran = subprocess.run(command, input="", capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr.startswith("lingon: error: ")
    assert ran.stderr.count("\n") == 1
