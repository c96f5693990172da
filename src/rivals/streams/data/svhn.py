"""SVHN's cropped digits: MATLAB files with X (32, 32, 3, n) and y (n, 1), where 10 stands for 0."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rivals.errors import RivalsError
from rivals.streams.data.decoded import Decoded, Images, Labels, Split

CHUNK = 4_096
LARGEST = 600_000  # images; the release's `extra` file has 531,131


def _expect(path: Path, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """X and y must have matching shapes; this is checked in the headers, before unpacking."""
    image, label = shapes.get("X"), shapes.get("y")
    fits = (
        image is not None
        and label is not None
        and len(image) == 4
        and image[:3] == (32, 32, 3)
        and label == (image[3], 1)
        and 0 < image[3] <= LARGEST
    )
    if not fits:
        found = ", ".join(
            f"{name} {'×'.join(map(str, shape))}" for name, shape in sorted(shapes.items())[:4]
        )
        raise RivalsError(
            f"{path} holds {found or 'nothing'}, but X 32×32×3×n and y n×1 were expected; "
            "fetch the official file again."
        )


def _split(path: Path) -> Split:
    from scipy.io import loadmat, whosmat

    try:
        _expect(path, {name: shape for name, shape, _ in whosmat(str(path))})
        content: dict[str, Any] = loadmat(str(path), variable_names=["X", "y"])
    except RivalsError:
        raise
    except Exception as error:  # scipy raises many errors for a file that is not MATLAB
        raise RivalsError(
            f"{path} is not a readable MATLAB 5 file ({type(error).__name__}); "
            "remove it and fetch the official file again."
        ) from None
    images, marks = content["X"], content["y"]
    _expect(path, {"X": images.shape, "y": marks.shape})
    if images.dtype != np.uint8 or marks.dtype.kind not in "iuf":
        raise RivalsError(
            f"{path} holds X of type {images.dtype} and y of type {marks.dtype}, but bytes and "
            "numbers were expected; fetch the official file again."
        )
    labels: Labels = marks[:, 0].astype(np.int64)
    if labels.min() < 1 or labels.max() > 10:
        raise RivalsError(
            f"{path} has labels from {labels.min()} to {labels.max()}, but 1 to 10 were expected; "
            "fetch the official file again."
        )

    def chunks() -> Iterator[Images]:
        for start in range(0, len(labels), CHUNK):
            yield np.ascontiguousarray(images[..., start : start + CHUNK].transpose(3, 2, 0, 1))

    return Split(labels % 10, (3, 32, 32), chunks())


def read(files: Mapping[str, Path], size: int) -> Decoded:
    """Both splits of SVHN."""
    return Decoded(tuple("0123456789"), _split(files["train"]), _split(files["test"]))
