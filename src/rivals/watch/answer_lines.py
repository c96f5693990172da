"""A sink that writes one line of JSON for every frame."""

from __future__ import annotations

import json
from typing import TextIO

from rivals.watch.frame import Sighting


class AnswerLines:
    """JSON lines to a stream, each flushed."""

    def __init__(self, out: TextIO) -> None:
        self.out = out

    def send(self, sighting: Sighting) -> None:
        self.out.write(json.dumps(sighting.to_dict()) + "\n")
        self.out.flush()

    def close(self) -> None:
        """The stream belongs to others."""
