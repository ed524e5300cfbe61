"""The tools that `lingon mcp` offers: thin functions over a client of a server, or over a model in this process.

Imports the packages of the extra `mcp`, so that the verb imports this module when it runs.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations
from pydantic import BaseModel, Field

from lingon.cli.backend import ListTranslator
from lingon.errors import LingonError
from lingon.source_language import AUTO

INSTRUCTIONS = (
    "Translates texts with machine translation models. Call list_languages to see between which languages; tags are "
    "BCP 47, such as en, de or pt-BR. Translations are by machine: warnings say what may be wrong with one."
)
READS = ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False)

Text = Annotated[str, Field(description="The text, of any length. Line breaks and white space between sentences stay.")]
Target = Annotated[str, Field(description="The language of the translation, a BCP 47 tag such as de.")]
Source = Annotated[str | None, Field(description="The language of the text. It is detected if it is not given.")]


class TranslatedText(BaseModel):
    """A translation.

    text: the translation; source: the language of the text, given or detected; model: that translated, empty if the
        text is in the target language already; warnings: what may be wrong, one line each
    """

    text: str
    source: str
    model: str
    warnings: list[str]


class ServedLanguages(BaseModel):
    """The languages of a model: it translates from each of its sources into each of its targets."""

    model: str
    sources: list[str]
    targets: list[str]


def tool_server(translator: ListTranslator, model: str | None) -> MCPServer[None]:
    """Return a server with the tools `translate` and `list_languages`. Several calls may be in progress.

    translator: is called in threads; model: the one that translates, NAME or NAME/VERSION, or None for any
    """
    server = MCPServer[None]("lingon", version=version("lingon"), instructions=INSTRUCTIONS, log_level="WARNING")

    def translate(text: Text, target: Target, source: Source = None) -> TranslatedText:
        """Translate a text into another language."""
        try:
            (result,) = translator.translate([text], model=model, source=source or AUTO, target=target)
            translation = result.text
        except LingonError as error:
            raise ToolError(str(error)) from None
        return TranslatedText(
            text=translation,
            source=result.source,
            model=f"{result.model}/{result.version}" if result.model else "",
            warnings=[warning.message for warning in result.warnings],
        )

    def list_languages() -> list[ServedLanguages]:
        """List the models and the languages between which they translate."""
        try:
            found = translator.list_models()
        except LingonError as error:
            raise ToolError(str(error)) from None
        return [
            ServedLanguages(
                model=f"{each.name}/{each.version}",
                sources=list(each.source_languages or (each.source_language,)),
                targets=list(each.target_languages or (each.target_language,)),
            )
            for each in found
        ]

    server.add_tool(translate, annotations=READS)
    server.add_tool(list_languages, annotations=READS)
    return server
