"""A file of a model, read without torch: its size and checksum, and what its header says."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rivals.errors import RivalsError
from rivals.io.files import digest
from rivals.io.reading import UnreadableError, parse_json, read_bytes
from rivals.model import limits
from rivals.model.manifest import damaged

FOLDER = "tasks"  # of a model, where all its files are but the description
Shapes = dict[str, tuple[str, tuple[int, ...]]]  # by name: type and shape


def read_stored(model: Path, file: str, sha256: str, size: int, what: str) -> bytes:
    """A file of a model, if it is as long as it should be and has the stated checksum."""
    try:
        data = read_bytes(model / FOLDER / file, "file", size, model)
    except UnreadableError as error:
        reason = str(error).rpartition("(")[2].rstrip(".)")
        raise damaged(model, f"{what} cannot be read ({reason})") from error
    if len(data) != size or digest(data) != sha256:
        raise damaged(model, f"{what} is not the one that was written")
    return data


def shapes_of(data: bytes) -> Shapes:
    """Types and shapes of the tensors in a file, from its header; a ValueError is its damage."""
    length = int.from_bytes(data[:8], "little")
    if length > limits.HEADER:
        raise ValueError(f"has a header of {length:,} bytes")
    try:
        header = parse_json(data[8 : 8 + length], "The header")
        return {
            name: (str(entry["dtype"]), tuple(entry["shape"]))
            for name, entry in header.items()
            if name != "__metadata__"
        }
    except (UnreadableError, LookupError, TypeError, AttributeError) as error:
        raise ValueError("holds no tensors") from error


def check_version(model: Path, task: str, found: Shapes) -> None:
    """Refuse what was written before tasks kept what names them as they do now."""
    if "kept.counts" in found and "kept.temperature" not in found:
        raise RivalsError(
            f"The model {model} was made by an early rivals 0.2, which named tasks in another way; "
            f"learn its task '{task}' again in a new model."
        )


@contextmanager
def in_words(model: Path, what: str) -> Iterator[None]:
    """A ValueError of the block as a sentence about a file of the model."""
    try:
        yield
    except ValueError as error:
        raise damaged(model, f"{what} {error}") from error
