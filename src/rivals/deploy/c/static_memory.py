"""Where everything between two layers lies: one piece of memory, shared by what never meets.

A buffer lives from the step that writes it to the last that reads it. Buffers that are alive at the
same step lie apart; others may overlap. A layer that changes value by value writes over its input
where that is not read any more. So the memory of a ticket is about that of its two or three
largest neighbours and not that of all layers.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from rivals.deploy.c.c_network import IMAGE, SCORES, CNetwork

# Each value depends on values of the same position.
IN_PLACE = {"Relu", "Reshape", "Add", "Mul", "Div", "Sqrt"}


@dataclass
class Buffer:
    """Some floats and the steps at which they are needed."""

    floats: int
    first: int
    last: int
    start: int = 0  # where it lies

    def meets(self, other: Buffer) -> bool:
        return self.first <= other.last and other.first <= self.last


@dataclass(frozen=True)
class Memory:
    """The places of all buffers, and how many floats they take together."""

    starts: dict[str, int]
    floats: int


def plan(network: CNetwork, prepares: bool) -> Memory:
    """Places for all that is between the layers, and for the image if it is prepared here."""
    owners = _owners(network, prepares)
    buffers = {owner: Buffer(floats(network, owner), 0, 0) for owner in owners.values()}
    for owner in buffers:
        steps = [
            number
            for number, step in enumerate(network.steps)
            if any(owners.get(name) == owner for name in step.arguments)
        ]
        # The image is prepared before the first step.
        buffers[owner].first = -1 if owner == IMAGE else min(steps)
        buffers[owner].last = max(steps)
    together = place(list(buffers.values()))
    return Memory({name: buffers[owner].start for name, owner in owners.items()}, together)


def floats(network: CNetwork, name: str) -> int:
    return prod(network.shapes[name])


def _owners(network: CNetwork, prepares: bool) -> dict[str, str]:
    """Whose buffer each value lies in: its own, or that of what it is written over."""
    last = {name: number for number, step in enumerate(network.steps) for name in step.inputs}
    owners = {IMAGE: IMAGE} if prepares else {}  # a caller's image is not to be written over
    for number, step in enumerate(network.steps):
        if step.output == SCORES:
            continue
        owners[step.output] = step.output
        if step.operation not in IN_PLACE:
            continue
        for name in step.inputs:
            fits = name in owners and floats(network, name) == floats(network, step.output)
            if fits and last[name] == number:
                owners[step.output] = owners[name]
                break
    return owners


def place(buffers: list[Buffer]) -> int:
    """Give every buffer its start, the largest first and as low as possible; the floats of all."""
    placed: list[Buffer] = []
    for buffer in sorted(buffers, key=lambda b: (-b.floats, b.first)):
        start = 0
        for other in sorted((b for b in placed if b.meets(buffer)), key=lambda b: b.start):
            if start + buffer.floats <= other.start:
                break
            start = max(start, other.start + other.floats)
        buffer.start = start
        placed.append(buffer)
    return max((buffer.start + buffer.floats for buffer in placed), default=0)
