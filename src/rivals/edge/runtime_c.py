"""The folder of a C program: compiled with the local C compiler and called in this process."""

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

# No fused multiply-add: it rounds differently, and aarch64 would use it.
FLAGS = ("-std=c99", "-O2", "-ffp-contract=off", "-fPIC", "-shared")
COMPILERS = ("cc", "gcc", "clang")


def compiler() -> str | None:
    """The C compiler: $CC, or the first usual name that is installed."""
    wanted = shlex.split(os.environ.get("CC", ""))[:1]
    return next(filter(None, map(shutil.which, [*wanted, *COMPILERS])), None)


class CRuntime:
    """A shared library that was compiled from a folder; it is deleted after loading."""

    def __init__(self, path: Path, threads: int = 1) -> None:
        self.path = path
        self.card: str | None = read_sidecar(path)
        card = read_card(self.card, path)
        self.classes = len(card.classes[0])
        self.dtype: Any = np.uint8 if card.raw_input else np.float32
        with tempfile.TemporaryDirectory() as place:
            # PyDLL keeps the GIL: a ticket has static memory, so only one call at a time may run.
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
            f"Running {folder} needs a C compiler, and none was found; "
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
