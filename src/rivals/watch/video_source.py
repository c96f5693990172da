"""Videos, cameras and streams from the network as sources, read by OpenCV.

A file is read frame by frame to its end. Of a camera or an address a thread keeps the newest frame,
so that answers are never late; where it falls silent, it is opened again and again.

A video from somebody else opens no other file and no address: only containers are read, no
playlists, and a stream from the network reads no file of this machine.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from rivals.errors import RivalsError
from rivals.io.pictures import MAX_PIXELS
from rivals.watch.frame import WAIT, Frame, Notices, Stop

SCHEMES = ("rtsp", "rtsps", "http", "https")
CAMERA = re.compile(r"\d{1,3}|/dev/video\d{1,3}")
CONTAINERS = "avi,mov,matroska,mpegts,mpeg,flv,ogg,asf,mjpeg,gif,h264,hevc,m4v,dv,ivf"
OF_A_FILE = f"protocol_whitelist;file|format_whitelist;{CONTAINERS}"
OF_AN_ADDRESS = (
    "rtsp_transport;tcp|protocol_whitelist;rtsp,rtp,srtp,tcp,udp,tls,http,https,httpproxy,crypto"
)
QUIET = {"OPENCV_LOG_LEVEL": "SILENT", "OPENCV_FFMPEG_LOGLEVEL": "-8"}  # of what goes to stderr
TIMEOUT = 5000  # ms to open an address, and to wait for a frame of it
LONGEST_PAUSE = 30.0  # seconds between two attempts to open a source again
FPS = 10.0  # of a camera or an address, where nobody says


def is_live(source: str) -> bool:
    return "://" in source or CAMERA.fullmatch(source) is not None


def shown(source: str) -> str:
    """An address without what lets others in: the password, and all after a question mark."""
    if "://" not in source:
        return source
    parts = urlsplit(source)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


class Capture:
    """An open source of OpenCV."""

    def __init__(self, source: str) -> None:
        for name, quiet in QUIET.items():
            os.environ.setdefault(name, quiet)
        import cv2

        self.cv2, self.name = cv2, shown(source)
        address = "://" in source
        os.environ["OPENCV_FFMPEG_CAPTURE_OPTIONS"] = OF_AN_ADDRESS if address else OF_A_FILE
        if CAMERA.fullmatch(source):
            number = source.removeprefix("/dev/video")
            self.capture: Any = cv2.VideoCapture(int(number), cv2.CAP_ANY)
        else:
            waits = (cv2.CAP_PROP_OPEN_TIMEOUT_MSEC, cv2.CAP_PROP_READ_TIMEOUT_MSEC)
            words = [word for wait in waits for word in (wait, TIMEOUT)]
            self.capture = cv2.VideoCapture(source, cv2.CAP_FFMPEG, words)
        pixels = self.number(cv2.CAP_PROP_FRAME_WIDTH) * self.number(cv2.CAP_PROP_FRAME_HEIGHT)
        if not self.capture.isOpened():
            raise RivalsError(
                f"{self.name} cannot be opened as a video or camera; look what it is."
            )
        if pixels > MAX_PIXELS:
            raise RivalsError(f"{self.name} has {pixels:,.0f} pixels a frame; use at most "
                              f"{MAX_PIXELS:,}.")  # fmt: skip

    def number(self, key: int) -> float:
        found = float(self.capture.get(key))
        return found if np.isfinite(found) and found > 0 else 0.0

    @property
    def fps(self) -> float:
        return self.number(self.cv2.CAP_PROP_FPS)

    @property
    def frames(self) -> int:
        """How many there should be, where the file says it."""
        return int(self.number(self.cv2.CAP_PROP_FRAME_COUNT))

    def skip(self) -> bool:
        return bool(self.capture.grab())

    def read(self) -> NDArray[np.uint8] | None:
        """The next frame (height, width, 3), red first; None if there is none."""
        try:
            good, frame = self.capture.read()
        except self.cv2.error:
            return None
        if not good or frame is None or frame.size > 3 * MAX_PIXELS:
            return None
        return np.ascontiguousarray(frame[..., ::-1]) if frame.ndim == 3 else frame

    def close(self) -> None:
        self.capture.release()


class VideoSource:
    """The frames of a video file, in their order: all, or so many a second."""

    def __init__(self, path: Path, stop: Stop, fps: float | None = None) -> None:
        check_opencv()
        self.name, self.stop = str(path), stop
        self.capture = Capture(str(path))
        self.step = max(1.0, self.capture.fps / fps) if fps else 1.0

    def __iter__(self) -> Iterator[Frame]:
        number = answered = 0
        wanted = 0.0
        try:
            while not self.stop():
                if number < wanted:
                    if not self.capture.skip():
                        break
                    number += 1
                    continue
                picture = self.capture.read()
                if picture is None:
                    break
                number, answered, wanted = number + 1, answered + 1, wanted + self.step
                yield Frame(self.name, picture, number)
            else:
                return
            self._check_end(number)
        finally:
            self.capture.close()

    def _check_end(self, read: int) -> None:
        """A video that ends early is damaged; containers may be wrong by a frame or two."""
        there = self.capture.frames
        if read == 0 or read < there - max(2, there // 50):
            raise RivalsError(
                f"The video {self.name} could be read for {read:,} of {there:,} frames; it is "
                "damaged behind them."
            )


class LiveSource:
    """The newest frames of a camera or an address, at most so many a second."""

    def __init__(self, source: str, stop: Stop, fps: float | None = None) -> None:
        check_opencv()
        self.source, self.stop, self.pause = source, stop, 1 / (fps or FPS)
        self.name, self.notices = shown(source), Notices()
        self._capture: Capture | None = Capture(source)  # a name that is wrong is refused now
        self._newest: NDArray[np.uint8] | None = None
        self._there, self._ended = threading.Condition(), False

    def __iter__(self) -> Iterator[Frame]:
        reader = threading.Thread(target=self._read, name="camera", daemon=True)
        reader.start()
        number, due = 0, time.monotonic()
        try:
            while not self.stop():
                with self._there:
                    self._there.wait_for(lambda: self._newest is not None, WAIT)
                    picture = self._newest
                    if picture is None:
                        continue
                    if time.monotonic() >= due:
                        self._newest = None
                if time.monotonic() < due:
                    time.sleep(min(WAIT, max(0.0, due - time.monotonic())))
                    continue
                number, due = number + 1, time.monotonic() + self.pause
                yield Frame(self.name, picture, number)
        finally:
            self._ended = True
            reader.join(1.0)  # it may hang in a driver; it ends with the process

    def _read(self) -> None:
        pause = 1.0
        while not self._ended:
            try:
                self._capture = self._capture or Capture(self.source)
            except RivalsError:
                picture = None
            else:
                picture = self._capture.read()
            if picture is not None:
                self.notices.well(f"{self.name} gives frames again.")
                pause = 1.0
                with self._there:
                    self._newest = picture
                    self._there.notify()
                continue
            if self._capture is not None:
                self._capture.close()
                self._capture = None
            self.notices.trouble(f"{self.name} gives no frames any more; it is opened again.")
            end = time.monotonic() + pause
            while not self._ended and time.monotonic() < end:
                time.sleep(WAIT)
            pause = min(2 * pause, LONGEST_PAUSE)


def check_opencv() -> None:
    if find_spec("cv2") is None:
        raise RivalsError(
            "Videos and cameras need OpenCV, which is not installed here; run "
            "pip install 'rivals[watch]'."
        )
