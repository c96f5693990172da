"""Server-sent events for the page.

model      facts of the model, whenever it changes
state      pictures and trainings, whenever they change
training   an event of the running or last training; its id is `job:offset`

A page that lost its connection sends the last id and continues from there. A new page gets a
shortened history.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.concurrency import run_in_threadpool

from rivals.io.files import open_plain
from rivals.web.open_model import accuracy_interval
from rivals.web.training_job import event_of

if TYPE_CHECKING:
    from rivals.web.service import Service

INTERVAL = 0.15  # seconds between two checks for changes
KEEP_ALIVE = 15.0  # seconds without events after which a comment is sent
MAX_STEPS = 60  # step events in a shortened history
OF_UNITS = ("winners", "posteriors")  # the large parts of a step event
MAX_READ = 16 * 2**20  # bytes of events that are read at once

Line = tuple[int, dict[str, Any]]  # the offset after it, the event


def lines_after(path: Path, offset: int) -> tuple[list[Line], int]:
    """The events on complete lines from `offset` on, and the offset after them."""
    try:
        with open_plain(path, "rb") as file:
            file.seek(offset)
            data = file.read(MAX_READ)
    except OSError:
        return [], offset
    if len(data) == MAX_READ and b"\n" not in data:
        return [], offset + len(data)  # no event is as long as that
    found: list[Line] = []
    for line in data.splitlines(keepends=True):
        if not line.endswith(b"\n"):
            break
        offset += len(line)
        event = event_of(line)
        if event is not None:
            found.append((offset, event))
    return found, offset


def shortened(lines: list[Line]) -> list[Line]:
    """All events except most of the steps; only the last step keeps what its units do."""
    steps = [number for number, (_, event) in enumerate(lines) if event["event"] == "step"]
    chosen = set(steps[:: -(-len(steps) // MAX_STEPS)] if steps else [])
    history: list[Line] = []
    for number, (offset, event) in enumerate(lines):
        if event["event"] != "step" or (steps and number == steps[-1]):
            history.append((offset, event))
        elif number in chosen:
            history.append((offset, {k: v for k, v in event.items() if k not in OF_UNITS}))
    return history


def position_of(last: str | None) -> tuple[int, int]:
    """The job and the offset in an event id; (0, 0) if there is none."""
    job, _, offset = (last or "").partition(":")
    if job.isdecimal() and offset.isdecimal() and len(last or "") < 40:
        return int(job), int(offset)
    return 0, 0


def sse(kind: str, data: Any, number: str | None = None) -> str:
    """One server-sent event as text."""
    head = f"id: {number}\n" if number else ""
    return f"{head}event: {kind}\ndata: {json.dumps(data, separators=(',', ':'))}\n\n"


def training_text(job: int, line: Line) -> str:
    """An event of a training; a held-out accuracy gets its 95 % interval."""
    offset, event = line
    accuracy: Any = event.get("accuracy")
    held: Any = event.get("held")
    known = isinstance(accuracy, int | float) and isinstance(held, int)
    if event["event"] == "validation" and known and 0 <= accuracy <= 100 and 0 <= held < 2**31:
        event = {**event, "interval": accuracy_interval(accuracy, held)}
    return sse("training", {"job": job, **event}, f"{job}:{offset}")


async def read(path: Path, offset: int) -> tuple[list[Line], int]:
    return await run_in_threadpool(lines_after, path, offset)


async def follow(service: Service, last: str | None) -> AsyncIterator[str]:
    """All events, until the server stops or the page disconnects."""
    model_sent: Any = "nothing"
    state_sent: Any = None
    number, offset = position_of(last)
    quiet = 0.0  # seconds since the last event
    yield "retry: 1000\n\n"
    while not service.closing.is_set():
        texts: list[str] = []
        stamp, version = service.open_model.stamp(), service.version()
        if stamp != model_sent:
            model_sent = stamp
            texts.append(sse("model", await run_in_threadpool(service.open_model.facts)))
        if version != state_sent:
            state_sent = version
            texts.append(sse("state", await run_in_threadpool(service.state)))
        job = service.jobs.current()
        if job is not None:
            if number:  # also the last events of one that has ended
                lines, offset = await read(service.jobs.events(number), offset)
                texts += [training_text(number, line) for line in lines]
            if job.id != number:
                number = job.id
                lines, offset = await read(service.jobs.events(number), 0)
                texts += [training_text(number, line) for line in shortened(lines)]
        for text in texts:
            yield text
        quiet = 0.0 if texts else quiet + INTERVAL
        if quiet > KEEP_ALIVE:
            quiet = 0.0
            yield ": still here\n\n"
        await asyncio.sleep(INTERVAL)
