"""`rivals watch` on videos, cameras and addresses.

A video that OpenCV writes here, and a stream of JPEG pictures over HTTP that is cut off.
"""

from __future__ import annotations

import http.server
import json
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rivals
from rivals.cli.main import main
from rivals.errors import RivalsError
from rivals.watch.find_source import find_source
from rivals.watch.video_source import is_live, shown
from watched import LABELS, Watched, shape, teach_shapes, until

cv2 = pytest.importorskip("cv2", reason="OpenCV is not installed: rivals[watch]")
FPS = 10


def never() -> bool:
    return False


def film(path: Path, labels: tuple[str, ...] = LABELS, each: int = 8) -> Path:
    """A video that shows one shape after the other."""
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter_fourcc(*"MJPG"), FPS, (48, 48))
    for label in labels:
        for seed in range(each):
            writer.write(np.ascontiguousarray(shape(label, 300 + seed)[..., ::-1]))
    writer.release()
    return path


@pytest.fixture(scope="module")
def video(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return film(tmp_path_factory.mktemp("video") / "film.avi")


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return teach_shapes(tmp_path_factory.mktemp("watch") / "model")


# A file -------------------------------------------------------------------------------------------


def test_a_video_is_answered_to_its_end(
    video: Path, taught: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["watch", str(video), "--model", str(taught)])
    assert ended.value.code == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["frame"] for row in rows] == list(range(1, 25))
    labels = [row["label"] for row in rows]
    for number, label in enumerate(LABELS):  # within three frames of a change
        assert set(labels[8 * number + 3 : 8 * number + 8]) == {label}
    pictures = [frame.picture for frame in find_source(str(video), never)]
    together = rivals.Model(taught).watch(pictures)
    assert labels == [answer.label for answer in together]


def test_colours_are_those_of_the_video(tmp_path: Path) -> None:
    path = tmp_path / "red.avi"
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter_fourcc(*"MJPG"), FPS, (48, 48))
    for _ in range(3):
        writer.write(np.full((48, 48, 3), (0, 0, 200), np.uint8))  # blue, green, red
    writer.release()
    red, _, blue = np.asarray(next(iter(find_source(str(path), never))).picture).mean((0, 1))
    assert red > 150 > 50 > blue


def test_fewer_frames_of_a_video(video: Path) -> None:
    numbers = [frame.number for frame in find_source(str(video), never, fps=FPS / 4)]
    assert numbers == [1, 5, 9, 13, 17, 21]
    assert len(list(find_source(str(video), never, fps=1000))) == 24


