"""Which source a word on the command line means."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from rivals.errors import RivalsError
from rivals.watch.folder_source import FolderSource
from rivals.watch.frame import Frame, Stop
from rivals.watch.video_source import SCHEMES, LiveSource, VideoSource, is_live, shown


def find_source(
    text: str, stop: Stop, *, once: bool = False, fps: float | None = None
) -> Iterable[Frame]:
    """The frames of a folder, a video file, a camera or an address.

    Args:
        text: A path; a number or /dev/videoN; or an address of rtsp, rtsps, http or https.
        stop: Asked again and again; then frames end.
        once: End with the last picture that is in the folder now.
        fps: Frames a second that are answered, at most.
    """
    if "://" in text and text.partition("://")[0].lower() not in SCHEMES:
        raise RivalsError(f"{shown(text)} is no address to watch; use {', '.join(SCHEMES)}.")
    path, folder = Path(text), Path(text).is_dir()
    if once and not folder:
        raise RivalsError(f"--once is for a folder, but {shown(text)} is none; leave it out.")
    if fps is not None and (folder or not 0 < fps <= 1000):
        what = "is for videos and cameras" if folder else "must be above 0 and at most 1,000"
        raise RivalsError(f"--fps is {fps:g}, but {what}; change it.")
    if folder:
        return FolderSource(path, stop, once)
    if is_live(text):
        return LiveSource(text, stop, fps)
    if not path.is_file():
        raise RivalsError(
            f"There is no {text}; name a folder, a video, the number of a camera, or an address."
        )
    return VideoSource(path, stop, fps)
