"""Suite `serve`: predictions of a real `rivals serve` for one client, for many, and all at once.

The server is a process of its own with one thread for torch; the clients are in this process, keep
their connections and send the next picture when they have an answer. Times are those of the clock.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from PIL import Image

from rivals.errors import RivalsError
from rivals.experiment.bench.bench_row import Row, at_most
from rivals.experiment.bench.bench_sizes import Sizes
from rivals.io.process_memory import memory_of

CLIENTS_OF_MEMORY = 8  # that send the predictions over which memory is measured
SECONDS = 600.0  # after which a client gives up
PICTURES = 8  # of each class that the model learns


def missing() -> list[str]:
    """The packages of the extra [web] that are not installed."""
    return [name for name in ("fastapi", "uvicorn") if find_spec(name) is None]


def rows(sizes: Sizes, repeat: int) -> Iterator[Row]:
    if missing():
        raise RivalsError(
            f"The suite serve needs {' and '.join(missing())}, not installed here; "
            "run pip install 'rivals[web]'."
        )
    with tempfile.TemporaryDirectory() as folder, served(learned(Path(folder), sizes)) as server:
        picture = noise(sizes.side, 0)
        server.load(picture, 1, 20)  # the first one opens the model
        for clients in sizes.serve_clients:
            yield from rate_rows(server.load(picture, clients, sizes.serve_requests), clients)
        yield from memory_rows(server, picture, sizes)
        yield from burst_rows(server, picture, sizes.serve_burst)


def rate_rows(load: Load, clients: int) -> Iterator[Row]:
    many = f"{clients} client{'' if clients == 1 else 's'}"
    how = f"{len(load.seconds):,} predictions for {many}, {load.refused} refused"
    yield Row(f"serve-rate-{clients}", load.rate, "a second", None, how)
    for percent in (50, 99):
        value = 1000 * load.percentile(percent)
        yield Row(f"serve-p{percent}-{clients}", value, "ms", None, f"{how}; {percent} % of them")


def memory_rows(server: LoadedServer, picture: bytes, sizes: Sizes) -> Iterator[Row]:
    """What the server occupies after very many predictions, against what it did before."""
    before = memory_of(server.process.pid)
    load = server.load(picture, CLIENTS_OF_MEMORY, sizes.serve_predictions)
    after = memory_of(server.process.pid)
    if before and after:  # known on Linux only
        yield Row(
            "serve-memory", after / before, "× before", at_most(1.05),
            f"{len(load.seconds):,} predictions for {CLIENTS_OF_MEMORY} clients: the server "
            f"occupies {after / 1e6:.0f} MB, before {before / 1e6:.0f} MB",
        )  # fmt: skip


def burst_rows(server: LoadedServer, picture: bytes, clients: int) -> Iterator[Row]:
    """All connect and ask at the same moment; nobody is turned away."""
    load = server.load(picture, clients, clients)
    how = f"{clients} clients connect and ask at once, once each"
    yield Row("serve-burst", max(load.seconds), "s", at_most(10), f"{how}: the slowest answer")
    yield Row("serve-burst-refused", load.refused, "refused", at_most(0), how)


@dataclass
class Load:
    """What clients saw: the seconds of every request, and how many were not answered with 200."""

    seconds: list[float] = field(default_factory=list)
    refused: int = 0
    total: float = 0.0  # seconds from the first request to the last answer

    @property
    def rate(self) -> float:
        return len(self.seconds) / self.total

    def percentile(self, percent: int) -> float:
        if len(self.seconds) < 2:
            return self.seconds[0]
        return statistics.quantiles(self.seconds, n=100, method="inclusive")[percent - 1]


@dataclass(frozen=True)
class LoadedServer:
    """A server process and where it listens."""

    process: subprocess.Popen[str]
    host: str
    port: int
    cookie: str

    def load(self, picture: bytes, clients: int, requests: int) -> Load:
        """So many requests by so many clients."""
        return asyncio.run(self._load(picture, clients, requests))

    async def _load(self, picture: bytes, clients: int, requests: int) -> Load:
        found, left = Load(), iter(range(requests))
        request = self.head("POST", "/api/answer", len(picture)) + picture
        start = time.perf_counter()
        await asyncio.gather(*(self._client(request, left, found) for _ in range(clients)))
        found.total = time.perf_counter() - start
        return found

    async def _client(self, request: bytes, left: Iterator[int], found: Load) -> None:
        """Send requests as long as any are left."""
        start = time.perf_counter()  # the first answer takes as long as it takes to connect
        reader, writer = await asyncio.open_connection(self.host, self.port)
        for _ in left:
            writer.write(request)
            status = await asyncio.wait_for(answer(reader), SECONDS)
            found.seconds.append(time.perf_counter() - start)
            found.refused += status != 200
            start = time.perf_counter()
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()

    def head(self, method: str, path: str, length: int = 0) -> bytes:
        return request_head(f"{self.host}:{self.port}", method, path, length, self.cookie)


def request_head(host: str, method: str, path: str, length: int = 0, cookie: str = "") -> bytes:
    lines = f"{method} {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {length}\r\n"
    return f"{lines}Cookie: {cookie}\r\n\r\n".encode()


async def answer(reader: asyncio.StreamReader) -> int:
    """Read an answer to its end; returns its status, 0 if the server hung up."""
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = int(head.partition(b"content-length:")[2].split(b"\r\n")[0])
        await reader.readexactly(length)
    except (OSError, EOFError):
        return 0
    return int(head.split()[1])


@contextlib.contextmanager
def served(model: Path) -> Iterator[LoadedServer]:
    """A server of the model, which ends with the block."""
    words = ["serve", "--model", str(model), "--port", "0", "--json"]
    process = subprocess.Popen(
        [sys.executable, "-m", "rivals.cli.main", *words], stdout=subprocess.PIPE, text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    try:
        assert process.stdout is not None
        first = process.stdout.readline()
        if not first:
            raise RivalsError(f"The server that is measured ended with {process.wait()}.")
        address, _, query = json.loads(first)["url"].removeprefix("http://").partition("/")
        host, _, port = address.rpartition(":")
        cookie = asyncio.run(let_in(host, int(port), f"/{query}"))
        yield LoadedServer(process, host, int(port), cookie)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


async def let_in(host: str, port: int, path: str) -> str:
    """Exchange the token for a cookie."""
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(request_head(f"{host}:{port}", "GET", path))
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    writer.close()
    lines = (line.partition(": ") for line in head.split("\r\n"))
    return next(value.split(";")[0] for key, _, value in lines if key.lower() == "set-cookie")


def learned(folder: Path, sizes: Sizes) -> Path:
    """A model of one small task of noise, learned by the command line."""
    for label in range(2):
        place = folder / "pictures" / f"class {label}"
        place.mkdir(parents=True)
        for number in range(PICTURES):
            (place / f"{number}.png").write_bytes(noise(sizes.side, label * PICTURES + number))
    model = folder / "model"
    words = ["learn", str(folder / "pictures"), "--model", str(model), "--epochs", "1", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "rivals.cli.main", *words], capture_output=True, text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"}, check=False,
    )  # fmt: skip
    if done.returncode:
        raise RivalsError(f"The model to serve could not be learned: {done.stderr.strip()}")
    return model


def noise(side: int, number: int) -> bytes:
    """A PNG of random pixels, the same for the same number."""
    pixels = np.random.default_rng(number).integers(0, 256, (side, side, 3), np.uint8)
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "PNG")
    return out.getvalue()
