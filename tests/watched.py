"""A small model to watch with, pictures for it, and a real `rivals watch` as a process."""

from __future__ import annotations

import io
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

import rivals

LABELS = ("upright", "level", "none")


def shape(label: str, seed: int = 0) -> np.ndarray:
    """A noisy picture of a bar: upright, level, or none."""
    chance = np.random.default_rng([seed, LABELS.index(label)])
    image = chance.integers(0, 120, (48, 48, 3), dtype=np.uint8)
    place = int(chance.integers(8, 32))
    if label == "upright":
        image[:, place : place + 8] = 240
    elif label == "level":
        image[place : place + 8] = 240
    return image


def shapes(first: int, count: int) -> tuple[np.ndarray, list[str]]:
    labels = [label for _ in range(count) for label in LABELS]
    images = [shape(label, first + number // 3) for number, label in enumerate(labels)]
    return np.stack(images), labels


def png(image: np.ndarray) -> bytes:
    out = io.BytesIO()
    Image.fromarray(image).save(out, "PNG")
    return out.getvalue()


def put(folder: Path, name: str, label: str, seed: int = 1000) -> Path:
    """A picture that is there whole, and was for a while."""
    path = folder / name
    path.write_bytes(png(shape(label, seed)))
    old = time.time() - 60
    os.utime(path, (old, old))
    return path


def teach_shapes(place: Path) -> Path:
    rivals.Model(place).learn(shapes(0, 15), "bars", new=0, ancestor="tiny")
    return place


def until(true: Callable[[], Any], seconds: float = 30.0) -> Any:
    """Wait for something; what it gave."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = true()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError("it did not come")


class Watched:
    """`rivals watch` as a process."""

    def __init__(self, source: Path | str, model: Path, *words: str | Path, **env: str) -> None:
        line = [sys.executable, "-m", "rivals", "watch", str(source), "--model", str(model)]
        self.process = subprocess.Popen(
            [*line, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", **env},
        )  # fmt: skip
        self.lines: queue.Queue[str] = queue.Queue()
        self.errors: list[str] = []
        self._threads = [
            threading.Thread(target=self._read, daemon=True),
            threading.Thread(target=self._read_errors, daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.put(line)

    def _read_errors(self) -> None:
        assert self.process.stderr is not None
        self.errors.extend(self.process.stderr)

    def next(self, seconds: float = 60.0) -> dict[str, Any]:
        """The next line of answers."""
        try:
            found: dict[str, Any] = json.loads(self.lines.get(timeout=seconds))
        except queue.Empty:
            raise AssertionError(f"no answer; {self.errors}") from None
        return found

    def said(self, words: str) -> list[str]:
        return [line for line in self.errors if words in line]

    @property
    def labels_url(self) -> str:
        line = until(lambda: self.said('"labels"'))[0]
        return str(json.loads(line)["labels"])

    def end(self, number: int = signal.SIGTERM) -> int:
        """Ask it to end; its exit status."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            status = self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        for thread in self._threads:
            thread.join(5)
        return status