def test_a_damaged_video_answers_what_there_is_and_says_so(
    video: Path, tmp_path: Path, taught: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = video.read_bytes()
    (tmp_path / "cut.avi").write_bytes(data[: len(data) // 2])
    (tmp_path / "noise.avi").write_bytes(b"noise" * 1000)
    (tmp_path / "empty.avi").write_bytes(b"")
    with pytest.raises(SystemExit) as ended:
        main(["watch", str(tmp_path / "cut.avi"), "--model", str(taught)])
    assert ended.value.code == 2
    out, err = capsys.readouterr()
    assert 1 <= len(out.splitlines()) < 24
    assert "of 24 frames; it is damaged" in err
    assert err.count("\n") == 1
    for name in ("noise.avi", "empty.avi"):
        with pytest.raises(RivalsError, match="cannot be opened as a video"):
            find_source(str(tmp_path / name), never)


def test_a_video_opens_no_other_file_and_no_address(video: Path, tmp_path: Path) -> None:
    """Playlists under the name of a video are refused."""
    shutil.copy(video, tmp_path / "secret.avi")
    with socket.socket() as trap:
        trap.bind(("127.0.0.1", 0))
        trap.listen()
        trap.settimeout(0.3)
        address = f"http://127.0.0.1:{trap.getsockname()[1]}/a.ts"
        lists = {
            "concat.avi": "ffconcat version 1.0\nfile secret.avi\n",
            "local.m3u8": f"#EXTM3U\n#EXTINF:3,\nfile://{tmp_path}/secret.avi\n#EXT-X-ENDLIST\n",
            "remote.m3u8": f"#EXTM3U\n#EXTINF:3,\n{address}\n#EXT-X-ENDLIST\n",
            "session.sdp": "v=0\nm=video 5004 RTP/AVP 96\nc=IN IP4 127.0.0.1\na=rtpmap:96 H264\n",
        }
        for name, text in lists.items():
            (tmp_path / name).write_text(text)
            with pytest.raises(RivalsError, match="cannot be opened"):
                find_source(str(tmp_path / name), never)
        with pytest.raises(TimeoutError):
            trap.accept()


# Cameras and addresses ----------------------------------------------------------------------------


class FilmServer(http.server.ThreadingHTTPServer):
    """A stream of JPEG pictures, as network cameras send it; it can be cut off."""

    daemon_threads = True

    def __init__(self, port: int = 0) -> None:
        self.label, self.cut = "level", threading.Event()
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.send_header("Content-Type", "multipart/x-mixed-replace; boundary=frame")
                self.end_headers()
                seed = 0
                try:
                    while not server.cut.is_set():
                        seed += 1
                        bar = shape(server.label, 500 + seed % 50)[..., ::-1]
                        data = cv2.imencode(".jpg", np.ascontiguousarray(bar))[1].tobytes()
                        head = f"--frame\r\nContent-Type: image/jpeg\r\nContent-Length: {len(data)}"
                        self.wfile.write(head.encode() + b"\r\n\r\n" + data + b"\r\n")
                        time.sleep(0.04)
                except OSError:
                    pass

            def log_message(self, *_: Any) -> None: ...

        super().__init__(("127.0.0.1", port), Handler)
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02}).start()

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def end(self) -> None:
        if self.cut.is_set():
            return
        self.cut.set()
        self.shutdown()
        self.server_close()


@pytest.fixture
def camera() -> Iterator[FilmServer]:
    server = FilmServer()
    yield server
    server.end()


def test_a_camera_of_the_network_is_followed_and_opened_again(
    camera: FilmServer, taught: Path
) -> None:
    port, again = camera.port, camera
    watched = Watched(f"http://127.0.0.1:{port}/film?key=secret", taught, "--fps", "20")
    try:
        until(lambda: watched.next()["label"] == "level")
        camera.label = "upright"
        until(lambda: watched.next()["label"] == "upright")
        camera.end()
        until(lambda: watched.said("gives no frames any more"), 20)
        again = FilmServer(port)
        again.label = "none"
        until(lambda: watched.next()["label"] == "none", 40)
        until(lambda: watched.said("gives frames again"), 10)
    finally:
        status = watched.end()
        again.end()
    assert status == 0
    assert len(watched.errors) == 2
    assert "secret" not in "".join(watched.errors)


def is_upright(picture: np.ndarray) -> bool:
    return bool(picture.mean((0, 2)).std() > picture.mean((1, 2)).std())


def test_the_newest_frame_is_answered_however_slow_the_answers_are(camera: FilmServer) -> None:
    source, seen = find_source(f"http://127.0.0.1:{camera.port}/", never, fps=1000), list[bool]()
    for frame in source:
        seen.append(is_upright(np.asarray(frame.picture)))
        camera.label = "upright" if len(seen) == 2 else camera.label
        time.sleep(0.4)  # ten frames of the camera
        if len(seen) == 4:
            break
    assert seen == [False, False, True, True]


def test_a_camera_that_is_not_there_is_refused() -> None:
    for source in ("93", "/dev/video93", "rtsp://user:secret@127.0.0.1:1/x?key=secret"):
        with pytest.raises(RivalsError, match="cannot be opened") as error:
            find_source(source, never)
        assert "secret" not in str(error.value)
    assert [is_live(word) for word in ("0", "/dev/video2", "http://a/b", "film.avi", "12345")] == [
        True, True, True, False, False,
    ]  # fmt: skip
    assert shown("rtsp://u:p@host:554/live?token=1") == "rtsp://host:554/live"
