"""`rivals watch` on folders: answers as lines, files sorted, webhooks, labels by HTTP."""

from __future__ import annotations

import errno
import http.server
import json
import os
import shutil
import signal
import socket
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

import rivals
from crash_points import read_tree, recorded
from rivals.cli.main import main
from rivals.errors import RivalsError
from rivals.watch import folder_source, webhook
from rivals.watch.class_folders import ClassFolders, move, part_of_path
from rivals.watch.find_source import find_source
from rivals.watch.folder_source import FolderSource, stamp_of
from rivals.watch.frame import Frame, Notices, Sighting
from rivals.watch.watcher import Watcher
from rivals.watch.webhook import WebhookSink
from watched import LABELS, Watched, png, put, shape, shapes, teach_shapes, until


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return teach_shapes(tmp_path_factory.mktemp("watch") / "model")


@pytest.fixture
def model(taught: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(taught, tmp_path / "model"))


@pytest.fixture
def inbox(tmp_path: Path) -> Path:
    folder = tmp_path / "inbox"
    folder.mkdir()
    return folder


class Sightings(list[Sighting]):
    """A sink that keeps what it is told."""

    send = list.append

    def close(self) -> None: ...


def sighting(label: str, changed: bool = True) -> Sighting:
    answer = rivals.Answer((rivals.Choice(label, "bars", 0.9),))
    frame = Frame("frame", b"", 1)
    return Sighting(frame, datetime.now(timezone.utc), answer, changed=changed)


def run(*words: str | Path) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["watch", *map(str, words)])
    return int(ended.value.code or 0)


# A folder -----------------------------------------------------------------------------------------


