"""Machines that tests run C on: this one, a bare Cortex-M4, and Linux on aarch64, emulated."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

BOARD = (
    "qemu-system-arm", "-M", "mps2-an386", "-nographic", "-monitor", "none", "-serial", "none",
    "-semihosting-config", "enable=on,target=native", "-kernel",
)  # fmt: skip


def need(*tools):
    """Skip, in a sentence, where a tool is missing."""
    missing = [tool for tool in tools if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} not installed; `make device-test` installs it.")


def build(folder, target="host", **variables):
    """Carry out a target of an exported Makefile; warnings are errors in it."""
    need("make")
    words = [f"{name}={value}" for name, value in variables.items()]
    done = subprocess.run(["make", "-C", folder, target, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return folder


def run(command, images, timeout=120):
    """Give a program the bytes of images; (names, confidences, scores) that it printed."""
    done = subprocess.run(
        [str(word) for word in command], input=images.tobytes(), capture_output=True,
        timeout=timeout,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    rows = [line.split("\t") for line in done.stdout.decode().splitlines()]
    assert len(rows) == len(images)
    numbers = np.array([row[1:] for row in rows], np.float64)
    return [row[0] for row in rows], numbers[:, 0], numbers[:, 1:]


def qemu_arm(program):
    """The command that runs a Cortex-M program without a board, or a skip in a sentence.

    The qemu-arm of Debian 12 stops at its own assertion, whatever the program; `make device-test`
    puts a newer one into build/qemu.
    """
    newer = Path(__file__).parent.parent / "build" / "qemu" / "usr" / "bin" / "qemu-arm"
    for command in filter(None, map(shutil.which, (str(newer), "qemu-arm"))):
        words = [command, "-cpu", "cortex-m4", str(program)]
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if "GUEST_ADDR_MAX" not in done.stderr:
            return words
    pytest.skip("no qemu-arm that starts Cortex-M programs; `make device-test` installs one.")
