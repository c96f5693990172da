"""network.h, network_int8.c and network_float.c: sizes, steps and numbers of the features."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from rivals.deploy.c.static_memory import Buffer, place
from rivals.deploy.teachable.calibrated_body import CalibratedBody
from rivals.deploy.teachable.feature_layers import IMAGE
from rivals.deploy.teachable.integer_features import IntegerFeatures

HEADER = """\
/* Sizes of the ancestor '{name}' for images of {channels} x {height} x {width}. */
#ifndef NETWORK_H
#define NETWORK_H

#define TEACH_CHANNELS {channels}
#define TEACH_HEIGHT {height}
#define TEACH_WIDTH {width}
#define TEACH_FEATURES {features}
#define TEACH_INITIAL {initial} /* classes that are known from the start */
#define NETWORK_LAYERS {layers}
#define NETWORK_MEMORY {memory} /* activations at a time */
#define NETWORK_PATCH {patch} /* activations that one sum reads, at most */
#define NETWORK_WIDEST {widest} /* outputs of a step, at most */
#ifdef TEACH_FLOAT
#define NETWORK_ZERO {zero_float}
#else
#define NETWORK_ZERO {zero}
#endif

#endif
"""

SOURCE = """\
/* The ancestor '{name}' in {kind}. Written by rivals. */
#include <stddef.h>

#include "layers.h"

