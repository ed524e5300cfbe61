"""The verb mcp: translation as tools for assistants, on standard input and output. Heavy imports happen in the verb."""

from __future__ import annotations

from lingon.cli.backend import BackendOptions, open_translator
from lingon.cli.options import with_option_groups


@with_option_groups
def mcp(*, backend: BackendOptions) -> None:
    """Offer translation as tools of the Model Context Protocol, on standard input and output.

    A program such as an assistant starts this command and calls its tools, `translate` and `list_languages`. They
    translate by a server, or with --model in this process. It ends when its standard input ends.
    """
    from lingon.cli.mcp_tools import tool_server

    with open_translator(backend) as translator:
        tool_server(translator, backend.server_model).run("stdio")
