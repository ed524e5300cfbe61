"""Documents of DeepL's API: uploaded, translated while the client asks for their state, and fetched once."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from starlette.responses import JSONResponse, Response

from lingon.gateway.requests.endpoint import Call, as_problem
from lingon.gateway.requests.problem import Problem
from lingon.gateway.translations.documents import Documents
from lingon.gateway.translations.kept_files import ERROR, TRANSLATED, Kept, KeptFiles
from lingon.gateway.translations.languages import SHOWN, check_pair
from lingon.gateway.translations.translate import Wanted

API = "deepl"
SECONDS_LEFT = 5  # that a document takes, as a client is told


class DeepLDocuments:
    """The routes of documents."""

    def __init__(
        self,
        documents: Documents,
        wanted: Callable[[Call], Awaitable[Wanted]],
        count: Callable[[str | None, int], None],
    ) -> None:
        """wanted: reads the fields of a call; count: adds characters of a key."""
        self._documents, self._wanted, self._count = documents, wanted, count
        self._running: set[asyncio.Task[None]] = set()

    async def upload(self, call: Call) -> Response:
        """Take a document and begin to translate it."""
        files, fields = self.place(), call.fields
        if fields.file is None:
            raise Problem(400, "Parameter 'file' not specified.")
        given, content = fields.file
        name = fields.text("filename") or given
        self._documents.check_kind(name)
        _check_output_format(name, fields.text("output_format"))
        wanted = await self._wanted(call)
        if wanted.source:
            _check_other_language(wanted.source, wanted)
        if not wanted.unchanged:
            check_pair(await call.backend.models(call.caller, fresh=False), wanted.source, wanted.target)
        secret = secrets.token_hex(32).upper()
        kept = await files.begin(API, call.holder, len(content), secret)
        call.held.keep()
        call = replace(call, caller=call.caller.background())
        task = asyncio.create_task(self._translate(call, files, kept, name, content, wanted))
        self._running.add(task)
        task.add_done_callback(lambda _: self._end(task, call))
        return JSONResponse({"document_id": kept.number.upper(), "document_key": secret})

    async def status(self, call: Call) -> Response:
        """Tell the state of a document."""
        kept = self._kept(call)
        found: dict[str, Any] = {"document_id": kept.number.upper(), "status": kept.status}
        if kept.status == TRANSLATED:
            found |= {"seconds_remaining": 0, "billed_characters": kept.characters}
        elif kept.status == ERROR:
            found |= {"error_message": kept.message, "message": kept.message}
        else:
            found["seconds_remaining"] = SECONDS_LEFT
        return JSONResponse(found)

    async def download(self, call: Call) -> Response:
        """Return a translation, once."""
        kept = self._kept(call)
        if kept.status != TRANSLATED:
            raise Problem(503, "the document is not translated yet", retry_after=SECONDS_LEFT)
        content = await self.place().content(kept)
        await self.place().remove(kept)
        return Response(content, media_type="application/octet-stream")

    async def _translate(
        self, call: Call, files: KeptFiles, kept: Kept, name: str, content: bytes, wanted: Wanted
    ) -> None:
        try:
            found = await self._documents.translate(call, name, content, wanted)
            if found.detected:
                _check_other_language(found.detected, wanted)
            await files.finish(kept, Path(found.name).suffix.lower(), found.content, found.characters)
            self._count(call.caller.key, found.characters)
            return
        except Exception as error:  # each is an end that the client is to know of
            message = str(as_problem(error))
        with suppress(Problem):  # the disk is full, as the log says
            await files.fail(kept, message)

    def _end(self, task: asyncio.Task[None], call: Call) -> None:
        self._running.discard(task)
        call.held.release()

    def _kept(self, call: Call) -> Kept:
        """Return the document of a call, which must have its document_key."""
        number, secret = call.request.path_params["number"].lower(), call.fields.text("document_key")
        return self.place().find(number, API, call.holder, secret)

    def place(self) -> KeptFiles:
        """Return where documents are kept; raises Problem without a folder for them."""
        if self._documents.kept is None:
            raise Problem(400, "documents are not supported: the server has no folder for them")
        return self._documents.kept


def _check_output_format(name: str, wanted: str) -> None:
    """Raise Problem for a file that is to become one of another kind."""
    suffix = Path(name).suffix.lower().removeprefix(".")
    if wanted and suffix and wanted.lower().removeprefix(".") != suffix:
        message = f"output_format must be that of the file, {suffix}, or be left out, got {wanted[:SHOWN]!r}"
        raise Problem(400, message, field="output_format")


def _check_other_language(source: str, wanted: Wanted) -> None:
    """Raise Problem for a document in the target language, as there; in a variety of it, it stays as it is."""
    if source.lower() == wanted.target.lower():
        raise Problem(400, "Source and target language are equal.", field="target_lang")
