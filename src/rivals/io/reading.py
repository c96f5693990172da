"""Reading files that may come from somebody else: bounded, without links, without surprises.

Everything that reads a model, a run, a ticket, an export or a collection reads it here. A file must
be a regular file of a limited size; a link is refused, and so is a pipe or a device, which could
block for ever. JSON and YAML are bounded before they are parsed, for a parser takes twenty times
the memory of the text.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from rivals.errors import RivalsError

TEXT = 16 * 2**20  # bytes of a JSON or YAML file, where nothing else is said
VALUES = 2_000_000  # that a JSON file may hold; each takes about a hundred bytes of memory
DEPTH = 64  # of nested lists and mappings
YAML_NODES = 100_000
CHUNK = 2**20  # bytes read at once
LINK = "it is a link, and links are not followed"
SPECIAL = "it is not a regular file"
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


class UnreadableError(RivalsError):
    """A file that is missing, a link, no file at all, too large, or not what it should be."""


def read_bytes(path: Path, what: str, limit: int, root: Path | None = None) -> bytes:
    """The content of a regular file of at most `limit` bytes.

    Args:
        path: The file. Its last part must not be a link.
        what: What error messages call it.
        limit: The largest number of bytes that is accepted.
        root: A folder above `path`, chosen by the user: no folder between the two may be a link.
    """
    with _regular(path, what, root) as file:
        size = os.fstat(file.fileno()).st_size
        if size > limit:
            raise _refused(path, what, f"it has {size:,} bytes, at most {limit:,}")
        data = file.read(size + 1)  # not the limit: Python takes what it is asked for
    if len(data) > size:
        raise _refused(path, what, "it grew while it was read")
    return data


def file_digest(path: Path, what: str, root: Path | None = None) -> str:
    """The SHA-256 of a regular file of any size; arguments as those of `read_bytes`."""
    import hashlib  # here: it takes 4 MB, and exported files are run in few

    found = hashlib.sha256()
    with _regular(path, what, root) as file:
        while part := file.read(CHUNK):
            found.update(part)
    return found.hexdigest()


@contextlib.contextmanager
def _regular(path: Path, what: str, root: Path | None) -> Iterator[BinaryIO]:
    """A regular file, opened; every problem, also in the block, is an UnreadableError."""
    try:
        with os.fdopen(_open(path, root), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise _refused(path, what, SPECIAL)
            yield file
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise _refused(path, what, LINK if error.errno == errno.ELOOP else reason) from error


def read_json(path: Path, what: str, limit: int = TEXT, root: Path | None = None) -> dict[str, Any]:
    """A JSON file that holds an object; `what` names the file in error messages."""
    return parse_json(read_bytes(path, what, limit, root), f"The {what} {path}")


def read_yaml(path: Path, what: str, limit: int = TEXT // 16, root: Path | None = None) -> Any:
    """A YAML file of plain values, without anchors, which could multiply its size."""
    return parse_yaml(read_bytes(path, what, limit, root), f"The {what} {path}")


def parse_json(data: bytes, name: str) -> dict[str, Any]:
    """JSON text as an object; `name` begins the error message."""
    if sum(data.count(sign) for sign in (b",", b"[", b"{")) > VALUES:
        raise UnreadableError(f"{name} is damaged: it holds more than {VALUES:,} values.")
    try:
        value = json.loads(data, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise UnreadableError(f"{name} is damaged: it is not valid JSON.") from error
    if not isinstance(value, dict):
        raise UnreadableError(f"{name} is damaged: it holds no JSON object.")
    _check_depth(value, name)
    return value


def parse_yaml(data: bytes, name: str) -> Any:
    """YAML text as plain values; `name` begins the error message."""
    import yaml  # here: exported files are run where it is not installed

    try:
        depth = 0
        for nodes, event in enumerate(yaml.parse(data.decode(), Loader=yaml.SafeLoader)):
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            if isinstance(event, yaml.AliasEvent):
                raise UnreadableError(f"{name} uses YAML aliases (*name); write the values out.")
            if nodes > YAML_NODES or depth > DEPTH:
                raise UnreadableError(f"{name} holds more than any file of settings.")
        value = yaml.safe_load(data.decode())
        _check_yaml(value, name)
        return value
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        line = getattr(getattr(error, "problem_mark", None), "line", None)
        place = "" if line is None else f" (line {line + 1})"
        raise UnreadableError(f"{name} is not valid YAML{place}.") from error


def check_no_links(root: Path, path: Path, what: str) -> None:
    """Refuse `path` if it, or a folder between `root` and it, is a link. `root` itself may be."""
    place = root
    for part in path.relative_to(root).parts:
        place = place / part
        if is_link(place):
            raise _refused(place, what, LINK)


def check_plain(folder: Path, what: str) -> None:
    """Refuse a folder that holds, at any depth, something else than regular files and folders."""
    pending = [folder]
    try:
        while pending:
            with os.scandir(pending.pop()) as entries:
                for entry in entries:
                    path = Path(entry.path)
                    if is_link(path):
                        raise _refused(path, f"file of the {what}", LINK)
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(path)
                    elif not entry.is_file(follow_symlinks=False):
                        raise _refused(path, f"file of the {what}", SPECIAL)
    except OSError as error:
        raise _refused(folder, what, error.strerror or type(error).__name__) from error


def printable(text: str, most: int = 200) -> str:
    """Text from elsewhere on one line of a terminal: no control codes, not endless."""
    plain = CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)
    return plain if len(plain) <= most else f"{plain[:most]}…"


def _open(path: Path, root: Path | None) -> int:
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    follow = getattr(os, "O_NOFOLLOW", 0)
    parts = path.relative_to(root).parts if root else (path.name,)
    if not follow or os.open not in os.supports_dir_fd:  # Windows
        check_no_links(root or path.parent, path, "file")
        return os.open(path, flags)
    folder = os.open(root or path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:  # from folder to folder, so that none can be exchanged for a link meanwhile
        for part in parts[:-1]:
            inner = _open_below(part, os.O_RDONLY | os.O_DIRECTORY | follow, folder)
            os.close(folder)
            folder = inner
        return _open_below(parts[-1], flags | follow, folder)
    finally:
        os.close(folder)


def _open_below(name: str, flags: int, folder: int) -> int:
    try:
        return os.open(name, flags, dir_fd=folder)
    except OSError as error:
        # With O_DIRECTORY, Linux calls a link "not a directory".
        if error.errno == errno.ENOTDIR and stat.S_ISLNK(os.lstat(name, dir_fd=folder).st_mode):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name) from error
        raise


def is_link(path: Path) -> bool:
    """Whether a path is a link; on Windows a junction is one, too."""
    if path.is_symlink():
        return True
    test: Callable[[Path], bool] | None = getattr(os.path, "isjunction", None)  # Python 3.12
    return bool(test and test(path))


def _check_depth(value: Any, name: str) -> None:
    level: list[Any] = [value]
    for _ in range(DEPTH):
        level = [
            inner
            for each in level
            for inner in (each.values() if isinstance(each, dict) else each)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return
    raise UnreadableError(f"{name} is damaged: its values are nested too deeply.")


def _check_yaml(value: Any, name: str) -> None:
    """YAML knows keys and numbers that nothing else can show, such as dates or a million digits."""
    pending = [value]
    while pending:
        each = pending.pop()
        if isinstance(each, int) and each.bit_length() > 1024:
            raise UnreadableError(f"{name} holds a number of more than 300 digits.")
        if isinstance(each, dict):
            if not all(key is None or isinstance(key, str | int | float) for key in each):
                raise UnreadableError(f"{name} holds a key that is no word and no number.")
            pending += [*each, *each.values()]
        elif isinstance(each, list | tuple | set):
            pending += each


def _refuse_constant(word: str) -> None:
    raise ValueError(f"{word} is not JSON")


def _refused(path: Path, what: str, why: str) -> UnreadableError:
    return UnreadableError(f"The {what} {path} cannot be read ({why}).")
