"""`rivals serve` against hostile clients and folders: real processes, sockets and files."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote

import pytest

from rivals.errors import RivalsError
from rivals.web.collection import Collection
from rivals.web.jobs import Jobs
from rivals.web.training_job import TrainingJob
from served import Served, fill, shape, until
from test_pictures_memory import png

pytest.importorskip("fastapi", reason="fastapi is not installed: rivals[web]")
pytest.importorskip("uvicorn", reason="uvicorn is not installed: rivals[web]")

Serve = Callable[..., Served]
QUICK = """
from rivals.web import connections
connections.HEAD_SECONDS = connections.BODY_SECONDS = connections.INTERVAL = 0.5
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    served = Served(tmp_path_factory.mktemp("served") / "model")
    yield served
    assert served.stop() == ""


def connect(server: Served, sent: str) -> socket.socket:
    """A connection on which `sent` was sent, with what every request needs."""
    raw = socket.create_connection(("127.0.0.1", server.port), timeout=10)
    raw.sendall(sent.format(host=f"Host: 127.0.0.1:{server.port}\r\n").encode())
    return raw


def is_open(raw: socket.socket) -> bool:
    """Whether the server has neither answered nor hung up."""
    raw.setblocking(False)
    try:
        return raw.recv(1, socket.MSG_PEEK) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


def seconds(server: Served) -> float:
    """How long a usual client, who connects anew, waits for its answer."""
    start = time.monotonic()
    with connect(
        server, f"GET /api/state HTTP/1.1\r\n{{host}}Cookie: {server.cookie}\r\n\r\n"
    ) as raw:
        assert raw.recv(100).startswith(b"HTTP/1.1 200")
    return time.monotonic() - start


# Half of a request --------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [200, 600], ids=["200", "more-than-are-allowed"])
def test_half_sent_requests_keep_nobody_out(server: Served, count: int) -> None:
    server.state()
    with contextlib.ExitStack() as stack:
        halves = [
            stack.enter_context(connect(server, "GET / HTTP/1.1\r\n{host}")) for _ in range(count)
        ]
        assert max(seconds(server) for _ in range(5)) < 2
        left = sum(is_open(raw) for raw in halves)
        assert left == 200 if count == 200 else 100 < left <= 256
        assert is_open(halves[-1])  # those that waited longest were closed
        assert is_open(halves[0]) == (count == 200)


def test_whoever_sends_slowly_is_cut_off(serve: Serve, tmp_path: Path) -> None:
    """No head, half a head, a slow body, one behind another request; but not whoever goes on."""
    server = serve(tmp_path / "model", first=QUICK)
    server.ask("PUT", "class", task="slow", name="a")
    let_in = f"Cookie: {server.cookie}\r\n"
    post = f"POST /api/picture?task=slow&name=a HTTP/1.1\r\n{{host}}{let_in}"
    get = f"GET /api/state HTTP/1.1\r\n{{host}}{let_in}\r\n"
    sent = {
        "nothing": "",
        "half a head": "GET / HTTP/1.1\r\n{host}",
        "a byte a second": f"{post}Content-Length: 5000000\r\n\r\n",
        "in parts": f"{post}Transfer-Encoding: chunked\r\n\r\n",
        "behind another": f"{get}GET / HTTP/1.1\r\n",
    }
    start = time.monotonic()
    slow = {name: connect(server, text) for name, text in sent.items()}
    stranger = connect(server, "POST /api/answer HTTP/1.1\r\n{host}Content-Length: 5000000\r\n\r\n")
    assert stranger.recv(100).startswith(b"HTTP/1.1 401")  # before the body is there
    assert b"200 OK" in slow["behind another"].recv(100)
    steady = connect(server, f"{post}Content-Length: 150000\r\n\r\n")
    for _ in range(10):  # twice as long as the deadline, but 100 KB a second
        steady.setblocking(True)
        steady.sendall(bytes(15_000))
        for name in ("a byte a second", "in parts", "half a head"):
            with contextlib.suppress(OSError):
                slow[name].sendall(b"x" if name != "in parts" else b"1\r\nx\r\n")
        time.sleep(0.15)
    assert steady.recv(100).startswith(b"HTTP/1.1 400")  # it is no picture, but it was read

    def cut(raw: socket.socket) -> bool:
        with contextlib.suppress(BlockingIOError, ConnectionError):
            raw.setblocking(False)
            while raw.recv(1000):
                pass
        return not is_open(raw)

    for raw in slow.values():
        until(lambda raw=raw: cut(raw), 10)
    assert time.monotonic() - start < 8
    for raw in (*slow.values(), steady, stranger):
        raw.close()
    assert server.state()["collected"][0]["classes"][0]["count"] == 0
    assert server.stop() == ""  # a client that is gone is nothing to write into a log


