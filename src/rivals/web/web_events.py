"""What the page is told as it happens, as server-sent events.

model      what was learned; whenever the model changes
state      pictures and trainings; whenever something of it changes
training   a line of the training that runs, or of the last that ended; its id is `job:offset`

A page that lost its connection says the last id and goes on from there; a fresh one gets the past
in few words.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.concurrency import run_in_threadpool

from rivals.web.training_job import event_of

if TYPE_CHECKING:
    from rivals.web.service import Service

PAUSE = 0.15  # seconds between two looks
SILENCE = 15.0  # seconds after which a comment keeps the connection open
SHOWN = 60  # steps of the past that are told

Line = tuple[int, dict[str, Any]]  # the offset after it, the event


def lines_after(path: Path, offset: int) -> tuple[list[Line], int]:
    """Whole lines from `offset` on, and the offset after them."""
    try:
        with path.open("rb") as file:
            file.seek(offset)
            data = file.read()
    except FileNotFoundError:
        return [], offset
    found: list[Line] = []
    for line in data.splitlines(keepends=True):
        if not line.endswith(b"\n"):
            break
        offset += len(line)
        event = event_of(line)
        if event is not None:
            found.append((offset, event))
    return found, offset


def in_few_words(lines: list[Line]) -> list[Line]:
    """The past: everything but steps, few of those, and winners with the last of them only."""
    steps = [number for number, (_, event) in enumerate(lines) if event["event"] == "step"]
    shown = set(steps[:: -(-len(steps) // SHOWN)] if steps else [])
    told: list[Line] = []
    for number, (offset, event) in enumerate(lines):
        if event["event"] != "step" or (steps and number == steps[-1]):
            told.append((offset, event))
        elif number in shown:
            told.append((offset, {k: v for k, v in event.items() if k != "winners"}))
    return told


def position_of(last: str | None) -> tuple[int, int]:
    """The job and the offset that a page has seen; (0, 0) if it has seen nothing."""
    job, _, offset = (last or "").partition(":")
    if job.isdecimal() and offset.isdecimal() and len(last or "") < 40:
        return int(job), int(offset)
    return 0, 0


def message(kind: str, data: Any, number: str | None = None) -> str:
    head = f"id: {number}\n" if number else ""
    return f"{head}event: {kind}\ndata: {json.dumps(data, separators=(',', ':'))}\n\n"


def _training(job: int, line: Line) -> str:
    offset, event = line
    return message("training", {"job": job, **event}, f"{job}:{offset}")


async def read(path: Path, offset: int) -> tuple[list[Line], int]:
    return await run_in_threadpool(lines_after, path, offset)


async def follow(desk: Service, last: str | None) -> AsyncIterator[str]:
    """Everything that happens, until the server ends or the page goes."""
    learned: Any = "unknown"
    seen: Any = None
    number, offset = position_of(last)
    quiet = 0.0
    yield "retry: 1000\n\n"
    while not desk.closing.is_set():
        told: list[str] = []
        stamp, version = desk.known.stamp(), desk.version()
        if stamp != learned:
            learned = stamp
            told.append(message("model", await run_in_threadpool(desk.known.facts)))
        if version != seen:
            seen = version
            told.append(message("state", await run_in_threadpool(desk.state)))
        job = desk.jobs.current()
        if job is not None:
            if number:  # also what the last one said before another began
                lines, offset = await read(desk.jobs.events(number), offset)
                told += [_training(number, line) for line in lines]
            if job.id != number:
                number = job.id
                lines, offset = await read(desk.jobs.events(number), 0)
                told += [_training(number, line) for line in in_few_words(lines)]
        for text in told:
            yield text
        quiet = 0.0 if told else quiet + PAUSE
        if quiet > SILENCE:
            quiet = 0.0
            yield ": still here\n\n"
        await asyncio.sleep(PAUSE)
