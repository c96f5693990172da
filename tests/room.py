"""A small room for a process: 64 MB of memory and a quarter of a core, where nothing else is asked.

A control group holds it where the system lets us make one (root, version 1 or 2). Elsewhere a
guard does: it kills a process that is seen with more resident memory, and stops it for three
quarters of the time. RLIMIT_AS and RLIMIT_DATA would not be honest here: they count addresses that
are reserved and never touched, of which numpy and onnxruntime together have 200 MB.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

MEMORY = 64 * 2**20
SHARE = 0.25  # of a core
BOARD = 512 * 2**20  # memory of a small board with Linux
GROUPS = Path("/sys/fs/cgroup")


@contextlib.contextmanager
def groups(memory: int = MEMORY, share: float = SHARE) -> Iterator[list[Path] | None]:
    """Folders of control groups that hold their members to the room; None where it is denied."""
    name = f"rivals-{os.getpid()}"
    period, quota = 100_000, int(100_000 * share)
    if (GROUPS / "memory").is_dir():  # version 1
        limits = {
            GROUPS / "memory" / name: {
                "memory.limit_in_bytes": memory,
                "memory.memsw.limit_in_bytes": memory,
            },
            GROUPS / "cpu" / name: {"cpu.cfs_period_us": period, "cpu.cfs_quota_us": quota},
        }
    else:
        limits = {
            GROUPS / name: {
                "memory.max": memory,
                "memory.swap.max": 0,
                "cpu.max": f"{quota} {period}",
            }
        }
    try:
        try:
            for folder, values in limits.items():
                folder.mkdir()
                for file, value in values.items():
                    if "sw" in file and not (folder / file).exists():
                        continue  # a system without an account of its swap
                    (folder / file).write_text(str(value))
        except OSError:
            yield None
            return
        yield list(limits)
    finally:
        for folder in limits:
            with contextlib.suppress(OSError):
                folder.rmdir()


@contextlib.contextmanager
def denied(*_: float) -> Iterator[None]:
    """As where no control group may be made."""
    yield None


def resident(process: int) -> int:
    """Bytes of a process that are in memory; 0 when it has ended."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return 0
    found = [line.split()[1] for line in lines if line.startswith("VmRSS")]
    return int(found[0]) * 1024 if found else 0


def guard(process: subprocess.Popen[str], memory: int, share: float) -> None:
    """Hold a process to the room from outside, until it ends."""
    beat = 0.02
    while process.poll() is None:
        for act, seconds in ((signal.SIGCONT, beat * share), (signal.SIGSTOP, beat * (1 - share))):
            with contextlib.suppress(ProcessLookupError):
                if seconds > 0:
                    process.send_signal(act)
            time.sleep(seconds)
            if resident(process.pid) > memory:
                process.kill()


def run(
    command: list[str], seconds: float, memory: int = MEMORY, share: float = SHARE,
    **options: object,
) -> tuple[int, str, str]:  # fmt: skip
    """Status, output and errors of a command in the room; killed after `seconds` of its CPU."""
    with groups(memory, share) as folders:

        def enter() -> None:
            for folder in folders or []:
                (folder / "cgroup.procs").write_text(str(os.getpid()))

        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=enter,
            **options,  # type: ignore[call-overload]
        )  # fmt: skip
        try:
            if folders is None:
                guard(process, memory, share)
            printed, told = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            printed, told = process.communicate()
        return process.returncode, printed, told
