"""Files of tensors as arrays of numpy: checked before they are believed, written as torch reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray
from safetensors import SafetensorError

from rivals.errors import RivalsError

Arrays = dict[str, NDArray[Any]]


def arrays_of(data: bytes) -> Arrays:
    """The arrays in a file, whose numbers are finite; a ValueError is its damage."""
    try:
        arrays: Arrays = safetensors.numpy.load(data)
    except (SafetensorError, ValueError, KeyError, AttributeError) as error:
        raise ValueError("holds no tensors") from error
    if not all(np.isfinite(each).all() for each in arrays.values() if each.dtype.kind == "f"):
        raise ValueError("has numbers that are not finite")
    return {name: each.copy() for name, each in arrays.items()}  # what is read may lie unaligned


def encoded(task: str, arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """The bytes of a file; numbers that are not finite are refused."""
    if not all(np.isfinite(each).all() for each in arrays.values() if each.dtype.kind == "f"):
        raise RivalsError(
            f"What was learned of '{task}' is not finite, so the model was left as it was; try "
            "other pictures."
        )
    found: bytes = safetensors.numpy.save(
        {name: np.ascontiguousarray(each) for name, each in arrays.items()}
    )
    return found


def below(arrays: Mapping[str, NDArray[Any]], prefix: str) -> Arrays:
    """Those whose names begin with the prefix, by the rest of their names."""
    return {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}
