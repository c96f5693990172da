"""Downloads against a real HTTP server on loopback."""

from __future__ import annotations

import hashlib
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from rivals.errors import RivalsError
from rivals.streams.data.catalogue import CATALOGUE, DownloadSource
from rivals.streams.data.download import fetch

CONTENT = hashlib.shake_128(b"rivals").digest(300_000)
SOURCE = DownloadSource(
    "archive",
    "folder/file.bin",
    "",
    "http://official.invalid/file.bin",
    hashlib.md5(CONTENT).hexdigest(),
    len(CONTENT),
)


@dataclass
class Plan:
    """What the server does, and what it was asked."""

    content: bytes = CONTENT
    status: int = 0  # an error to answer with
    cuts: list[int] = field(default_factory=list)  # bytes after which a connection is dropped
    ranges: bool = True
    asked: list[str] = field(default_factory=list)
    url: str = ""


@pytest.fixture
def server() -> Iterator[Plan]:
    plan = Plan()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            wanted = self.headers.get("Range", "")
            plan.asked.append(wanted)
            if plan.status:
                self.send_error(plan.status)
                return
            start = int(wanted[6:-1]) if wanted and plan.ranges else 0
            if start >= len(plan.content):
                self.send_error(416)
                return
            body = plan.content[start:]
            self.send_response(206 if start else 200)
            self.send_header("Content-Length", str(len(body)))
            if start:
                last = len(plan.content) - 1
                self.send_header("Content-Range", f"bytes {start}-{last}/{len(plan.content)}")
            self.end_headers()
            if plan.cuts:
                body = body[: plan.cuts.pop(0)]
                self.wfile.write(body)
                self.wfile.flush()
                self.connection.shutdown(socket.SHUT_RDWR)
            else:
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    running = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    plan.url = f"http://127.0.0.1:{running.server_port}/file.bin"
    thread = threading.Thread(target=running.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield plan
    running.shutdown()
    running.server_close()


def left(root: Path) -> list[str]:
    return sorted(path.name for path in root.rglob("*") if path.is_file())


def test_whole_file_in_place(root: Path, server: Plan) -> None:
    assert fetch(SOURCE, root, server.url)
    assert (root / SOURCE.path).read_bytes() == CONTENT
    assert left(root) == ["file.bin"]
    assert not fetch(SOURCE, root, server.url), "it is there already"
    assert len(server.asked) == 1


def test_cut_connections_are_resumed(root: Path, server: Plan) -> None:
    server.cuts = [100_000, 50_000]
    fetch(SOURCE, root, server.url)
    assert (root / SOURCE.path).read_bytes() == CONTENT
    assert server.asked == ["", "bytes=100000-", "bytes=150000-"]


def test_a_later_command_goes_on_where_the_last_stopped(root: Path, server: Plan) -> None:
    server.cuts = [120_000] + [0] * 10
    with pytest.raises(RivalsError, match=r"stopped after 120,000 of 300,000 .* run the command"):
        fetch(SOURCE, root, server.url)
    assert left(root) == ["file.bin.part"]
    server.cuts, server.asked = [], []
    fetch(SOURCE, root, server.url)
    assert server.asked == ["bytes=120000-"]
    assert (root / SOURCE.path).read_bytes() == CONTENT


def test_server_without_ranges_starts_over(root: Path, server: Plan) -> None:
    server.cuts, server.ranges = [100_000], False
    fetch(SOURCE, root, server.url)
    assert (root / SOURCE.path).read_bytes() == CONTENT


def test_a_part_that_is_already_whole(root: Path, server: Plan) -> None:
    (root / "folder").mkdir()
    (root / "folder/file.bin.part").write_bytes(CONTENT)
    fetch(SOURCE, root, server.url)
    assert left(root) == ["file.bin"]


@pytest.mark.parametrize("content", [b"<html>moved</html>", CONTENT[:-1] + b"x", CONTENT * 4])
def test_wrong_bytes_never_arrive(root: Path, server: Plan, content: bytes) -> None:
    server.content = content
    with pytest.raises(RivalsError, match=r"gave a file with MD5 \w+ instead of \w+, so it was"):
        fetch(SOURCE, root, server.url)
    assert left(root) == []


def test_a_part_of_wrong_bytes_is_not_kept(root: Path, server: Plan) -> None:
    (root / "folder").mkdir()
    (root / "folder/file.bin.part").write_bytes(bytes(1000))
    with pytest.raises(RivalsError, match="so it was deleted"):
        fetch(SOURCE, root, server.url)
    fetch(SOURCE, root, server.url)
    assert (root / SOURCE.path).read_bytes() == CONTENT


def test_without_a_published_md5_the_size_decides(root: Path, server: Plan) -> None:
    source = replace(SOURCE, md5="")
    server.content = CONTENT[:1000]
    with pytest.raises(RivalsError, match="1,000 bytes instead of 300,000"):
        fetch(source, root, server.url)
    server.content = CONTENT
    assert fetch(source, root, server.url)


def test_sha256_decides_where_it_is_known(root: Path, server: Plan) -> None:
    """Two files can be made with one MD5, so a right one is not enough."""
    source = replace(SOURCE, sha256=hashlib.sha256(CONTENT + b"x").hexdigest())
    with pytest.raises(RivalsError, match=r"SHA-256 .* instead of .* so it was deleted"):
        fetch(source, root, server.url)
    assert left(root) == []
    assert fetch(replace(source, sha256=hashlib.sha256(CONTENT).hexdigest()), root, server.url)


def test_official_files_come_over_https_with_sha256() -> None:
    """But for two sources, which offer http alone; one of them publishes no checksum."""
    plain = {each.name for each in CATALOGUE for s in each.sources if s.url.startswith("http:")}
    unsure = {each.name for each in CATALOGUE for s in each.sources if len(s.sha256) != 64}
    assert plain == {"svhn", "notmnist"}
    assert unsure == {"notmnist"}


@pytest.mark.parametrize(("status", "text"), [(404, "404 Not Found"), (503, "503 Service Unav")])
def test_an_error_answer(root: Path, server: Plan, status: int, text: str) -> None:
    server.status = status
    with pytest.raises(RivalsError, match=f"answered {text}.* and put it at .*file.bin"):
        fetch(SOURCE, root, server.url)
    assert left(root) == []


def test_no_network_says_which_file_to_put_where(root: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/file.bin"
        with pytest.raises(RivalsError) as caught:
            fetch(SOURCE, root, url)
    text = str(caught.value)
    assert "could not be reached" in text
    assert f"download {SOURCE.url} by other means and put it at {root / SOURCE.path}." in text


def test_a_subset_is_never_overwritten(root: Path, server: Plan) -> None:
    (root / "folder").mkdir()
    (root / SOURCE.path).write_bytes(b"subset")
    with pytest.raises(RivalsError, match="is there but is not the official file"):
        fetch(SOURCE, root, server.url)
    assert (root / SOURCE.path).read_bytes() == b"subset"
    assert server.asked == []


def test_other_schemes_are_refused(root: Path) -> None:
    with pytest.raises(RivalsError, match="not an http or https address"):
        fetch(SOURCE, root, "file:///etc/passwd")


def test_no_room(root: Path, server: Plan) -> None:
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
        "from pathlib import Path\n"
        "from rivals.streams.data.catalogue import DownloadSource\n"
        "from rivals.streams.data.download import fetch\n"
        "from rivals.errors import RivalsError\n"
        f"source = {SOURCE!r}\n"
        f"try: fetch(source, Path({str(root)!r}), {server.url!r})\n"
        "except RivalsError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert "There is no room for 300,000 bytes" in done.stdout, done.stderr
    assert left(root) == ["file.bin.part"]
    fetch(SOURCE, root, server.url)
    assert (root / SOURCE.path).read_bytes() == CONTENT
