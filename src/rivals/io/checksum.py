"""A checksum inside a file, over that file and the files that belong to it.

The field `"sha256": "…"` is written with zeros, the digest of everything is computed, and takes the
place of the zeros. It works for text and for any format that stores text as it is, so that one
field covers every byte: JSON, ONNX, ORT. It shows damage and careless changes; whoever changes a
file on purpose can compute it anew, which only a signature shows.
"""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any

from rivals.errors import RivalsError

BLANK = "0" * 64  # what the field `sha256` holds before the checksum is known
MODULES = ("_sha2", "_sha256", "hashlib")  # Python 3.12, before, and others
FIELD = re.compile(rb'"sha256": "([0-9a-f]{64})"')


def with_checksum(data: bytes, *others: bytes) -> bytes:
    """`data` with its field filled in, over itself and `others`."""
    place = _place(data)
    if place is None:
        raise RivalsError("There is not one field for a checksum in this file; use other names.")
    return data[: place[0]] + _digest(data, place, others).encode() + data[place[1] :]


def has_checksum(data: bytes) -> bool:
    """Whether a field for it is there, right or wrong."""
    return FIELD.search(data) is not None


def checksum_fits(data: bytes, *others: bytes) -> bool:
    """Whether the one checksum in `data` is that of `data` and `others`."""
    place = _place(data)
    return place is not None and data[slice(*place)] == _digest(data, place, others).encode()


def sha256(data: bytes) -> str:
    """The digits of the SHA-256 of a whole file."""
    digits: str = _sha256()(data).hexdigest()
    return digits


def _place(data: bytes) -> tuple[int, int] | None:
    """Where the digits are; None where there is no field, or more than one."""
    first = FIELD.search(data)
    if first is None or FIELD.search(data, first.end()):
        return None
    return first.span(1)


def _digest(data: bytes, place: tuple[int, int], others: tuple[bytes, ...]) -> str:
    new = _sha256()
    found, view = new(), memoryview(data)
    found.update(view[: place[0]])
    found.update(BLANK.encode())
    found.update(view[place[1] :])
    for other in others:
        found.update(new(other).digest())
    digits: str = found.hexdigest()
    return digits


def _sha256() -> Any:
    """Python's own; hashlib would load OpenSSL, which is 4 MB of the memory of a small device."""
    for name in MODULES[:-1]:
        try:
            return import_module(name).sha256
        except (ImportError, AttributeError):
            continue
    return import_module(MODULES[-1]).sha256
