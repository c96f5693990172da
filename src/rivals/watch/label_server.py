"""Labels by HTTP, on this machine: the last frame is of a class, and is learned at once.

    POST /label?label=CLASS[&task=TASK]   teaches; answers with the number of pictures learned
    GET  /                                what was seen last

Host, origin and token are checked as for the page (web/guard.py), connections have the same limits.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from rivals.errors import RivalsError
from rivals.watch.watcher import Watcher
from rivals.web.connections import WebConnection
from rivals.web.guard import Guard
from rivals.web.server import MAX_HEAD, Address, listen, own_token

LONGEST = 400  # letters of a name


class LabelServer:
    """Serves in a thread, from `start` to `close`."""

    def __init__(
        self, watcher: Watcher, host: str, port: int, token_file: Path | None = None
    ) -> None:
        self.watcher = watcher
        token, self._listening = own_token(token_file), listen(host, port)
        self.address = Address(host, self._listening.getsockname()[1], token)
        routes = [
            Route("/label", self._label, methods=["POST"]), Route("/", self._last, methods=["GET"])
        ]  # fmt: skip
        app = Guard(Starlette(routes=routes), host, self.address.port, token)
        config = uvicorn.Config(
            app, log_level="error", access_log=False, server_header=False, http=WebConnection,
            h11_max_incomplete_event_size=MAX_HEAD, timeout_graceful_shutdown=2, lifespan="off",
            ws="none",
        )  # fmt: skip
        self.server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self.server.run, args=([self._listening],), name="labels", daemon=True
        )

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self.server.should_exit = True
        self._thread.join(5.0)
        self._listening.close()

    async def _label(self, request: Request) -> JSONResponse:
        label, task = (request.query_params.get(name) for name in ("label", "task"))
        try:
            if label is None or max(len(label), len(task or "")) > LONGEST:
                raise RivalsError("Say what the last frame shows: POST /label?label=CLASS.")
            found: dict[str, Any] = await run_in_threadpool(self.watcher.label, label, task)
        except RivalsError as error:
            return JSONResponse({"message": str(error)}, 400)
        return JSONResponse(found)

    async def _last(self, request: Request) -> JSONResponse:
        last = self.watcher.last
        return JSONResponse(last.to_dict() if last else {})
