"""The mark of a ticket in the history of a model: a checksum of all that decides about its answers.

Whoever writes a model computes it, with torch or without, so numbers come as arrays of numpy; their
types are named as torch names them, which is how the first histories were written.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rivals.model.manifest import Description


def ticket_mark(
    content: Description, task: str, classes: Sequence[str], preparation: object,
    parts: Mapping[str, NDArray[Any]],
) -> str:  # fmt: skip
    """The checksum of a ticket.

    Args:
        content: The model.
        task: Its name, or nothing, where the mark is to be the same in another model.
        classes: The names of its classes.
        preparation: How pictures are prepared, where an ancestor of the model's own says so.
        parts: What is stored of the task, and the weights of its ticket layer by layer.
    """
    named: tuple[object, ...] = content.network, content.input_shape, task, tuple(classes)
    if content.sound:
        named += (content.sound,)
    if preparation is not None:
        named += (preparation,)
    if content.ancestor and content.ancestor.timm:
        named += (content.ancestor.timm, content.ancestor.sha256)
    found = hashlib.sha256(repr(named).encode())
    for name, values in sorted(parts.items()):
        found.update(f"\n{name} torch.{values.dtype} {values.shape}\n".encode())
        found.update(np.ascontiguousarray(values).tobytes())
    return found.hexdigest()
