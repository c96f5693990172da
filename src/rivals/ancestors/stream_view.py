"""A stream as an ancestor looks at it: pictures of its size, prepared as it knows them."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from rivals.ancestors import ANCESTORS_SIDES, fitting_side
from rivals.nn.plain_layers import Resize
from rivals.streams.stream import Stream, StreamItem
from rivals.streams.task import Examples, centred

IMAGES = 1000  # resized at once


class StreamForAncestor(Stream):
    """The same tasks, with pictures resized and prepared for the shipped ancestors."""

    def __init__(self, stream: Stream) -> None:
        self.stream, self.name = stream, stream.name
        self.fingerprint, self.subset = stream.fingerprint, stream.subset
        channels, height, width = stream.input_shape
        self.side = fitting_side(min(height, width), ANCESTORS_SIDES)
        self.input_shape = channels, self.side, self.side

    def __len__(self) -> int:
        return len(self.stream)

    def __getitem__(self, index: int) -> StreamItem:
        item = self.stream[index]
        task = item.task
        prepared = replace(
            task, train=self.resized(task.train), validation=self.resized(task.validation),
            preprocessing=centred(self.input_shape[0], task.preprocessing.scale),
        )  # fmt: skip
        return StreamItem(prepared, self.resized(item.test))

    def resized(self, examples: Examples) -> Examples:
        """The pictures as bytes of another size: (n, channels, side, side)."""
        resize, images = Resize(self.side), examples.images
        if images.shape[-2:] == (self.side, self.side):
            return examples
        out = images.new_empty(len(images), *self.input_shape)
        for start in range(0, len(images), IMAGES):
            some: Tensor = resize(images[start : start + IMAGES].float())
            out[start : start + IMAGES] = some.round().clamp(0, 255).to(out.dtype)
        return Examples(out, examples.labels)
