"""What the C of a ticket takes of a device, by the compilers that are at hand.

flash   code and weights, and what starts out with a value
ram     all static memory: what lies between the layers
stack   of `ticket_classify` and all it calls, without the library of C
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from rivals.edge.runtime_c import compiler

FLAGS = ("-std=c99", "-O2", "-ffunction-sections", "-fdata-sections")
SECONDS = 300


@dataclass(frozen=True)
class CTarget:
    """A machine to compile for."""

    name: str
    prefix: str  # of its tools
    flags: tuple[str, ...] = ()
    link: tuple[str, ...] = ()  # to link the ticket with what it calls; nothing: do not link


M4 = ("-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16", "--specs=nano.specs")
ALONE = ("-nostartfiles", "-Wl,--gc-sections,-e,ticket_classify", "-lm")
TARGETS = (
    CTarget("host", ""),
    CTarget("cortex-m4", "arm-none-eabi-", M4, ALONE),
    CTarget("aarch64", "aarch64-linux-gnu-"),
)


def measure(folder: Path) -> dict[str, dict[str, int]]:
    """Bytes of flash, ram and stack on each target whose tools are there."""
    return {target.name: found for target in TARGETS if (found := measure_for(target, folder))}


def measure_for(target: CTarget, folder: Path) -> dict[str, int]:
    command = shutil.which(f"{target.prefix}gcc") if target.prefix else compiler()
    size = shutil.which(f"{target.prefix}size")
    if command is None or size is None:
        return {}
    with tempfile.TemporaryDirectory() as place:
        file, stack = Path(place) / "ticket.o", Path(place) / "ticket.su"
        words = [
            command,
            *FLAGS,
            *target.flags,
            "-c",
            str(folder.resolve() / "ticket.c"),
            "-o",
            str(file),
        ]
        if not (_run([*words, "-fstack-usage"]) or _run(words)):
            return {}
        used = deepest(stack.read_text()) if stack.exists() else None
        if target.link:
            whole = Path(place) / "ticket.elf"
            if not _run([command, *target.flags, str(file), *target.link, "-o", str(whole)]):
                return {}
            file = whole
        text, data, bss = _sections(size, file)
    found = {"flash": text + data, "ram": data + bss}
    return found if used is None else {**found, "stack": used}


def deepest(report: str) -> int:
    """The stack of `ticket_classify`, of `ticket_scores` and of the layer that takes most."""
    lines = re.findall(r":(\w+)\t(\d+)\t", report)
    ours = {name: int(size) for name, size in lines if name.startswith("ticket_")}
    layers = [int(size) for name, size in lines if name not in ours]
    return sum(ours.values()) + max(layers, default=0)


def _sections(size: str, file: Path) -> tuple[int, int, int]:
    printed = subprocess.run([size, str(file)], capture_output=True, text=True, check=True)
    text, data, bss, *_ = printed.stdout.splitlines()[1].split()
    return int(text), int(data), int(bss)


def _run(words: list[str]) -> bool:
    try:
        return subprocess.run(words, capture_output=True, timeout=SECONDS).returncode == 0
    except subprocess.TimeoutExpired:
        return False
