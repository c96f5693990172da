"""A format: how a ticket is written for a runtime. `rivals.edge` is how it is run there.

    write ─► run by rivals.edge on images of the task ─► compare with the ticket ─► put in place

A format sees a plain ticket and nothing of how it was learned.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from rivals.edge.card import VERSION
from rivals.errors import RivalsError
from rivals.io.checksum import BLANK, with_checksum
from rivals.io.files import write_bytes
from rivals.registry import Registry
from rivals.tickets.ticket import Ticket

if TYPE_CHECKING:
    from rivals.deploy.whole_model import Whole


@dataclass(frozen=True)
class Options:
    """What a user may ask of an export."""

    raw_input: bool = True  # bytes of an image in; False: prepared float32
    calibration: Tensor | None = None  # raw images of the task, for int8
    runtime: Path | None = None  # onnxruntime-web, for a page


class Format(ABC):
    """A way to write a ticket."""

    suffix = ""  # of the artefact's name; none: it is a folder
    extra: str  # what to install: pip install 'rivals[extra]'
    modules: tuple[str, ...]  # what must be importable for it
    tolerance = 1e-5  # largest difference of a probability from the ticket's
    agreement = 1.0  # share of images that get the same class, at least
    points = 1.0  # of accuracy that may be lost on held-out images

    @abstractmethod
    def write(self, ticket: Ticket, path: Path, options: Options) -> None:
        """Write the artefact to `path`, a file (or, for C, a folder) that does not exist yet."""

    def write_whole(self, whole: Whole, path: Path, options: Options) -> None:
        """Write a model that names the task; few formats can."""
        raise RivalsError("Only the formats onnx, ort and web can hold all tasks; use one of them.")

    def check_installed(self, name: str) -> None:
        """Refuse in one sentence what is not installed."""
        missing = [module for module in self.modules if find_spec(module) is None]
        if missing:
            raise RivalsError(
                f"The format '{name}' needs {', '.join(missing)}, which is not installed; "
                f"use pip install 'rivals[{self.extra}]'."
            )


def card(ticket: Ticket, options: Options) -> dict[str, Any]:
    """What an artefact says of itself: all that it takes to use it, as JSON.

    The checksum is filled in when the artefact is written.
    """
    return {
        "rivals": VERSION,
        "task": ticket.task,
        "classes": list(ticket.classes),
        "input_shape": list(ticket.input_shape),
        "preprocessing": vars(ticket.preprocessing),
        "raw_input": options.raw_input,
        "accuracy": ticket.accuracy,
        **({"sound": ticket.sound.to_dict()} if ticket.sound else {}),
        "sha256": BLANK,
    }


def write_card(path: Path, facts: dict[str, Any], *described: bytes) -> None:
    """Write a card as a file, with a checksum over itself and the files that it describes."""
    text = json.dumps(facts, indent=1, ensure_ascii=False) + "\n"
    write_bytes(path, with_checksum(text.encode(), *described))


formats: Registry[Format] = Registry(
    "format",
    {
        "c": "rivals.deploy.c",
        "executorch": "rivals.deploy.to_executorch",
        "litert": "rivals.deploy.to_litert",
        "onnx": "rivals.deploy.to_onnx",
        "onnx-int8": "rivals.deploy.int8",
        "ort": "rivals.deploy.to_onnx",
        "web": "rivals.deploy.browser",
    },
)
