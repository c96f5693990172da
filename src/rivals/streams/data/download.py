"""Download official files: resumable, checked, renamed into place only when complete."""

from __future__ import annotations

import errno
import http.client
import os
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path

from rivals.errors import RivalsError
from rivals.streams.data.catalogue import DataSet, DownloadSource
from rivals.streams.data.checksums import file_md5, file_sha256
from rivals.streams.data.find import roots
from rivals.streams.data.progress import bar

BLOCK = 2**16
TIMEOUT = 30.0  # seconds without data
ATTEMPTS = 5  # failed attempts in a row
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class _IncompleteError(Exception):
    """The connection ended before the end of the file."""


def _difference(path: Path, source: DownloadSource) -> str:
    """ "" if `path` is the official file, else how it differs."""
    size = path.stat().st_size
    if source.sha256:
        found = file_sha256(path)
        return "" if found == source.sha256 else f"SHA-256 {found} instead of {source.sha256}"
    if not source.md5:
        return "" if size == source.size else f"{size:,} bytes instead of {source.size:,}"
    found = file_md5(path)
    return "" if found == source.md5 else f"MD5 {found} instead of {source.md5}"


def _request(url: str, start: int) -> http.client.HTTPResponse:
    request = urllib.request.Request(url, headers={"User-Agent": "rivals"})
    if start:
        request.add_header("Range", f"bytes={start}-")
    response: http.client.HTTPResponse = urllib.request.urlopen(request, timeout=TIMEOUT)
    return response


def _begins(response: http.client.HTTPResponse, start: int) -> int:
    """The first byte of the response: a server may ignore the range and send the whole file."""
    if response.status != 206:
        return 0
    match = re.match(r"bytes (\d+)-", response.headers.get("Content-Range", ""))
    if match is None or int(match[1]) != start:
        raise _IncompleteError(
            f"the server answered another range than the one from byte {start:,}"
        )
    return start


def _receive(url: str, part: Path, source: DownloadSource, advance: Callable[[int], None]) -> None:
    """One connection: append what it sends to `part`; _IncompleteError if it ended early."""
    start = part.stat().st_size if part.exists() else 0
    with _request(url, start) as response:
        begin = _begins(response, start)
        length = response.headers.get("Content-Length")
        end = begin + int(length) if length and length.isdigit() else None
        if begin < start:
            advance(-start)
        with part.open("ab" if begin else "wb") as file:
            while block := response.read(BLOCK):
                file.write(block)
                advance(len(block))
                if file.tell() > 2 * source.size:
                    return  # not the requested file; its checksum will differ
            count = file.tell()
            file.flush()
            os.fsync(file.fileno())
    if end is not None and count < end:
        raise _IncompleteError(f"the connection ended after {count:,} of {end:,} bytes")


def _by_hand(source: DownloadSource, target: Path) -> str:
    return f"download {source.url} by other means and put it at {target}"


def _download(url: str, part: Path, source: DownloadSource, target: Path) -> None:
    """Download to `part` until it is complete; every failure becomes a RivalsError."""
    failures = 0
    done = part.stat().st_size if part.exists() else 0
    with bar(target.name, source.size, done, size=True) as advance:
        while True:
            before = part.stat().st_size if part.exists() else 0
            try:
                return _receive(url, part, source, advance)
            except urllib.error.HTTPError as error:
                if error.code == 416 and before:  # `part` is already as long as the file
                    return None
                raise RivalsError(
                    f"{url} answered {error.code} {error.reason}; {_by_hand(source, target)}."
                ) from None
            except (OSError, http.client.HTTPException, _IncompleteError) as error:
                reason = error.reason if isinstance(error, urllib.error.URLError) else error
                if isinstance(reason, OSError) and reason.errno in NO_ROOM:
                    raise RivalsError(
                        f"There is no room for {source.size:,} bytes in {target.parent} "
                        f"({os.strerror(reason.errno)}); make room and run the command again, "
                        "it continues where it stopped."
                    ) from None
                if isinstance(reason, PermissionError):
                    raise RivalsError(
                        f"{part} could not be written ({reason.strerror}); "
                        "choose another folder with --data DIR."
                    ) from None
                after = part.stat().st_size if part.exists() else 0
                failures = 0 if after > before else failures + 1
                unreachable = isinstance(error, urllib.error.URLError) and after == 0
                if unreachable or failures >= ATTEMPTS:
                    raise _gave_up(url, after, source, target, reason) from None


def _gave_up(
    url: str, after: int, source: DownloadSource, target: Path, reason: object
) -> RivalsError:
    if after == 0:
        return RivalsError(
            f"{urllib.parse.urlsplit(url).hostname} could not be reached ({reason}); check the "
            f"network, or {_by_hand(source, target)}."
        )
    return RivalsError(
        f"The download of {target.name} stopped after {after:,} of {source.size:,} bytes "
        f"({reason}); run the command again, it continues where it stopped."
    )


def fetch(source: DownloadSource, root: Path, url: str = "") -> bool:
    """Download `source` to `root`; False if it was there. `url` replaces the official address."""
    address, target = url or source.url, root / source.path
    if urllib.parse.urlsplit(address).scheme not in ("http", "https"):
        raise RivalsError(f"{address} is not an http or https address; give one that is.")
    if target.exists():
        if differs := _difference(target, source):
            raise RivalsError(
                f"{target} is there but is not the official file ({differs}); move it away first "
                "or keep it as the subset it is."
            )
        return False
    part = target.with_name(f"{target.name}.part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RivalsError(
            f"{target.parent} could not be made ({error.strerror}); "
            "choose another folder with --data DIR."
        ) from None
    _download(address, part, source, target)
    if differs := _difference(part, source):
        part.unlink()  # continuing from wrong bytes cannot work
        raise RivalsError(
            f"{address} gave a file with {differs}, so it was deleted; try again later, or "
            f"{_by_hand(source, target)}."
        )
    os.replace(part, target)
    return True


def get(dataset: DataSet, base: str = "") -> list[Path]:
    """Download every file of `dataset` to the first root; `base` replaces the official site."""
    root = roots()[0]
    for source in dataset.sources:
        fetch(source, root, f"{base.rstrip('/')}/{Path(source.path).name}" if base else "")
    return [root / source.path for source in dataset.sources]
