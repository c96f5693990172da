"""A device that is taught over a line: the example program of an export, here or emulated."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from rivals.errors import RivalsError

SECONDS = 600
TICKS = "ticks"


@dataclass(frozen=True)
class Line:
    """A command, with the picture (channels, height, width) that follows it."""

    words: tuple[str, ...]
    picture: Tensor | None = None

    @property
    def sent(self) -> bytes:
        data = b"" if self.picture is None else self.picture.contiguous().numpy().tobytes()
        return "\t".join(self.words).encode() + b"\n" + data


def build(folder: Path, target: str, **variables: str) -> Path:
    """Carry out a target of an exported Makefile; the folder."""
    words = [f"{name}={value}" for name, value in variables.items()]
    done = subprocess.run(
        ["make", "-s", "-C", str(folder), target, *words], capture_output=True, text=True,
        timeout=SECONDS,
    )  # fmt: skip
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["make said nothing"])[-1]
        raise RivalsError(f"The example in {folder} could not be built ({last}).")
    return folder


def say(program: Sequence[Any], lines: Sequence[Line], place: Path) -> list[str]:
    """What a program answers, line by line; its flash lies in the folder `place`."""
    place.mkdir(exist_ok=True)
    done = subprocess.run(
        [str(word) for word in program], input=b"".join(line.sent for line in lines),
        capture_output=True, cwd=place, timeout=SECONDS,
    )  # fmt: skip
    if done.returncode != 0 or done.stderr:
        said = done.stderr.decode(errors="replace").strip()[:500]
        raise RivalsError(f"The device ended with status {done.returncode}: {said or 'no word'}.")
    return done.stdout.decode().splitlines()


def ticks(answers: Sequence[str], verb: str) -> list[int]:
    """Of all commands with this verb, where the program was compiled with -DTEACH_TICKS."""
    rows = [line.split("\t") for line in answers if line.startswith(f"{TICKS}\t")]
    return [int(number) for _, known, number in rows if known == verb]


def without_ticks(answers: Sequence[str]) -> list[str]:
    return [line for line in answers if not line.startswith(f"{TICKS}\t")]
