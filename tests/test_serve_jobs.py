"""Collected pictures and the queue of trainings: on disk, within limits, found after kills."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
from PIL import Image

from rivals.errors import RivalsError
from rivals.web.collection import Collection, Limits, safe_name, suffix_of, thumbnail
from rivals.web.jobs import Jobs, WebJob
from rivals.web.web_events import lines_after, position_of, shortened, training_text
from served import shape, until

# Names --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["circle", "Äpfel & Birnen", "丸", "दायरा", "a" * 60, "4-5", "x.y"]
)
def test_names_in_any_script(name: str) -> None:
    assert safe_name(f"  {name} ", "class") == name


@pytest.mark.parametrize(
    "name",
    ["", "   ", ".", "..", ".hidden", "../up", "a/b", "a\\b", "/etc", "a\0b", "a\u202eb", "-rf",
     "a:b", "a" * 61, "丸" * 70, "\ud800"],
)  # fmt: skip
def test_names_that_are_none(name: str) -> None:
    with pytest.raises(RivalsError):
        safe_name(name, "class")


def test_spaces_and_accents_have_one_form() -> None:
    assert safe_name("Cafe\u0301\t au  lait", "class") == "Café au lait"


# Pictures -----------------------------------------------------------------------------------------


def saved(picture: Image.Image, kind: str, **options: object) -> bytes:
    out = io.BytesIO()
    picture.save(out, kind, **options)
    return out.getvalue()


def claims(width: int, height: int) -> bytes:
    """A PNG of a few bytes that says it has so many pixels."""
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)

    def chunk(name: bytes, data: bytes) -> bytes:
        mark = zlib.crc32(name + data)
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", mark)

    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", b"") + chunk(b"IEND", b"")


def test_pictures_of_many_kinds_are_taken() -> None:
    for mode in ("RGB", "L", "RGBA", "P", "1"):
        data = saved(Image.new(mode, (9, 7)), "PNG")
        assert suffix_of(data, "it") == ".png"
        assert thumbnail(data, "it", 4).startswith(b"\x89PNG")
    deep = saved(Image.new("I;16", (9, 7), 40_000), "PNG")
    shown = Image.open(io.BytesIO(thumbnail(deep, "it", 8)))
    assert shown.convert("L").getpixel((0, 0)) in range(150, 162)
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by a quarter
    turned = saved(Image.new("RGB", (40, 20)), "JPEG", exif=exif)
    assert suffix_of(turned, "it") == ".jpg"
    assert Image.open(io.BytesIO(thumbnail(turned, "it", 40))).size == (20, 40)
    clear = saved(Image.new("RGBA", (9, 7), (200, 0, 0, 0)), "PNG")
    shown = Image.open(io.BytesIO(thumbnail(clear, "it", 8)))
    assert shown.getpixel((0, 0)) == (255, 255, 255)  # as it is learned from
    frames = [Image.new("L", (5, 5), 60 * n) for n in range(3)]
    assert (
        suffix_of(saved(frames[0], "GIF", save_all=True, append_images=frames[1:]), "it") == ".gif"
    )


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"", "not a picture"),
        (b"just some words", "not a picture"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "not a picture"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "not a picture"),
        (shape("circle", 0)[:-40], "not a picture"),
        (claims(20_000, 20_000), "more than 80 million pixels"),
        (claims(2_000_000_000, 2_000_000_000), "80 million"),
        (claims(1, 49_000_000), "a side may have at most 30,000"),
        (claims(8000, 8000), "takes 266 MB of memory, but 220 is the limit"),
    ],
    ids=[
        "nothing",
        "words",
        "svg",
        "eps",
        "half",
        "many-pixels",
        "countless-pixels",
        "long",
        "heavy",
    ],
)
def test_what_is_no_picture_is_refused_in_a_sentence(data: bytes, found: str) -> None:
    with pytest.raises(RivalsError, match=r"^notes\.txt .*\.$") as refused:
        suffix_of(data, "notes.txt")
    assert found in str(refused.value)


def test_a_collection_is_found_again(tmp_path: Path) -> None:
    collection = Collection(tmp_path)
    for name in ("circle", "丸"):
        collection.add_class("shapes", name)
    stored = [collection.add("shapes", "circle", shape("circle", n), "one") for n in range(3)]
    assert collection.add("shapes", "circle", shape("circle", 0), "one") == stored[0]  # once
    with pytest.raises(RivalsError, match=r"two\.png is already in the class 'circle'"):
        collection.add("shapes", "丸", shape("circle", 0), "two.png")
    (tmp_path / "shapes" / "circle" / f".{stored[0]}.99.part").write_bytes(b"half")
    again = Collection(tmp_path)
    assert sorted(again.names("shapes", "circle")) == sorted(stored)
    assert again.listing()[0]["classes"][1] == {"name": "丸", "count": 0, "newest": []}
    assert not list(tmp_path.rglob("*.part"))
    again.rename("shapes", "circle", "ring")
    again.rename("shapes", None, "forms")
    again.remove("forms", "ring", stored[1])
    assert {path.name for path in (tmp_path / "forms" / "ring").iterdir()} == {stored[0], stored[2]}
    with pytest.raises(RivalsError, match="already one named '丸'"):
        again.rename("forms", "ring", "丸")
    again.remove("forms", "ring")
    again.remove("forms", "丸")
    assert list(tmp_path.iterdir()) == []


def test_a_collection_has_limits(tmp_path: Path) -> None:
    limits = Limits(
        picture_bytes=5000, class_pictures=2, task_classes=2, tasks=1, pictures=3, bytes=10_000
    )
    collection = Collection(tmp_path, limits)
    for name in ("a", "b"):
        collection.add_class("task", name)
    with pytest.raises(RivalsError, match="2 classes, which is the limit"):
        collection.add_class("task", "c")
    with pytest.raises(RivalsError, match="1 tasks are collected"):
        collection.add_class("another", "a")
    noise = saved(Image.frombytes("RGB", (60, 60), os.urandom(10_800)), "PNG")
    with pytest.raises(RivalsError, match=r"the limit is 0\.00\d+ MB"):
        collection.add("task", "a", noise, "noise.png")
    for number in range(2):
        collection.add("task", "a", shape("circle", number), "one")
    with pytest.raises(RivalsError, match="2 pictures, which is the limit for a class"):
        collection.add("task", "a", shape("circle", 2), "one")
    collection.add("task", "b", shape("cross", 0), "one")
    with pytest.raises(RivalsError, match="3 pictures are collected, which is the limit"):
        collection.add("task", "b", shape("cross", 1), "one")
    for name in ("..", "a/../b", "/etc/passwd"):
        with pytest.raises(RivalsError):
            collection.add("task", name, shape("cross", 2), "one")
        with pytest.raises((RivalsError, KeyError)):
            collection.thumbnail("task", "a", name)
    assert len([path for path in tmp_path.rglob("*") if path.is_file()]) == 3


# The queue. Its trainings are small programs that say what `rivals learn --json` says -------------

SAYS = """
import json, os, sys, time
def say(**event): print(json.dumps(event), flush=True)
say(event="begins", pid=os.getpid())
until = sys.argv[1]
for step in range(600):
    say(event="step", step=step, winners=[[step]])
    if os.path.exists(until): break
    time.sleep(0.05)
{end}
"""
DONE = 'say(event="done")'


class Queue:
    """A folder for jobs; a training ends once there is a file with the name of its task."""

    def __init__(self, folder: Path, end: str = DONE, known: tuple[str, ...] = ()) -> None:
        self.folder = folder
        self.known = known
        (folder / "say.py").write_text(SAYS.format(end=end))
        self.jobs = Jobs(folder / "jobs", self.command, lambda job: job.task in known)
        self.jobs.start()

    def command(self, job: WebJob) -> list[str]:
        return [sys.executable, str(self.folder / "say.py"), str(self.folder / job.task)]

    def states(self) -> list[str]:
        return [job["state"] for job in self.jobs.listing()]

    def begun(self, number: int) -> list[int]:
        """The process of each attempt so far."""
        lines, _ = lines_after(self.jobs.events(number), 0)
        return [event["pid"] for _, event in lines if event["event"] == "begins"]

    def let(self, *tasks: str) -> None:
        for task in tasks:
            (self.folder / task).touch()


def runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def test_one_training_at_a_time(tmp_path: Path) -> None:
    queue = Queue(tmp_path)
    for task in ("a", "b", "c"):
        queue.jobs.add(task)
    with pytest.raises(RivalsError, match="'b' is already being learned or in the queue"):
        queue.jobs.add("b")
    until(lambda: queue.begun(1))
    assert queue.states() == ["running", "queued", "queued"]
    queue.jobs.cancel(2)
    queue.let("a", "b", "c")
    until(lambda: queue.states() == ["done", "cancelled", "done"])
    assert queue.begun(2) == []
    with pytest.raises(RivalsError, match="has ended already"):
        queue.jobs.cancel(3)
    current = queue.jobs.current()
    assert current is not None
    assert current.task == "c"
    queue.jobs.forget("c")
    assert queue.states() == ["done", "cancelled"]
    assert not (tmp_path / "jobs" / "000003").exists()
    queue.jobs.close()


def test_a_running_training_is_cancelled(tmp_path: Path) -> None:
    queue = Queue(tmp_path)
    queue.jobs.add("a")
    (process,) = until(lambda: queue.begun(1))
    queue.jobs.cancel(1)
    until(lambda: not runs(process))
    assert queue.states() == ["cancelled"]
    queue.jobs.close()


@pytest.mark.parametrize(
    ("end", "sentence"),
    [
        ('say(event="error", sentence="No room."); sys.exit(2)', "No room."),
        ('sys.stderr.write("rivals: A plain word.\\n"); sys.exit(2)', "A plain word."),
        ("raise MemoryError", "ended unexpectedly"),
        ("os.kill(os.getpid(), 9)", "was killed (SIGKILL)"),
    ],
)
def test_a_training_that_fails_says_why(tmp_path: Path, end: str, sentence: str) -> None:
    queue = Queue(tmp_path, end)
    queue.let("a")
    queue.jobs.add("a")
    until(lambda: queue.states() == ["failed"])
    assert sentence in queue.jobs.jobs[1].message
    queue.jobs.close()


def test_a_queue_whose_files_vanish_goes_on(tmp_path: Path) -> None:
    queue = Queue(tmp_path)
    queue.jobs.add("a")
    until(lambda: queue.begun(1))
    shutil.rmtree(tmp_path / "jobs")
    queue.let("a", "b")
    until(lambda: queue.states() == ["failed"])
    queue.jobs.add("b")
    until(lambda: queue.states() == ["failed", "done"])
    queue.jobs.close()


KILLED = """
import sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from test_serve_jobs import Queue
queue = Queue(Path(sys.argv[1]))
queue.jobs.add("a")
queue.jobs.add("b")
print("ready", flush=True)
time.sleep(60)
"""


def killed_server(folder: Path) -> int:
    """Leave behind the queue of a server that was killed; gives the training it had started."""
    words = [sys.executable, "-c", KILLED, str(folder), str(Path(__file__).parent)]
    server = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    assert server.stdout.readline() == "ready\n"
    events = folder / "jobs" / "000001" / "events.jsonl"
    until(lambda: events.exists() and b"\n" in events.read_bytes())
    server.send_signal(signal.SIGKILL)
    server.wait()
    return int(json.loads(events.read_bytes().splitlines()[0])["pid"])


def test_a_killed_server_finds_its_training_again(tmp_path: Path) -> None:
    process = killed_server(tmp_path)
    queue = Queue(tmp_path)
    assert runs(process)  # it went on
    until(lambda: queue.states() == ["running", "queued"])
    queue.let("a", "b")
    until(lambda: queue.states() == ["done", "done"])
    assert queue.begun(1) == [process]
    queue.jobs.close()


def test_a_training_that_was_killed_with_its_server_starts_again(tmp_path: Path) -> None:
    process = killed_server(tmp_path)
    os.kill(process, signal.SIGKILL)
    with (tmp_path / "jobs" / "000001" / "events.jsonl").open("ab") as file:
        file.write(b'{"event": "st')  # what a kill leaves
    queue = Queue(tmp_path)
    assert len(until(lambda: len(queue.begun(1)) == 2 and queue.begun(1))) == 2
    queue.let("a", "b")
    until(lambda: queue.states() == ["done", "done"])
    queue.jobs.close()


def test_a_training_that_was_killed_at_its_very_end_is_done(tmp_path: Path) -> None:
    process = killed_server(tmp_path)
    os.kill(process, signal.SIGKILL)
    queue = Queue(tmp_path, known=("a", "b"))
    until(lambda: queue.states()[0] == "done")
    assert queue.begun(1) == [process]
    queue.let("b")
    queue.jobs.close()


def test_a_server_that_is_stopped_starts_its_training_again(tmp_path: Path) -> None:
    for attempt in range(1, 6):  # more often than a training may fail
        queue = Queue(tmp_path)
        if attempt == 1:
            queue.jobs.add("a")
        begun = until(lambda now=queue, nth=attempt: len(now.begun(1)) == nth and now.begun(1))
        queue.jobs.close()
        assert not runs(begun[-1])
    assert queue.states() == ["running"]
    queue = Queue(tmp_path)
    queue.let("a")
    until(lambda: queue.states() == ["done"])
    queue.jobs.close()


# Events -------------------------------------------------------------------------------------------


def test_the_history_is_shortened(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    events = [{"event": "begins"}]
    events += [{"event": "step", "step": n, "winners": [[n]]} for n in range(1000)]
    events += [{"event": "validation", "accuracy": 90.0, "held": 20}]
    path.write_text("".join(json.dumps(event) + "\n" for event in events) + '{"event": "st')
    with path.open("a") as file:
        file.write('\n[1]\nnull\n"x"\n{"event": 3}\n{"event": "step", "st')
    lines, offset = lines_after(path, 0)
    assert [event for _, event in lines] == events
    assert path.read_bytes()[offset:] == b'{"event": "step", "st'
    told = [event for _, event in shortened(lines)]
    assert told[0] == events[0]
    assert told[-1] == events[-1]
    assert told[-2] == events[-2]
    assert len(told) < 70
    assert sum("winners" in event for event in told) == 1
    texts = [training_text(7, line) for line in (lines[0], lines[-1])]
    assert (
        texts[0] == f'id: 7:{lines[0][0]}\nevent: training\ndata: {{"job":7,"event":"begins"}}\n\n'
    )
    shown = json.loads(texts[1].partition("data: ")[2])
    assert shown == {"job": 7, **events[-1], "interval": pytest.approx([69.9, 97.2], abs=0.1)}
    middle = lines[500][0]
    assert lines_after(path, middle)[0] == lines[501:]
    assert position_of(f"7:{middle}") == (7, middle)
    for nonsense in (None, "", "7", "x:y", "-1:-1", "1:" + "9" * 50, "²:1"):
        assert position_of(nonsense) == (0, 0)
