"""What an ONNX or ORT file holds, read without a runtime: its card, and what it must not hold.

A ticket is layers in a row. Files that refer to other files, or whose operators hold graphs (loops,
branches, functions), are not of our making and are refused before a runtime sees them. Only the
way to these fields is followed; everything else is left to the runtime.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

PARTS = 1_000_000  # fields and tables that are looked at, at most
EXTERNAL = "it refers to another file"
NESTED = "an operator holds a graph of its own"
SPARSE = "it holds sparse weights"
MANY = "it has more parts than any ticket"
MALFORMED = "it is not well formed"
CUT = "it is cut off"


class GraphFileError(ValueError):
    """The file is not well formed, or holds what a ticket does not; the message says which."""


def onnx_card(data: bytes) -> str | None:
    """The card in the metadata of an ONNX file."""
    return _card(_onnx_entries(data))


def ort_card(data: bytes) -> str | None:
    """The card in the metadata of an ORT file."""
    try:
        return _card(_ort_entries(data))
    except struct.error as error:
        raise GraphFileError(CUT) from error


def _card(entries: Iterator[tuple[bytes, bytes]]) -> str | None:
    cards = [value for key, value in entries if key == b"rivals"]
    if len(cards) > 1:
        raise GraphFileError("it has two cards")
    try:
        return cards[0].decode() if cards else None
    except UnicodeDecodeError as error:
        raise GraphFileError("its card is not text") from error


# ONNX: protocol buffers ---------------------------------------------------------------------------

INNER = {  # the messages on the way, by the message that holds them and the number of the field
    "model": {7: "graph", 14: "entry"},
    "graph": {1: "node", 5: "tensor"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 10: "tensor"},
}
REFUSED = {
    "model": {20: "it holds training", 25: NESTED},
    "graph": {15: SPARSE},
    "attribute": {6: NESTED, 11: NESTED, 22: SPARSE, 23: SPARSE},
    "tensor": {13: EXTERNAL},
}


def _onnx_entries(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Key and value of the metadata, while all that is inside is checked."""
    left, seen = [("model", 0, len(data))], 0
    while left:
        kind, start, end = left.pop()
        texts: dict[int, bytes] = {}
        for number, first, last in _fields(data, start, end):
            seen += 1
            if seen > PARTS:
                raise GraphFileError(MANY)
            if number in REFUSED.get(kind, {}):
                raise GraphFileError(REFUSED[kind][number])
            inner = INNER.get(kind, {}).get(number)
            if inner:
                if first < 0:
                    raise GraphFileError(MALFORMED)
                left.append((inner, first, last))
            elif kind == "entry":
                texts[number] = data[first:last] if first >= 0 else b""
        if kind == "entry":
            yield texts.get(1, b""), texts.get(2, b"")


def _fields(data: bytes, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Number, first and last byte of each field of a message; -1 where it is a plain number."""
    at = start
    while at < end:
        key, at = _varint(data, at, end)
        wire, number = key & 7, key >> 3
        first = -1
        if wire == 0:
            _, at = _varint(data, at, end)
        elif wire == 1:
            at += 8
        elif wire == 5:
            at += 4
        elif wire == 2:
            length, first = _varint(data, at, end)
            at = first + length
        else:  # groups, which ONNX does not use
            raise GraphFileError(MALFORMED)
        if at > end:
            raise GraphFileError(CUT)
        yield number, first, at


def _varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= end:
            raise GraphFileError(CUT)
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    raise GraphFileError(MALFORMED)


# ORT: flatbuffers ---------------------------------------------------------------------------------

SESSION_MODEL = 1  # numbers of fields in the tables of ort.fbs
MODEL_GRAPH, MODEL_METADATA = 7, 9
GRAPH_TENSORS, GRAPH_NODES, GRAPH_SPARSE = 0, 2, 7
NODE_ATTRIBUTES = 10
ATTRIBUTE_TENSOR, ATTRIBUTE_GRAPH, ATTRIBUTE_TENSORS, ATTRIBUTE_GRAPHS = 6, 7, 11, 12
TENSOR_EXTERNAL = 6
IDENTIFIER = b"ORTM"


def _ort_entries(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    if data[4:8] != IDENTIFIER:
        raise GraphFileError("it is not an ORT file")
    tables = _Tables(data)
    model = tables.inner(tables.offset(0), SESSION_MODEL)
    graph = tables.inner(model, MODEL_GRAPH)
    if any(tables.items(graph, GRAPH_SPARSE)):
        raise GraphFileError(SPARSE)
    tensors = list(tables.items(graph, GRAPH_TENSORS))
    for node in tables.items(graph, GRAPH_NODES):
        for attribute in tables.items(node, NODE_ATTRIBUTES):
            nested = any(tables.items(attribute, ATTRIBUTE_GRAPHS))
            if nested or tables.field(attribute, ATTRIBUTE_GRAPH):
                raise GraphFileError(NESTED)
            if tables.field(attribute, ATTRIBUTE_TENSOR):
                tensors.append(tables.inner(attribute, ATTRIBUTE_TENSOR))
            tensors += tables.items(attribute, ATTRIBUTE_TENSORS)
    for tensor in tensors:
        place = tables.field(tensor, TENSOR_EXTERNAL)
        if place and tables.number("<q", place) >= 0:
            raise GraphFileError(EXTERNAL)
    for entry in tables.items(model, MODEL_METADATA):
        yield tables.text(entry, 0), tables.text(entry, 1)


class _Tables:
    """Tables of a flatbuffer, each named by the position of its first byte."""

    def __init__(self, data: bytes) -> None:
        self.data, self.seen = data, 0

    def number(self, kind: str, at: int) -> int:
        """A number of a kind of `struct`; beyond the end, struct.error is raised."""
        if at < 0:
            raise GraphFileError(MALFORMED)
        found: int = struct.unpack_from(kind, self.data, at)[0]
        return found

    def offset(self, at: int) -> int:
        """The position that an offset stored at `at` leads to."""
        return at + self.number("<I", at)

    def field(self, table: int, number: int) -> int:
        """The position of a field of a table; 0 where it has none."""
        self.seen += 1
        if self.seen > PARTS:
            raise GraphFileError(MANY)
        names = table - self.number("<i", table)
        place = 4 + 2 * number
        if place + 2 > self.number("<H", names):
            return 0
        within = self.number("<H", names + place)
        return table + within if within else 0

    def inner(self, table: int, number: int) -> int:
        place = self.field(table, number)
        if not place:
            raise GraphFileError(MALFORMED)
        return self.offset(place)

    def items(self, table: int, number: int) -> Iterator[int]:
        """The tables of a list; none where it is not there."""
        place = self.field(table, number)
        if place:
            first = self.offset(place)
            for count in range(self.number("<I", first)):
                self.seen += 1
                if self.seen > PARTS:
                    raise GraphFileError(MANY)
                yield self.offset(first + 4 + 4 * count)

    def text(self, table: int, number: int) -> bytes:
        start = self.inner(table, number)
        length = self.number("<I", start)
        if start + 4 + length > len(self.data):
            raise GraphFileError(CUT)
        return self.data[start + 4 : start + 4 + length]
