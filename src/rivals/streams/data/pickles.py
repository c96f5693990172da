"""A safe reader for CIFAR's official files, which are Python 2 pickles.

A pickle can name any function to be called. Here the few names that a numpy array needs are mapped
to placeholder classes that only collect its shape, type and bytes; every other name is refused.
Before it is read, its instructions are walked through: a length that the file does not have, a
number in the memo that no file needs, or too many instructions are refused before memory is taken.
"""

from __future__ import annotations

import io
import math
import pickle
import pickletools
from collections.abc import Callable
from typing import Any

import numpy as np

from rivals.errors import RivalsError

OPCODES = 1_000_000  # each can take a hundred bytes of memory; CIFAR's largest file has 300,000
MEMO = ("PUT", "BINPUT", "LONG_BINPUT")  # its memory grows with the number they name
LENGTHS = {  # what pickletools says of an argument that begins with its length: bytes of it
    pickletools.TAKEN_FROM_ARGUMENT1: 1,
    pickletools.TAKEN_FROM_ARGUMENT4: 4,
    pickletools.TAKEN_FROM_ARGUMENT4U: 4,
    pickletools.TAKEN_FROM_ARGUMENT8U: 8,
}
LINES = {"stringnl_noescape_pair": 2}  # of an argument that is text; else one
INSTRUCTIONS = {ord(each.code): each for each in pickletools.opcodes}
PLAIN = {"u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f4", "f8"}


class _RefusedError(Exception):
    """A pickle contains something that is not allowed."""


class _Dtype:
    """Placeholder for numpy.dtype: a type code and its byte order."""

    __slots__ = ("code", "order")

    def __init__(self, code: object, *_: object) -> None:
        self.code = code.decode("ascii") if isinstance(code, bytes) else str(code)
        self.order = "="
        if self.code not in PLAIN:
            raise _RefusedError(f"an array of type '{self.code[:20]}'")

    def __setstate__(self, state: Any) -> None:
        order = state[1].decode("ascii") if isinstance(state[1], bytes) else str(state[1])
        if order not in ("<", ">", "|", "="):
            raise _RefusedError("an array of an unknown byte order")
        self.order = order


class _Array:
    """Placeholder for numpy.ndarray until its state is read."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: np.ndarray[Any, Any] | None = None

    def __setstate__(self, state: Any) -> None:
        _, shape, kind, fortran, raw = state
        if not isinstance(kind, _Dtype) or not isinstance(raw, bytes):
            raise _RefusedError("an array that is not made of plain bytes")
        dtype = np.dtype(kind.code).newbyteorder(kind.order)  # type: ignore[arg-type]
        if math.prod(shape) * dtype.itemsize != len(raw):
            raise _RefusedError("an array whose shape and bytes disagree")
        flat = np.frombuffer(raw, dtype)
        self.value = flat.reshape(shape, order="F" if fortran else "C")


class _Placeholder:
    """A callable in place of a global; a pickle cannot change it."""

    __slots__ = ("_make",)
    _make: Callable[..., object]

    def __init__(self, make: Callable[..., object]) -> None:
        object.__setattr__(self, "_make", make)

    def __call__(self, *arguments: object) -> object:
        return self._make(*arguments)

    def __setattr__(self, name: str, value: object) -> None:
        raise _RefusedError("an attempt to change the reader")

    def __setstate__(self, state: object) -> None:
        raise _RefusedError("an attempt to change the reader")


def _refuse(*_: object) -> object:
    raise _RefusedError("a call to numpy.ndarray")


def _check(data: bytes) -> None:
    """Walk through the instructions of a pickle without carrying them out."""
    place, end = 0, len(data)
    for count in range(OPCODES):
        if place >= end:
            raise pickle.UnpicklingError("no end")
        opcode = INSTRUCTIONS.get(data[place])
        if opcode is None:
            raise pickle.UnpicklingError("an unknown instruction")
        if opcode.name == "STOP":
            return
        begin, place = place + 1, _after(data, place + 1, opcode.arg)
        if opcode.name in MEMO:
            raw = data[begin:place]
            number = int(raw) if opcode.name == "PUT" else int.from_bytes(raw, "little")
            if not 0 <= number <= count:  # what is remembered was made by an instruction before
                raise _RefusedError("a memo of more values than it has")
    raise _RefusedError(f"more than {OPCODES:,} instructions")


def _after(data: bytes, place: int, kind: pickletools.ArgumentDescriptor | None) -> int:
    """Where an argument ends; one that is longer than the file is refused."""
    if kind is None:
        return place
    if kind.n == pickletools.UP_TO_NEWLINE:
        for _ in range(LINES.get(kind.name, 1)):
            place = data.find(b"\n", place) + 1
            if not place:
                raise pickle.UnpicklingError("text without an end")
        return place
    size = LENGTHS.get(kind.n)
    if size is None:
        place += kind.n
    else:
        place += size + int.from_bytes(data[place : place + size], "little")
    if place > len(data):
        raise pickle.UnpicklingError("a value that is longer than the file")
    return place


class _Reader(pickle.Unpickler):
    def __init__(self, data: bytes) -> None:
        super().__init__(io.BytesIO(data), encoding="bytes")
        self.room = len(data)  # bytes that text may become; each is written once

    def encode(self, text: str, encoding: str) -> bytes:
        """Python 3 writes bytes to a protocol 2 pickle by this call."""
        if encoding not in ("latin1", "latin-1"):
            raise _RefusedError("text in an unknown encoding")
        self.room -= len(text)
        if self.room < 0:
            raise _RefusedError("the same text many times")
        return text.encode("latin-1")

    def find_class(self, module: str, name: str) -> Any:
        match module, name:
            case (("numpy.core.multiarray" | "numpy._core.multiarray"), "_reconstruct"):
                return _Placeholder(lambda *_: _Array())
            case "numpy", "ndarray":
                return _Placeholder(_refuse)  # only used as an argument of _reconstruct
            case "numpy", "dtype":
                return _Placeholder(_Dtype)
            case "_codecs", "encode":
                return _Placeholder(self.encode)
        raise _RefusedError(f"the global {module[:40]}.{name[:40]}")


def _text(key: object) -> str:
    return key.decode("utf-8", "replace") if isinstance(key, bytes) else str(key)


def read(data: bytes, name: str) -> dict[str, Any]:
    """The dictionary in the pickle `data`, its keys as text and its arrays as arrays."""
    try:
        _check(data)
        found = _Reader(data).load()
    except _RefusedError as error:
        raise RivalsError(
            f"{name} holds {error}, but CIFAR's files hold only numbers, text, lists and arrays; "
            "none of it was run; fetch the official file again."
        ) from None
    except Exception as error:  # a damaged pickle can raise nearly anything
        raise RivalsError(
            f"{name} is not a readable pickle ({type(error).__name__}); "
            "fetch the official file again."
        ) from None
    if not isinstance(found, dict):
        raise RivalsError(
            f"{name} holds a {type(found).__name__}, but CIFAR's files hold a dictionary; "
            "fetch the official file again."
        )
    return {
        _text(key): value.value if isinstance(value, _Array) else value
        for key, value in found.items()
    }
