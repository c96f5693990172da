"""A real `rivals serve` in a process of its own, and small pictures to teach it."""

from __future__ import annotations

import io
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
from PIL import Image, ImageDraw

from rivals.web.training_job import TrainingJob


class Served:
    """A server of the model in `model`, started now."""

    def __init__(
        self, model: Path, *words: str, env: dict[str, str] | None = None, first: str = ""
    ) -> None:
        """`first` is Python that the process runs before it becomes a server."""
        self.model = model
        begin = f"{first}\nfrom rivals.cli.main import main\nmain()"
        line = [sys.executable, "-c", begin, "serve", "--model", str(model), "--json"]
        line += words if "--port" in words else ["--port", "0", *words]
        self.process = subprocess.Popen(
            line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", **(env or {})},
        )  # fmt: skip
        assert self.process.stdout is not None
        first = self.process.stdout.readline()
        if not first:
            assert self.process.stderr is not None
            raise AssertionError(self.process.stderr.read())
        self.url = str(json.loads(first)["url"])
        self.base = self.url.partition("?")[0]
        self.client = httpx.Client(base_url=self.base, timeout=240)
        assert self.client.get(self.url).status_code == 303  # the token is exchanged for a cookie

    @property
    def cookie(self) -> str:
        """The header of a request that is let in."""
        return "; ".join(f"{name}={value}" for name, value in self.client.cookies.items())

    @property
    def port(self) -> int:
        return int(httpx.URL(self.url).port or 0)

    def ask(
        self, method: str, path: str, body: bytes | None = None, **words: Any
    ) -> httpx.Response:
        params = {key: value for key, value in words.items() if value is not None}
        return self.client.request(method, f"/api/{path}", params=params, content=body)

    def state(self) -> dict[str, Any]:
        told: dict[str, Any] = self.ask("GET", "state").json()
        return told

    def trainings(self) -> list[tuple[str, str]]:
        return [(job["task"], job["state"]) for job in self.state()["trainings"]]

    def end(self) -> None:
        """Leave nothing running, whatever state it is in."""
        if self.process.poll() is None:
            self.kill()
        trainings = self.model.with_name(f"{self.model.name}.collected") / "trainings"
        for place in trainings.glob("*"):
            TrainingJob(place).stop()

    def kill(self) -> None:
        """Without a word, as a loss of power would."""
        self.process.kill()
        self.process.wait()
        self.client.close()

    def stop(self) -> str:
        """As Ctrl-C would; gives what it complained of, which is its log."""
        self.client.close()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        _, errors = self.process.communicate(timeout=240)
        return errors


def until(happened: Callable[[], Any], seconds: float = 240) -> Any:
    """What `happened` gives once it gives something."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = happened()
        if found:
            return found
        time.sleep(0.1)
    raise AssertionError(f"Did not happen within {seconds} s.")


def shape(kind: str, number: int, side: int = 32) -> bytes:
    """A circle or a cross somewhere on paper, as a PNG."""
    chance = random.Random(f"{kind}{number}")
    paper = Image.new("RGB", (side, side), "white")
    ink = ImageDraw.Draw(paper)
    size = chance.uniform(0.5, 0.8) * side
    x, y = (chance.uniform(1, side - size - 1) for _ in "xy")
    if kind == "circle":
        ink.ellipse((x, y, x + size, y + size), fill="black")
    else:
        ink.line((x, y, x + size, y + size), fill="red", width=3)
        ink.line((x + size, y, x, y + size), fill="red", width=3)
    out = io.BytesIO()
    paper.save(out, "PNG")
    return out.getvalue()


def fill(folder: Path, pictures: int = 6) -> Path:
    """A folder with a folder for each class."""
    for kind in ("circle", "cross"):
        (folder / kind).mkdir(parents=True)
        for number in range(pictures):
            (folder / kind / f"{number}.png").write_bytes(shape(kind, number))
    return folder


def collect(server: Served, task: str, pictures: int = 6) -> None:
    """The same through the server."""
    for kind in ("circle", "cross"):
        assert server.ask("PUT", "class", task=task, name=kind).status_code == 200
        for number in range(pictures):
            body = shape(kind, number)
            answer = server.ask("POST", "picture", body, task=task, name=kind, filename="one")
            assert answer.status_code == 200, answer.text
