"""The routes. Each takes words from the address and at most one picture as its body."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import FastAPI, Query, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from starlette.concurrency import run_in_threadpool

from rivals.errors import RivalsError
from rivals.io.locks import BusyError
from rivals.web import open_model as known
from rivals.web.collect import too_large
from rivals.web.service import Service
from rivals.web.web_events import follow

TYPES = {"html": "text/html; charset=utf-8", "css": "text/css; charset=utf-8",
         "js": "text/javascript; charset=utf-8", "svg": "image/svg+xml"}  # fmt: skip
Word = Annotated[str, Query(max_length=400)]
Maybe = Annotated[str | None, Query(max_length=400)]


class TooLargeError(RivalsError):
    """More bytes than a picture may have."""


def make_app(desk: Service) -> FastAPI:
    """The page and what it asks for; whoever may ask is the guard's business."""

    app = FastAPI(title="rivals", docs_url=None, redoc_url=None, openapi_url=None)
    formats = cache(known.formats)

    @app.exception_handler(RivalsError)
    async def mistake(request: Request, error: RivalsError) -> JSONResponse:
        status = {BusyError: 409, TooLargeError: 413}.get(type(error), 400)
        # What is left of too large a body is not waited for.
        headers = {"Connection": "close"} if status == 413 else None
        return JSONResponse({"sentence": str(error)}, status, headers)

    @app.exception_handler(Exception)
    async def our_mistake(request: Request, error: Exception) -> JSONResponse:
        return JSONResponse(
            {"sentence": "This is a mistake of the server; its log says more."}, 500
        )

    @app.get("/")
    def page() -> Response:
        return file("index.html")

    @app.get("/page/{name}")
    def file(name: str) -> Response:
        found = _files().get(name)
        if found is None:
            return JSONResponse({"sentence": "There is no such page."}, 404)
        kind = TYPES[name.rpartition(".")[2]]
        return Response(found, media_type=kind, headers={"Cache-Control": "no-cache"})

    @app.get("/api/state")
    def state() -> dict[str, Any]:
        return {**desk.state(), **desk.known.facts()}

    @app.get("/api/events")
    async def events(request: Request) -> StreamingResponse:
        last = request.headers.get("last-event-id") or request.query_params.get("last")
        headers = {"X-Accel-Buffering": "no"}
        return StreamingResponse(
            follow(desk, last), media_type="text/event-stream", headers=headers
        )

    # Collect -------------------------------------------------------------------------------------

    @app.put("/api/class")
    def add_class(task: Word, name: Word) -> dict[str, str]:
        desk.check_free(task)
        stored, made = desk.collection.add_class(task, name)
        return {"task": stored, "name": made}

    @app.patch("/api/class")
    def rename(task: Word, to: Word, name: Maybe = None) -> dict[str, str]:
        desk.check_free(task)
        return {"name": desk.collection.rename(task, name, to)}

    @app.delete("/api/class")
    def remove(task: Word, name: Maybe = None, picture: Maybe = None) -> dict[str, str]:
        desk.check_free(task)
        desk.collection.remove(task, name, picture)
        return {}

    @app.post("/api/picture")
    async def add(request: Request, task: Word, name: Word, said: Word = "The picture") -> Any:
        desk.check_free(task)
        data = await _body(request, desk.collection.limits.picture)
        stored = await run_in_threadpool(desk.collection.add, task, name, data, said)
        return {"picture": stored, "count": len(desk.collection.names(task, name))}

    @app.get("/api/pictures")
    def pictures(task: Word, name: Word) -> list[str]:
        return desk.collection.names(task, name)

    @app.get("/api/picture")
    def thumbnail(task: Word, name: Word, picture: Word) -> Response:
        try:
            small = desk.collection.thumbnail(task, name, picture)
        except (KeyError, OSError):
            return JSONResponse({"sentence": "This picture is not here any more."}, 404)
        return Response(small, media_type="image/png")

    # Train ---------------------------------------------------------------------------------------

    @app.post("/api/training", status_code=202)
    def train(task: Word, minutes: float | None = None) -> dict[str, int]:
        return {"id": desk.train(task, minutes).id}

    @app.delete("/api/training")
    def cancel(number: int) -> dict[str, str]:
        desk.jobs.cancel(number)
        return {}

    # Try, take away, drop ------------------------------------------------------------------------

    @app.post("/api/answer")
    async def answer(
        request: Request, task: Maybe = None, reject: float | None = None, said: Word = "This"
    ) -> Any:
        data = await _body(request, desk.collection.limits.picture)
        return await run_in_threadpool(desk.known.answer, data, said, task or None, reject)

    @app.get("/api/winners")
    def winners(task: Word) -> dict[str, Any]:
        return desk.known.winners(task)

    @app.get("/api/formats")
    def all_formats() -> list[dict[str, Any]]:
        return formats()

    @app.post("/api/ticket")
    def ticket(task: Word, to: Word) -> Response:
        made = desk.package(task, to)
        # A header holds no letters beyond ASCII.
        headers = {"X-Name": quote(made.name), "X-Sentence": quote(made.sentence)}
        return Response(made.data, media_type="application/zip", headers=headers)

    @app.delete("/api/task")
    def drop(task: Word) -> dict[str, list[str]]:
        return {"heirs": desk.drop(task)}

    return app


async def _body(request: Request, most: int) -> bytes:
    """The body, and never more of it in memory than is allowed."""
    stated = request.headers.get("content-length", "")
    if stated.isdecimal() and int(stated) > most:
        raise TooLargeError(too_large(int(stated), most))
    data = bytearray()
    async for part in request.stream():
        data += part
        if len(data) > most:
            raise TooLargeError(too_large(None, most))
    return bytes(data)


@cache
def _files() -> dict[str, bytes]:
    """The page's files, by name: nothing else of the disk can be asked for."""
    folder = resources.files("rivals.web") / "page"
    return {
        each.name: each.read_bytes()
        for each in folder.iterdir()
        if each.name.rpartition(".")[2] in TYPES
    }
