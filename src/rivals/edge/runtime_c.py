"""The folder of a C program: compiled with the local C compiler and called in this process.

This runs code from the folder, so it is only called if the user allowed that (`run_native`).
"""

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

from rivals.edge.artefact_files import C_FILES, ArtefactFiles
from rivals.errors import RivalsError
from rivals.io.reading import printable

# No fused multiply-add: it rounds differently, and aarch64 would use it.
FLAGS = ("-std=c99", "-O2", "-ffp-contract=off", "-fPIC", "-shared")
COMPILERS = ("cc", "gcc", "clang")


def compiler() -> str | None:
    """The C compiler: $CC, or the first usual name that is installed."""
    wanted = shlex.split(os.environ.get("CC", ""))[:1]
    return next(filter(None, map(shutil.which, [*wanted, *COMPILERS])), None)


class CRuntime:
    """A shared library that was compiled from a folder; it is deleted after loading."""

    def __init__(self, files: ArtefactFiles) -> None:
        self.path, path = files.path, files.path
        self.classes = len(files.card.classes[0])
        self.dtype: Any = np.uint8 if files.card.raw_input else np.float32
        with tempfile.TemporaryDirectory() as place:
            # PyDLL keeps the GIL: a ticket has static memory, so only one call at a time may run.
            library = ctypes.PyDLL(str(build(files, Path(place))))
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


def build(files: ArtefactFiles, place: Path) -> Path:
    """Compile the sources that were read and checked, not those in the folder by now."""
    command = compiler()
    if command is None:
        raise RivalsError(
            f"Running {files.path} needs a C compiler, and none was found; "
            "install one, such as gcc, or name it in $CC."
        )
    for name, data in zip(C_FILES, files.content, strict=True):
        (place / name).write_bytes(data)
    library = place / "ticket.so"
    words = [command, *FLAGS, str(place / C_FILES[0]), "-o", str(library), "-lm"]
    done = subprocess.run(words, capture_output=True, text=True, errors="replace")
    if done.returncode:
        reason = next((line for line in done.stderr.splitlines() if "error" in line), "no reason")
        raise RivalsError(
            f"{command} does not compile {files.path / C_FILES[0]} "
            f"({printable(reason.removeprefix(f'{place}/'))}); export it again."
        )
    return library