{arrays}
const layer network_layers[NETWORK_LAYERS] = {{
{rows}
}};
const uint32_t network_id = 0x{id:08X}u;
"""


@dataclass(frozen=True)
class Shape:
    """The sizes of a step, and where its output lies."""

    read: tuple[int, int, int]  # channels, height, width
    written: tuple[int, int, int]
    target: int = 0


def shapes(body: CalibratedBody) -> list[Shape]:
    """Of every step, with places for all that is between them; what never meets may overlap."""
    found: list[Shape] = []
    for step in body.steps:
        read = body.input_shape if step.source == IMAGE else found[step.source].written
        rows, columns = (
            ((size + 2 * step.padding - step.weight.shape[-1]) // step.stride + 1) // step.pool
            for size in read[1:]
        )
        found.append(Shape(read, (len(step.weight), rows, columns)))
    lives = [
        Buffer(int(np.prod(each.written)), number, number) for number, each in enumerate(found)
    ]
    for number, step in enumerate(body.steps):
        for other in (step.source, step.added):
            if other is not None and other != IMAGE:
                lives[other].last = number
    place(lives)
    return [Shape(s.read, s.written, life.start) for s, life in zip(found, lives, strict=True)]


def network_header(body: CalibratedBody, whole: IntegerFeatures, initial: int) -> str:
    channels, height, width = body.input_shape
    placed = shapes(body)
    return HEADER.format(
        name=plain(body.name), channels=channels, height=height, width=width,
        features=len(body.centre), initial=initial, layers=len(body.steps),
        memory=max(each.target + int(np.prod(each.written)) for each in placed),
        patch=max(step.weight[0].numel() for step in body.steps),
        widest=max(len(step.weight) for step in body.steps),
        zero=whole.zero, zero_float=number_of(body.zero),
    )  # fmt: skip


def integer_source(body: CalibratedBody, whole: IntegerFeatures) -> str:
    """The numbers of integer_features.py; shorter where the types of layers.h are shorter."""
    arrays: list[Array] = []
    for number, step in enumerate(whole.steps):
        arrays += [
            ("int8_t", f"weights{number}", output_major(step.weight).astype(np.int8)),
            ("int32_t", f"bias{number}", step.bias.numpy().astype(np.int32)),
            ("int32_t", f"multiplier{number}", step.multiplier.numpy().astype(np.int32)),
        ]
    arrays += [
        ("int32_t", "network_centre", whole.centre.numpy().astype(np.int32)),
        ("int16_t", "network_factor", lower(whole.factor).astype(np.int16)),
        ("uint8_t", "network_shift", np.array(whole.shifts, np.uint8)),
    ]
    tails = [
        f"multiplier{number}, {step.added_multiplier}, {step.shift}"
        for number, step in enumerate(whole.steps)
    ]
    return _source(body, "whole numbers", arrays, tails)


def float_source(body: CalibratedBody) -> str:
    arrays: list[Array] = []
    for number, step in enumerate(body.steps):
        arrays += [
            ("float", f"weights{number}", output_major(step.weight).astype(np.float32)),
            ("float", f"bias{number}", step.bias.numpy().astype(np.float32)),
        ]
    factor, centre = body.factor / body.positions, body.centre * body.positions
    arrays += [
        ("float", "network_centre", centre.numpy().astype(np.float32)),
        ("float", "network_factor", lower(factor).astype(np.float32)),
        ("uint8_t", "network_shift", np.zeros(len(centre), np.uint8)),
    ]
    return _source(body, "floating point", arrays, ["NULL, 0, 0"] * len(body.steps))


Array = tuple[str, str, NDArray[Any]]


def _source(body: CalibratedBody, kind: str, arrays: list[Array], tails: Sequence[str]) -> str:
    placed, rows = shapes(body), []
    for number, (step, shape, tail) in enumerate(zip(body.steps, placed, tails, strict=True)):
        (inputs, height, width), (outputs, down, across) = shape.read, shape.written
        source = "LAYER_NONE" if step.source == IMAGE else placed[step.source].target
        added = "LAYER_NONE" if step.added is None else placed[step.added].target
        rows.append(
            f"    {{{height}, {width}, {inputs}, {down}, {across}, {outputs}, "
            f"{step.weight.shape[-1]}, {step.stride}, {step.padding}, {step.pool},\n"
            f"     {source}, {shape.target}, {added}, weights{number}, bias{number}, {tail}}},"
        )
    numbers = b"".join(values.astype(values.dtype.newbyteorder("<")).tobytes()
                       for _, _, values in arrays)  # fmt: skip
    return SOURCE.format(
        name=plain(body.name), kind=kind, arrays="\n".join(map(array, arrays)),
        rows="\n".join(rows), id=zlib.crc32("".join(rows).encode() + numbers),
    )  # fmt: skip


def network_id(text: str) -> int:
    """The checksum of the numbers in a source."""
    return int(text.rpartition("network_id = 0x")[2][:8], 16)


def output_major(weight: Tensor) -> NDArray[np.float64]:
    """(outputs, inputs, k, k) in the order of a patch: output by output, row, column, input."""
    return weight.permute(0, 2, 3, 1).double().numpy().ravel()


def lower(matrix: Tensor) -> NDArray[np.float64]:
    """The lower triangle, row by row."""
    found = matrix.double().numpy()
    return np.asarray(found[np.tril_indices(len(found))])


def array(found: Array) -> str:
    """`static const int8_t weights0[432] = {…};`; what other files see is not static."""
    kind, name, values = found
    seen = "" if name.startswith("network_") else "static "
    words = list(map(number_of, values.tolist()))
    return f"{seen}const {kind} {name}[{len(words)}] = {{\n{wrapped(words)}\n}};"


def wrapped(words: Iterable[str], width: int = 100) -> str:
    lines, line = [], ""
    for word in words:
        if len(line) + len(word) + 2 > width:
            lines.append(line)
            line = ""
        line += f" {word}," if line else f"    {word},"
    return "\n".join([*lines, line])


def number_of(value: float | int) -> str:
    """A whole number, or a float32, exactly."""
    if isinstance(value, int):
        return str(value)
    text = f"{np.float32(value):.9g}"
    return f"{text if set(text) & set('.en') else text + '.0'}f"


def plain(name: str) -> str:
    """A name inside a comment, whatever is in it."""
    return "".join(letter if letter.isalnum() or letter in " -_." else "?" for letter in name)
