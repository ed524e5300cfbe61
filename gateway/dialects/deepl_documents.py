"""Documents of DeepL's API: uploaded, translated while the client asks for their state, and fetched once."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import secrets
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from starlette.responses import JSONResponse, Response

from lingon.errors import LingonError, ServerError
from lingon.gateway.requests.endpoint import Call
from lingon.gateway.requests.fields import Fields
from lingon.gateway.requests.problem import Problem, problem_of
from lingon.gateway.translations.documents import name_with_suffix, translate_file
from lingon.gateway.translations.kept_files import KeptFiles
from lingon.gateway.translations.translate import Wanted

SECONDS_LEFT = 5  # that a document takes, as a client is told
logger = logging.getLogger(__name__)


class DeepLDocuments:
    """The routes of documents."""

    def __init__(
        self,
        files: KeptFiles | None,
        wanted: Callable[[Fields], Wanted],
        count: Callable[[str | None, int], None],
    ) -> None:
        """files: None if there is no place for them; wanted: reads fields; count: adds characters of a key."""
        self._files, self._wanted, self._count = files, wanted, count
        self._running: dict[str, asyncio.Task[None]] = {}

    async def upload(self, call: Call) -> Response:
        """Take a document and begin to translate it."""
        files, fields = self.place(), call.fields
        if fields.file is None:
            raise Problem(400, "Parameter 'file' not specified.")
        given, content = fields.file
        name = name_with_suffix(fields.text("filename") or given, content)
        wanted = self._wanted(fields)
        await call.backend.models(call.caller)  # checks the key before anything is kept
        files.check_room(call.caller.address, len(content))
        number, key = secrets.token_hex(16), secrets.token_hex(32)
        suffix = Path(name).suffix.lower()
        files.write_state(number, {"status": "translating", "key": _digest(key), "suffix": suffix})
        call.held.keep()
        call = replace(call, caller=call.caller.background())
        task = asyncio.create_task(self._translate(call, files, number, name, content, wanted))
        self._running[number] = task
        task.add_done_callback(lambda _: self._end(number, call))
        return JSONResponse({"document_id": number, "document_key": key})

    async def status(self, call: Call) -> Response:
        """Tell the state of a document."""
        number, state = self._state(call)
        found: dict[str, Any] = {"document_id": number, "status": state["status"]}
        if state["status"] == "translating" and number not in self._running:
            found |= _failed("the gateway was restarted; upload the document again")
        elif state["status"] == "translating":
            found["seconds_remaining"] = SECONDS_LEFT
        elif state["status"] == "error":
            found |= _failed(state["message"])
        else:
            found["billed_characters"] = state["characters"]
        return JSONResponse(found)

    async def download(self, call: Call) -> Response:
        """Return a translation, once."""
        number, state = self._state(call)
        if state["status"] != "done":
            raise Problem(503, "the document is not translated yet", retry_after=SECONDS_LEFT)
        content = self.place().result(f"{number}{state['suffix']}")
        self.place().remove(number)
        return Response(content, media_type="application/octet-stream")

    async def _translate(
        self, call: Call, files: KeptFiles, number: str, name: str, content: bytes, wanted: Wanted
    ) -> None:
        state = files.read_state(number)
        try:
            found = await translate_file(call, name, content, wanted)
            files.write_result(call.caller.address, number, state["suffix"], found.content)
            state |= {"status": "done", "characters": found.characters}
            self._count(call.caller.key, found.characters)
        except Problem as problem:
            state |= {"status": "error", "message": str(problem)}
        except ServerError as error:
            state |= {"status": "error", "message": str(problem_of(error))}
        except (LingonError, OSError) as error:
            logger.error("a document was not translated: %s", error)
            state |= {"status": "error", "message": "the gateway failed; its log says why"}
        files.write_state(number, state)

    def _end(self, number: str, call: Call) -> None:
        del self._running[number]
        call.held.release()

    def _state(self, call: Call) -> tuple[str, dict[str, Any]]:
        """Return number and state of the document of a call, which must have its key."""
        number = call.request.path_params["number"]
        state = self.place().read_state(number)
        if not hmac.compare_digest(state["key"], _digest(call.fields.text("document_key"))):
            raise Problem(404, "no such document")
        return number, state

    def place(self) -> KeptFiles:
        """Return where documents are kept; raises Problem without a folder for them."""
        if self._files is None:
            raise Problem(400, "documents are not supported: the server has no folder for them")
        return self._files


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


def _failed(message: str) -> dict[str, str]:
    return {"status": "error", "error_message": message, "message": message}
