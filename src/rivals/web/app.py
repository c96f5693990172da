"""The routes. Arguments come in the query; a body, where there is one, is a picture."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import Iterator
from functools import cache
from importlib import resources
from typing import IO, Annotated, Any
from urllib.parse import quote

from fastapi import FastAPI, Query, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect

from rivals.errors import RivalsError
from rivals.io.locks import BusyError
from rivals.io.reading import UnreadableError, printable
from rivals.web import project as project_file
from rivals.web.collection import too_large
from rivals.web.downloads import download_formats
from rivals.web.service import Service
from rivals.web.web_events import follow

TYPES = {"html": "text/html; charset=utf-8", "css": "text/css; charset=utf-8",
         "js": "text/javascript; charset=utf-8", "svg": "image/svg+xml"}  # fmt: skip
Text = Annotated[str, Query(max_length=400)]
OptionalText = Annotated[str | None, Query(max_length=400)]
CHUNK = 2**18  # bytes of a download that are in memory
EXPLAINED = ("label", "task", "probability", "part", "without", "instead", "verdict")
AT_ONCE = 8  # pictures in memory; the requests of others wait, and their bodies with them


class TooLargeError(RivalsError):
    """The request body is larger than a picture may be."""


def make_app(service: Service) -> FastAPI:
    """The page and its API. `Guard` decides who may use them."""

    app = FastAPI(title="rivals", docs_url=None, redoc_url=None, openapi_url=None)
    formats = cache(download_formats)
    places = asyncio.Semaphore(AT_ONCE)
    projects = threading.Lock()

    @app.exception_handler(RivalsError)
    async def user_error(request: Request, error: RivalsError) -> JSONResponse:
        status = {BusyError: 409, TooLargeError: 413}.get(type(error), 400)
        # The rest of a body that is too large is not read.
        headers = {"Connection": "close"} if status == 413 else None
        return JSONResponse({"message": str(error)}, status, headers)

    @app.exception_handler(Exception)
    async def server_error(request: Request, error: Exception) -> JSONResponse:
        return JSONResponse({"message": "The server has failed; see its log."}, 500)

    @app.get("/")
    def page() -> Response:
        return file("index.html")

    @app.get("/page/{name}")
    def file(name: str) -> Response:
        content = _files().get(name)
        if content is None:
            return JSONResponse({"message": "There is no such page."}, 404)
        kind = TYPES[name.rpartition(".")[2]]
        return Response(content, media_type=kind, headers={"Cache-Control": "no-cache"})

    @app.get("/api/state")
    def state() -> dict[str, Any]:
        return {**service.state(), **service.open_model.facts()}

    @app.get("/api/events")
    async def events(request: Request) -> StreamingResponse:
        last = request.headers.get("last-event-id") or request.query_params.get("last")
        headers = {"X-Accel-Buffering": "no"}
        return StreamingResponse(
            follow(service, last), media_type="text/event-stream", headers=headers
        )

    # Collect -------------------------------------------------------------------------------------

    @app.put("/api/class")
    def add_class(task: Text, name: Text) -> dict[str, str]:
        service.check_free(task)
        stored, made = service.collection.add_class(task, name)
        return {"task": stored, "name": made}

    @app.patch("/api/class")
    def rename(task: Text, to: Text, name: OptionalText = None) -> dict[str, str]:
        service.check_free(task)
        return {"name": service.collection.rename(task, name, to)}

    @app.delete("/api/class")
    def remove(
        task: Text, name: OptionalText = None, picture: OptionalText = None
    ) -> dict[str, str]:
        service.check_free(task)
        service.collection.remove(task, name, picture)
        return {}

    @app.post("/api/picture")
    async def add_picture(
        request: Request, task: Text, name: Text, filename: Text = "The picture"
    ) -> Any:
        service.check_free(task)
        async with places:
            data = await _body(request, service.collection.limits.picture_bytes)
            shown = printable(filename)
            stored = await run_in_threadpool(service.collection.add, task, name, data, shown)
        return {"picture": stored, "count": len(service.collection.names(task, name))}

    @app.get("/api/pictures")
    def pictures(task: Text, name: Text) -> list[str]:
        return service.collection.names(task, name)

    @app.get("/api/picture")
    def thumbnail(task: Text, name: Text, picture: Text) -> Response:
        try:
            small = service.collection.thumbnail(task, name, picture)
        except (KeyError, UnreadableError):
            return JSONResponse({"message": "This picture was removed."}, 404)
        return Response(small, media_type="image/png")

    @app.patch("/api/picture")
    def move_picture(task: Text, name: Text, picture: Text, to: Text) -> dict[str, str]:
        service.check_free(task)
        service.collection.move(task, name, picture, to)
        return {}

    @app.post("/api/sample")
    def sample(task: Text) -> dict[str, str]:
        service.check_free(task)
        return {"task": service.add_sample(task)}

    @app.get("/api/project")
    def project() -> Response:
        with one_project(projects), project_file.disk_in_words():
            out = project_file.temporary(service.folder)
            project_file.pack(service.collection, service.model, out)
            size = out.tell()
            out.seek(0)
        name = quote(f"{service.model.name}-project.zip")
        headers = {
            "Content-Disposition": f"attachment; filename*=UTF-8''{name}",
            "Content-Length": str(size),
        }
        return StreamingResponse(_chunks(out), media_type="application/zip", headers=headers)

    @app.post("/api/project")
    async def open_project(request: Request) -> dict[str, Any]:
        most = project_file.most_bytes(service.collection.limits)
        with (
            one_project(projects),
            project_file.disk_in_words(),
            project_file.temporary(service.folder) as file,
        ):
            await _body_to_disk(request, most, file)
            opened = await run_in_threadpool(
                project_file.unpack, service.collection, service.model, file
            )
        found = [place for place in service.collection.places() if place[0] in opened.tasks]
        return {**opened.to_dict(), "pictures": len(found)}

    # Train ---------------------------------------------------------------------------------------

    @app.post("/api/training", status_code=202)
    def train(task: Text, minutes: float | None = None, anew: bool = False) -> dict[str, int]:
        return {"id": service.train(task, minutes, anew).id}

    @app.delete("/api/training")
    def cancel(number: int) -> dict[str, str]:
        service.jobs.cancel(number)
        return {}

    # Try, download, drop ------------------------------------------------------------------------

    @app.post("/api/answer")
    async def answer(
        request: Request,
        task: OptionalText = None,
        reject: float | None = None,
        filename: Text = "The picture",
        stream: OptionalText = None,
    ) -> Any:
        async with places:
            data = await _body(request, service.collection.limits.picture_bytes)
            shown = printable(filename)
            return await run_in_threadpool(
                service.open_model.answer, data, shown, task or None, reject, stream
            )

    @app.post("/api/explanation")
    async def explanation(
        request: Request, task: OptionalText = None, filename: Text = "The picture"
    ) -> Response:
        """The heat map as a PNG; what it says is in a header."""
        async with places:
            data = await _body(request, service.collection.limits.picture_bytes)
            explain = service.open_model.explain
            found = await run_in_threadpool(explain, data, printable(filename), task or None)
            picture = await run_in_threadpool(found.png)
        told = {key: value for key, value in found.to_dict().items() if key in EXPLAINED}
        headers = {"X-Explanation": quote(json.dumps(told))}  # headers are ASCII
        return Response(picture, media_type="image/png", headers=headers)

    @app.get("/api/winners")
    def winners(task: Text) -> dict[str, Any]:
        return service.open_model.winners(task)

    @app.get("/api/formats")
    def all_formats() -> list[dict[str, Any]]:
        return formats()

    @app.post("/api/ticket")
    def ticket(task: Text, to: Text) -> Response:
        made = service.package(task, to)
        # Headers are ASCII.
        headers = {"X-Filename": quote(made.filename), "X-Summary": quote(made.summary)}
        headers["X-Compared"] = quote(json.dumps(made.compared))
        return Response(made.data, media_type="application/zip", headers=headers)

    @app.delete("/api/task")
    def drop(task: Text) -> dict[str, list[str]]:
        return {"heirs": service.drop(task)}

    @app.post("/api/undo")
    def undo() -> dict[str, str]:
        return {"task": service.undo_drop()}

    @app.delete("/api/undo")
    def forget_drop() -> dict[str, str]:
        service.last_drop.forget()
        return {}

    return app


@contextlib.contextmanager
def one_project(lock: threading.Lock) -> Iterator[None]:
    """Projects are large, so only one is read or written at a time; others are not kept waiting."""
    if not lock.acquire(blocking=False):
        raise BusyError("Another project is being opened or downloaded; try again after it.")
    try:
        yield
    finally:
        lock.release()


def _chunks(file: IO[bytes]) -> Iterator[bytes]:
    with file:
        while data := file.read(CHUNK):
            yield data


async def _body_to_disk(request: Request, limit: int, file: IO[bytes]) -> None:
    """Write the body to a file; never more than `limit` bytes of it."""
    stated = request.headers.get("content-length", "")
    message = f"A project has at most {limit / 2**20:,.0f} MB; this file has more."
    if stated.isdecimal() and int(stated) > limit:
        raise TooLargeError(message)
    try:
        async for part in request.stream():
            if file.tell() + len(part) > limit:
                raise TooLargeError(message)
            await run_in_threadpool(file.write, part)
    except ClientDisconnect as error:
        raise RivalsError("The connection ended before the project was there.") from error


async def _body(request: Request, limit: int) -> bytes:
    """The body; never more than `limit` bytes of it are in memory."""
    stated = request.headers.get("content-length", "")
    if stated.isdecimal() and int(stated) > limit:
        raise TooLargeError(too_large(int(stated), limit))
    data = bytearray()
    try:
        async for part in request.stream():
            data += part
            if len(data) > limit:
                raise TooLargeError(too_large(None, limit))
    except ClientDisconnect as error:  # nobody reads this; it ends the request without a traceback
        raise RivalsError("The connection ended before the picture was there.") from error
    return bytes(data)


@cache
def _files() -> dict[str, bytes]:
    """The files of the page by name; no other file can be requested."""
    folder = resources.files("rivals.web") / "page"
    return {
        each.name: each.read_bytes()
        for each in folder.iterdir()
        if each.name.rpartition(".")[2] in TYPES
    }
