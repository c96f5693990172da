"""The folder of a C program: compiled by the compiler at hand and called in this process."""

from __future__ import annotations

import ctypes
import os
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rivals.edge.card import read_card, read_sidecar
from rivals.errors import RivalsError

# As exact as the ticket: no fused steps that round otherwise, which aarch64 would take.
FLAGS = ("-std=c99", "-O2", "-ffp-contract=off", "-fPIC", "-shared")
COMPILERS = ("cc", "gcc", "clang")


def compiler() -> str | None:
    """The compiler of C that is at hand: $CC, or what systems call it."""
    wanted = shlex.split(os.environ.get("CC", ""))[:1]
    return next(filter(None, map(shutil.which, [*wanted, *COMPILERS])), None)


class CRuntime:
    """A library that was made of a folder; it is gone when the process ends."""

    def __init__(self, path: Path, threads: int = 1) -> None:
        self.path = path
        self.card: str | None = read_sidecar(path)
        card = read_card(self.card, path)
        self.classes = len(card.classes[0])
        self.dtype: Any = np.uint8 if card.raw_input else np.float32
        with tempfile.TemporaryDirectory() as place:
            # PyDLL holds Python's lock: the memory of a ticket is for one call at a time.
            library = ctypes.PyDLL(str(build(path, Path(place))))
        try:
            self.ticket_scores = library.ticket_scores
        except AttributeError as error:
            raise RivalsError(f"{path}/ticket.c has no ticket_scores; export it again.") from error
        self.ticket_scores.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
        self.ticket_scores.restype = None

    def __call__(self, images: NDArray[Any]) -> list[NDArray[Any]]:
        images = np.ascontiguousarray(images, self.dtype)
        scores = np.empty((len(images), self.classes), np.float32)
        for image, row in zip(images, scores, strict=True):
            self.ticket_scores(image.ctypes.data, row.ctypes.data)
        return [scores]


def build(folder: Path, place: Path) -> Path:
    """Compile `folder` to a library in `place`."""
    command, source = compiler(), folder / "ticket.c"
    if command is None:
        raise RivalsError(
            f"Running {folder} needs a compiler of C, and there is none; "
            "install one, such as gcc, or name it in $CC."
        )
    if not source.is_file():
        raise RivalsError(f"{folder} holds no ticket.c; make it with `rivals export --to c`.")
    library = place / "ticket.so"
    words = [command, *FLAGS, str(source.resolve()), "-o", str(library), "-lm"]
    done = subprocess.run(words, capture_output=True, text=True, errors="replace")
    if done.returncode:
        reason = next((line for line in done.stderr.splitlines() if "error" in line), "no reason")
        raise RivalsError(f"{command} does not compile {source} ({reason}); export it again.")
    return library
