"""A stream to choose settings with: test examples are replaced by validation examples."""

from __future__ import annotations

import dataclasses

from rivals.errors import RivalsError, unknown
from rivals.streams.stream import Stream, StreamItem

MEASURED_ON = ("test", "validation")
NOTE = "measured on validation images"


class OnValidation(Stream):
    """A stream whose tasks are tested on their validation examples.

    A method that learns from validation images (a judge keeps some) looks too good here.
    """

    def __init__(self, stream: Stream) -> None:
        self.stream, self.name = stream, stream.name
        self.input_shape, self.fingerprint = stream.input_shape, stream.fingerprint
        self.subset = "; ".join(filter(None, [stream.subset, NOTE]))  # printed with every result

    def __len__(self) -> int:
        return len(self.stream)

    def __getitem__(self, index: int) -> StreamItem:
        item = self.stream[index]
        if not len(item.task.validation):
            raise RivalsError(
                f"The task '{item.task.name}' has no validation images; measure on test images, or "
                "use validation_share=0.05."
            )
        return dataclasses.replace(item, test=item.task.validation)


def measured_on(stream: Stream, on: str) -> Stream:
    """`stream` with the images that accuracy is measured on: test or validation."""
    if on not in MEASURED_ON:
        raise unknown("kind of images to measure on", on, MEASURED_ON)
    return OnValidation(stream) if on == "validation" else stream