def test_two_hundred_at_once_are_all_answered(server: Served) -> None:
    request = f"GET /api/state HTTP/1.1\r\n{{host}}Cookie: {server.cookie}\r\n"
    clients = [connect(server, request) for _ in range(200)]
    start = time.monotonic()
    for raw in clients:
        raw.sendall(b"\r\n")
    answers = [raw.recv(20) for raw in clients]
    assert all(answer.startswith(b"HTTP/1.1 200") for answer in answers)
    assert time.monotonic() - start < 10
    for raw in clients:
        raw.close()


# Memory -------------------------------------------------------------------------------------------


def memory(server: Served, field: str) -> int:
    """MB of the server's process: its peak (VmHWM) or what it has now (VmRSS)."""
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(re.search(rf"{field}:\s+(\d+)", status)[1]) // 1024


def test_eight_heavy_uploads_at_once(
    serve: Serve, tmp_path: Path, accepted: Callable[..., str]
) -> None:
    """With torch and a model in memory: below 600 MB, and afterwards as before."""
    folder = fill(tmp_path / "shapes", 3)
    accepted("learn", folder, "--model", tmp_path / "model", "--epochs", "1", "--json")
    server = serve(tmp_path / "model")
    server.ask("PUT", "class", task="heavy", name="a")
    assert server.ask("POST", "answer", shape("circle", 0)).status_code == 200
    before = memory(server, "VmRSS")
    heavy = png(7070, 7070, 2, 3)
    pictures = [heavy + bytes(number) for number in range(4)]

    def upload(number: int) -> int:
        if number % 2:
            return server.ask("POST", "answer", pictures[number // 2]).status_code
        answer = server.ask("POST", "picture", pictures[number // 2], task="heavy", name="a")
        return answer.status_code

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(upload, range(8))) == [200] * 8
    for picture in server.ask("GET", "pictures", task="heavy", name="a").json():
        shown = server.ask("GET", "picture", task="heavy", name="a", picture=picture)
        assert shown.status_code == 200
    assert memory(server, "VmHWM") < 600
    assert memory(server, "VmRSS") < before + 80
    assert server.stop() == ""


# Folders from elsewhere ---------------------------------------------------------------------------


def test_links_and_pipes_in_the_folder_of_a_server(serve: Serve, tmp_path: Path) -> None:
    """A foreign `model.collected`: nothing outside is read, changed or deleted; nothing blocks."""
    victim = fill(tmp_path / "victim", 2)
    kept = {path: path.read_bytes() for path in victim.rglob("*.png")}
    secret = tmp_path / "secret"
    secret.write_text("kept")
    pictures = tmp_path / "model.collected" / "pictures"
    (pictures / "good" / "a").mkdir(parents=True)
    (pictures / "good" / "a" / "one.png").write_bytes(shape("circle", 0))
    (pictures / "linked").symlink_to(victim)
    (pictures / "good" / "linked").symlink_to(victim / "circle")
    (pictures / "good" / "a" / "linked.png").symlink_to(victim / "circle" / "0.png")
    (pictures / "-rf").mkdir()
    (pictures / "\x1b[2J").mkdir()
    os.mkfifo(pictures / "good" / "a" / "pipe.png")
    jobs = tmp_path / "model.collected" / "trainings"
    for number, name in enumerate(("stderr", "events.jsonl", "process", "alive"), start=1):
        place = jobs / f"{number:06d}"
        place.mkdir(parents=True)
        job = {"id": number, "task": "good", "state": "queued"}
        (place / "job.json").write_text(json.dumps(job))
        (place / name).symlink_to(secret)
    (jobs / "000005").mkdir()
    os.mkfifo(jobs / "000005" / "job.json")
    (jobs / "000006").symlink_to(jobs / "000001")
    server = serve(tmp_path / "model")
    state = server.state()
    listed = [{"name": "a", "count": 1, "newest": ["one.png"]}]
    assert state["collected"] == [{"task": "good", "edited": False, "classes": listed}]
    assert state["trainings"] == []
    for words in ({"task": "linked"}, {"task": "good", "name": "linked"}, {"task": "good"}):
        assert server.ask("DELETE", "class", **words).status_code == 200
    linked = server.ask("PUT", "class", task="linked", name="new")
    assert "it is a link" in linked.json()["message"]
    assert server.stop() == ""
    assert {path: path.read_bytes() for path in victim.rglob("*.png")} == kept
    assert not (victim / "new").exists()
    assert secret.read_text() == "kept"


@pytest.mark.parametrize("part", ["model.collected", "model.collected/pictures"])
def test_a_folder_of_the_server_that_is_a_link(
    part: str, tmp_path: Path, refused: Callable[..., str]
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / part).parent.mkdir(exist_ok=True)
    (tmp_path / part).symlink_to(tmp_path / "elsewhere")
    assert "it is a link" in refused("serve", "--model", tmp_path / "model", "--port", "0")
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.parametrize(
    "job",
    [
        {"id": 2}, {"id": "1"}, {"id": True}, {"task": 3}, {"task": "../x"}, {"task": "--json"},
        {"state": "odd"}, {"minutes": "1"}, {"minutes": -1}, {"attempts": None}, {"message": []},
        {"again": 1}, {"more": 1},
    ],
    ids=str,
)  # fmt: skip
def test_jobs_that_no_server_wrote(job: dict[str, object], tmp_path: Path) -> None:
    place = tmp_path / "000001"
    place.mkdir()
    for changes, found in (({}, 1), (job, 0)):
        facts = {"id": 1, "task": "a", "state": "done", **changes}
        (place / "job.json").write_text(json.dumps(facts))
        assert len(Jobs(tmp_path, lambda job: [], lambda job: True).jobs) == found
    for text in ("[" * 100_000, " " * 10**6, "[]", "{"):
        (place / "job.json").write_text(text)
        assert Jobs(tmp_path, lambda job: [], lambda job: True).jobs == {}


def test_a_number_that_stands_for_every_process_is_not_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fcntl

    killed: list[int] = []
    monkeypatch.setattr(os, "kill", lambda process, sign: killed.append(process))
    monkeypatch.setattr("rivals.web.training_job.GRACE", 0.1)
    with (tmp_path / "alive").open("w") as alive:
        fcntl.flock(alive, fcntl.LOCK_EX)
        for text, found in (("-1", []), ("0", []), ("1", []), ("4" * 19, [int("4" * 19)] * 2)):
            (tmp_path / "process").write_text(text)
            TrainingJob(tmp_path).stop()
            assert killed == found
        (tmp_path / "alive").rename(tmp_path / "other")
        (tmp_path / "alive").symlink_to(tmp_path / "other")  # a lock of another program
        assert not TrainingJob(tmp_path).alive()


@pytest.mark.parametrize("change", ["moved", "exchanged"])
def test_a_folder_that_was_moved_gets_nothing(serve: Serve, tmp_path: Path, change: str) -> None:
    server = serve(tmp_path / "model")
    assert server.ask("PUT", "class", task="shapes", name="circle").status_code == 200
    collected = tmp_path / "model.collected"
    collected.rename(tmp_path / "moved")
    if change == "exchanged":
        (collected / "pictures" / "shapes" / "circle").mkdir(parents=True)
    before = sorted(tmp_path.rglob("*"))
    words = {"task": "shapes", "name": "circle"}
    for answer in (
        server.ask("POST", "picture", shape("circle", 0), **words),
        server.ask("PUT", "class", task="shapes", name="cross"),
        server.ask("PATCH", "class", to="ring", **words),
        server.ask("DELETE", "class", task="shapes"),
        server.ask("POST", "training", task="shapes"),
        server.ask("DELETE", "task", task="shapes"),
    ):
        assert answer.status_code == 400
        assert "was moved, removed or exchanged" in answer.json()["message"]
    assert sorted(tmp_path.rglob("*")) == before
    assert server.stop() == ""


def test_a_picture_never_goes_through_a_link(tmp_path: Path) -> None:
    """Also if the link came while the server ran."""
    collection = Collection(tmp_path / "pictures")
    collection.add_class("task", "a")
    (tmp_path / "victim").mkdir()
    (tmp_path / "pictures" / "task" / "a").rmdir()
    (tmp_path / "pictures" / "task" / "a").symlink_to(tmp_path / "victim")
    with pytest.raises(RivalsError, match="it is a link"):
        collection.add("task", "a", shape("circle", 0), "one")
    assert list((tmp_path / "victim").iterdir()) == []


def test_names_from_requests_do_not_reach_the_log(serve: Serve, tmp_path: Path) -> None:
    server = serve(tmp_path / "model")
    name = "\x1b[2J\r\nrivals: <script>alert(1)</script>"
    words = {"task": name, "name": name, "to": name, "picture": name, "filename": name}
    for method, path in (
        ("PUT", "class"), ("PATCH", "class"), ("DELETE", "class"), ("POST", "picture"),
        ("GET", "pictures"), ("GET", "picture"), ("POST", "training"), ("POST", "answer"),
        ("GET", "winners"), ("POST", "ticket"), ("DELETE", "task"), ("GET", quote(name)),
    ):  # fmt: skip
        answer = server.ask(method, path, b"no picture", **words)
        assert answer.status_code in (200, 400, 404), (method, path, answer.text)
        assert answer.headers["content-type"] == "application/json"
    server.ask("PUT", "class", task="t", name="a")
    told = server.ask("POST", "picture", b"no picture", task="t", name="a", filename=name)
    assert "\x1b" not in told.json()["message"]
    with connect(server, f"GET /{name} HTTP/1.1\r\n{{host}}X: {name}\r\n\r\n") as raw:
        assert raw.recv(100).startswith(b"HTTP/1.1 400")
    assert server.stop() == ""