def test_the_pictures_of_a_folder_are_answered(
    model: Path, inbox: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number, label in enumerate(LABELS):
        put(inbox, f"{number}.png", label)
    (inbox / "notes.txt").write_text("no picture")
    os.utime(inbox / "notes.txt", (0, 0))
    (inbox / ".hidden.png").write_bytes(b"")
    (inbox / "link.png").symlink_to(inbox / "0.png")
    (inbox / "deeper").mkdir()
    assert run(inbox, "--model", model, "--once") == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    bad = rows.pop(0)  # the oldest
    assert (bad["image"], bad["frame"]) == (str(inbox / "notes.txt"), 1)
    assert "is not a picture" in bad["error"]
    assert [row["label"] for row in rows] == list(LABELS)
    wanted = rivals.Model(model).predict(str(inbox / "1.png"))
    assert rows[1]["confidence"] == pytest.approx(wanted.confidence, abs=1e-6)
    assert set(rows[0]) == {"time", "image", "frame", "task", "label", "confidence", "rejected"}
    assert datetime.fromisoformat(rows[0]["time"]).tzinfo is not None


def test_new_pictures_are_answered_as_they_come_and_half_ones_when_they_are_whole(
    inbox: Path,
) -> None:
    ended = threading.Event()
    frames: list[Frame] = []
    source = FolderSource(inbox, ended.is_set)
    thread = threading.Thread(target=lambda: frames.extend(source), daemon=True)
    thread.start()
    whole = png(shape("level", 1))
    with (inbox / "slow.png").open("wb") as file:
        for start in range(0, len(whole), len(whole) // 4):
            file.write(whole[start : start + len(whole) // 4])
            file.flush()
            time.sleep(0.25)
    until(lambda: frames, 10)
    ((inbox / "again.png.part").write_bytes(whole[:50]))
    (inbox / "again.png.part").rename(inbox / "again.png")
    until(lambda: len(frames) == 2, 10)
    (inbox / "again.png").write_bytes(whole)  # it was not whole: it is new
    until(lambda: len(frames) == 3, 10)
    ended.set()
    thread.join(5)
    assert not thread.is_alive()
    assert [frame.picture == whole for frame in frames] == [True, False, True]
    assert [frame.number for frame in frames] == [1, 2, 3]


def test_a_folder_that_vanishes_is_waited_for(
    inbox: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ended, frames = threading.Event(), list[Frame]()
    source = FolderSource(inbox, ended.is_set)
    thread = threading.Thread(target=lambda: frames.extend(source), daemon=True)
    thread.start()
    inbox.rename(inbox.with_name("away"))
    time.sleep(0.7)
    inbox.mkdir()
    put(inbox, "new.png", "level")
    until(lambda: frames, 10)
    ended.set()
    thread.join(5)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2  # once each
    assert "cannot be read" in lines[0]
    assert "is there again" in lines[1]


def test_a_watch_remembers_only_what_is_there(inbox: Path) -> None:
    """Memory stays the same over a long stream: files that are gone are forgotten."""
    source = FolderSource(inbox, lambda: False, once=True)
    for number in range(300):
        path = inbox / f"{number}.png"
        path.write_bytes(b"x")
        os.utime(path, (0, 0))
        assert len(list(source)) == 1
        path.unlink()
    assert len(source._seen) <= 1


def test_memory_is_bounded_over_a_long_stream(taught: Path) -> None:
    watcher = Watcher(rivals.Model(taught))
    pictures = [shape(label, seed) for label in LABELS for seed in range(3)]

    def frames(count: int) -> Iterator[Frame]:
        for number in range(count):
            yield Frame("camera", pictures[number % 9], number + 1)

    watcher.run(frames(50))
    tracemalloc.start()
    watcher.run(frames(50))
    before = tracemalloc.get_traced_memory()[0]
    watcher.run(frames(300))
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown < 200_000  # 300 frames have 2 MB


def test_frames_of_a_camera_answer_together_and_pictures_of_a_folder_alone(taught: Path) -> None:
    model, kept = rivals.Model(taught), Sightings()
    seen = [shape("upright", seed) for seed in range(40, 46)]
    frames = [Frame("camera", picture, 1) for picture in seen]
    Watcher(model, [kept]).run(frames)
    assert [each.answer for each in kept] == list(model.watch(seen))
    alone = Sightings()
    Watcher(model, [alone], together=False).run(frames)
    confidences = [each.answer.confidence for each in alone if each.answer]
    wanted = [each.confidence for each in model.predict(seen)]
    assert confidences == pytest.approx(wanted, abs=1e-5)
    assert [each.changed for each in kept] == [True] + 5 * [False]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_cleanly(model: Path, inbox: Path, number: int) -> None:
    put(inbox, "a.png", "level")
    watched = Watched(inbox, model)
    assert watched.next()["label"] == "level"
    assert watched.end(number) == 0
    assert watched.errors == []


def test_what_cannot_be_watched_is_refused(
    model: Path, inbox: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ("--model", model)
    for words, sentence in [
        (("nowhere", *given), "There is no nowhere"),
        (("ftp://host/x", *given), "is no address to watch"),
        ((inbox, "--model", tmp_path / "none"), "There is no model"),
        ((inbox, *given, "--task", "nothing"), "nothing"),
        ((inbox, *given, "--fps", "3"), "is for videos"),
        ((inbox, *given, "--topic", "a"), "--topic is for --mqtt"),
        ((inbox, *given, "--webhook", "file:///etc/passwd"), "begins with http"),
        ((inbox, *given, "--sort", model / "model.json"), "is a file"),
        ((inbox, *given, "--teach", "--require-signature", "k.pub"), "takes its signature away"),
    ]:
        assert run(*words) == 2, words
        error = capsys.readouterr().err
        assert sentence in error
        assert error.count("\n") == 1
    with pytest.raises(RivalsError, match="once is for a folder, but rtsp://host/x is none"):
        find_source("rtsp://user:secret@host/x", lambda: False, once=True)


# Sorting ------------------------------------------------------------------------------------------


def test_files_are_moved_to_folders_that_can_be_learned(
    model: Path, inbox: Path, tmp_path: Path
) -> None:
    content = {}
    for number in range(6):
        path = put(inbox, f"{number}.png", LABELS[number % 3], 50 + number)
        content[path.name] = path.read_bytes()
    (tmp_path / "out" / "bars" / "level").mkdir(parents=True)
    (tmp_path / "out" / "bars" / "level" / "1.png").write_bytes(b"it was there")
    assert run(inbox, "--model", model, "--once", "--sort", tmp_path / "out") == 0
    assert list(inbox.iterdir()) == []
    tree = read_tree(tmp_path / "out")
    assert tree["bars/level/1.png"] == b"it was there"
    assert tree["bars/level/1-2.png"] == content["1.png"]
    assert tree["bars/upright/0.png"] == content["0.png"]
    (tmp_path / "out" / "bars" / "level" / "1.png").unlink()
    learned = rivals.Model(model).learn(tmp_path / "out" / "bars", "bars", again=True)
    assert learned.facts.images == 45 + 6


def test_what_is_rejected_or_unreadable_stays(model: Path, inbox: Path, tmp_path: Path) -> None:
    plain = inbox / "plain.png"
    plain.write_bytes(png(np.full((48, 48, 3), 7, np.uint8)))
    (inbox / "broken.png").write_bytes(b"nothing")
    for path in inbox.iterdir():
        os.utime(path, (0, 0))
    words = ("--once", "--reject", "0.05", "--sort", tmp_path / "out")
    assert run(inbox, "--model", model, *words) == 0
    assert sorted(path.name for path in inbox.iterdir()) == ["broken.png", "plain.png"]


def crossing(real: Callable[..., None]) -> Callable[..., None]:
    """A rename as between two disks."""

    def replace(source: Any, target: Any, **more: Any) -> None:
        if Path(source).parent != Path(target).parent:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        real(source, target, **more)

    return replace


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="it reads /proc/self/fd")
@pytest.mark.parametrize("disks", [1, 2])
def test_a_picture_is_never_lost_whenever_the_move_ends(tmp_path: Path, disks: int) -> None:
    """Killed, or without power, before every step: it is whole in one place at least."""
    inbox, place, data = tmp_path / "in", tmp_path / "out", b"picture" * 1000
    inbox.mkdir()
    place.mkdir()
    path = inbox / "a.png"
    path.write_bytes(data)
    with recorded(tmp_path) as recorder:
        if disks == 2:
            os.replace = crossing(os.replace)
        moved = move(path, place, stamp_of(path.lstat()))
    assert moved == place / "a.png"
    assert moved.read_bytes() == data
    assert not path.exists()
    assert len(recorder.points) >= 3
    for point in recorder.points:
        for disk, tree in point.disks.items():
            found = [name for name, content in tree.items() if content == data]
            assert found, (disk, point.kind, point.path, tree)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="it reads /proc/self/fd")
def test_a_full_disk_is_said_once_and_nothing_is_lost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    inbox, out, data = tmp_path / "in", tmp_path / "out", b"picture" * 1000
    inbox.mkdir()
    sink = ClassFolders(out)

    def send(name: str) -> None:
        path = inbox / name
        stamp = stamp_of(path.lstat())
        answer = rivals.Answer((rivals.Choice("level", "bars", 0.9),))
        frame = Frame(str(path), data, 1, path, stamp)
        sink.send(Sighting(frame, datetime.now(timezone.utc), answer))

    os_replace = os.replace
    for at in range(12):
        name = f"{at}.png"
        (inbox / name).write_bytes(data)
        with recorded(out.parent, "full disk", at):
            os.replace = crossing(os.replace)
            send(name)
        there = [path for path in tmp_path.rglob("*.png") if path.read_bytes() == data]
        assert name in [path.name for path in there], at
        assert not list(tmp_path.rglob("*.part"))
        assert all(path.stat().st_size for path in tmp_path.rglob("*.png"))
    assert os.replace is os_replace
    (inbox / "last.png").write_bytes(data)
    send("last.png")
    assert not (inbox / "last.png").exists()
    lines = capsys.readouterr().err.splitlines()
    assert "No space left" in lines[0]
    assert all(("No space" in line) or ("again" in line) for line in lines)


def test_a_file_that_has_changed_since_is_not_moved(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(b"old")
    stamp = stamp_of(path.lstat())
    path.write_bytes(b"another")
    (tmp_path / "out").mkdir()
    assert move(path, tmp_path / "out", stamp) is None
    assert path.read_bytes() == b"another"
    assert list((tmp_path / "out").iterdir()) == []


def test_names_of_classes_are_no_paths(tmp_path: Path) -> None:
    assert part_of_path("../../etc") == "_.._etc"
    assert part_of_path("..") == "_"
    assert part_of_path("a/b\\c:d\n") == "a_b_c_d_"
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "bars").symlink_to(tmp_path / "elsewhere")
    path = tmp_path / "a.png"
    path.write_bytes(b"picture")
    frame = Frame(str(path), b"", 1, path, stamp_of(path.lstat()))
    answer = rivals.Answer((rivals.Choice("level", "bars", 0.9),))
    ClassFolders(tmp_path / "out").send(Sighting(frame, datetime.now(timezone.utc), answer))
    assert path.exists()
    assert not list((tmp_path / "elsewhere").iterdir())


# A webhook ----------------------------------------------------------------------------------------


class Hook(http.server.ThreadingHTTPServer):
    """A real server that takes posts, and can hang or refuse."""

    def __init__(self, port: int = 0) -> None:
        self.posts: list[dict[str, Any]] = []
        self.status, self.hangs = 200, threading.Event()
        hook = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                data = self.rfile.read(int(self.headers["content-length"]))
                while hook.hangs.is_set():
                    time.sleep(0.05)
                if hook.status == 200:
                    hook.posts.append(json.loads(data))
                self.send_response(hook.status)
                self.send_header("location", "http://127.0.0.1:1/")
                self.end_headers()

            def log_message(self, *_: Any) -> None: ...

        super().__init__(("127.0.0.1", port), Handler)
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02}).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/hook?key=secret"

    def end(self) -> None:
        self.hangs.clear()
        self.shutdown()
        self.server_close()


@pytest.fixture
def hook() -> Iterator[Hook]:
    server = Hook()
    yield server
    server.end()


def test_a_webhook_is_told_of_changes(hook: Hook) -> None:
    sink = WebhookSink(hook.url)
    for label, changed in [("a", True), ("a", False), ("b", True)]:
        sink.send(sighting(label, changed))
    sink.close()
    assert [post["label"] for post in hook.posts] == ["a", "b"]


def test_a_webhook_that_hangs_never_holds_answers_up(
    hook: Hook, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(webhook, "TIMEOUT", 0.3)
    hook.hangs.set()
    sink, began = WebhookSink(hook.url), time.monotonic()
    for number in range(3 * webhook.QUEUE):
        sink.send(sighting(str(number)))
    assert time.monotonic() - began < 0.3
    assert len(sink.outbox.waiting) <= webhook.QUEUE
    time.sleep(0.5)
    hook.hangs.clear()
    until(lambda: hook.posts and hook.posts[-1]["label"] == str(3 * webhook.QUEUE - 1), 10)
    sink.close()
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert "does not take answers" in lines[0]
    assert "secret" not in lines[0]
    assert "takes answers again" in lines[1]


def test_a_webhook_that_comes_late_gets_what_was_kept(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    sink = WebhookSink(f"http://127.0.0.1:{port}/")
    sink.send(sighting("early"))
    time.sleep(0.3)
    hook = Hook(port)
    try:
        until(lambda: hook.posts, 10)
        hook.status = 302  # followed nowhere
        sink.send(sighting("away"))
        until(lambda: "status 302" in capsys.readouterr().err, 10)
    finally:
        hook.end()
    sink.close()
    assert [post["label"] for post in hook.posts] == ["early"]


# Labels -------------------------------------------------------------------------------------------


def test_a_label_teaches_the_last_frame_within_a_second(model: Path, inbox: Path) -> None:
    pytest.importorskip("uvicorn")
    token = "a-token-of-sixteen-letters"
    watched = Watched(inbox, model, "--teach", "--port", "0", RIVALS_TOKEN=token)
    address = httpx.URL(watched.labels_url).copy_with(query=None)
    allowed = {"Authorization": f"Bearer {token}"}
    with httpx.Client(base_url=address, timeout=30) as client:
        assert client.post("/label?label=level").status_code == 401
        wrong = {"Authorization": f"Bearer {token}x"}
        assert client.post("/label?label=level", headers=wrong).status_code == 401
        foreign = {**allowed, "Origin": "http://evil.example"}
        assert client.post("/label?label=level", headers=foreign).status_code == 403
        early = client.post("/label?label=level", headers=allowed)
        assert early.status_code == 400
        assert "No frame" in early.json()["message"]

        new = np.zeros((48, 48, 3), np.uint8)
        new[8:40, 8:40, 1] = 230
        (inbox / "new.png").write_bytes(png(new))
        assert watched.next()["label"] in LABELS
        for label in ("x" * 300, "a\x1b[2Jb", "", "x" * 5000):
            refused = client.post("/label", params={"label": label}, headers=allowed)
            assert refused.status_code == 400, label
        began = time.monotonic()
        told = client.post("/label", params={"label": "square"}, headers=allowed)
        spent = time.monotonic() - began
        assert told.status_code == 200, told.text
        assert told.json() == {"image": str(inbox / "new.png"), "frame": 1, "task": "bars",
                               "label": "square", "images": 46}  # fmt: skip
        assert client.get("/label", headers=allowed).status_code == 405
        assert client.get("/", headers=allowed).json()["frame"] == 1
    (inbox / "again.png").write_bytes(png(np.clip(new.astype(int) - 5, 0, 255).astype(np.uint8)))
    assert watched.next()["label"] == "square"
    assert watched.end() == 0
    assert rivals.Model(model).tasks[0].classes == (*sorted(LABELS), "square")
    assert spent < 5  # about 0.1 s on an idle machine: docs/watch.md


def test_a_label_is_learned_while_frames_are_answered(model: Path) -> None:
    """Who teaches and who answers wait for each other; another process may write, too."""
    watcher = Watcher(rivals.Model(model))
    ended, failed = threading.Event(), list[BaseException]()

    def answer() -> None:
        try:
            while not ended.is_set():
                watcher.see(Frame("camera", shape("level", 3), 1))
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=answer)
    watcher.see(Frame("camera", shape("level", 3), 1))
    thread.start()
    counts = [watcher.label("level")["images"] for _ in range(3)]
    rivals.Model(model).add_picture(shape("none", 70), "none")
    counts.append(watcher.label("level")["images"])
    ended.set()
    thread.join(10)
    assert not failed
    assert counts == [46, 47, 48, 50]


def test_notices_are_said_once() -> None:
    said: list[str] = []
    notices = Notices(said.append)
    for _ in range(3):
        notices.trouble("gone")
    for _ in range(3):
        notices.well("back")
    notices.trouble("gone")
    assert said == ["gone", "back", "gone"]


def test_settled_is_longer_than_a_writer_pauses() -> None:
    assert folder_source.SETTLED >= 0.5
    assert len(shapes(0, 1)[0]) == 3
