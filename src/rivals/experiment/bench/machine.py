"""Which machine the numbers are from, and what a process occupies in its memory."""

from __future__ import annotations

import os
import platform
import resource
from pathlib import Path
from typing import Any

import torch

STATUS = Path("/proc/self/status")
PROCESSORS = Path("/proc/cpuinfo")


def machine() -> dict[str, Any]:
    """Processor, cores, versions, threads, and how busy it is with other things."""
    return {
        "cpu": _processor(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "threads": torch.get_num_threads(),
        "load": round(os.getloadavg()[0], 1),
    }


def _processor() -> str:
    if PROCESSORS.exists():
        for line in PROCESSORS.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def peak_memory() -> int:
    """The largest resident size of this process so far, in bytes.

    The kernel's own count of this program: `ru_maxrss` would begin at the size of the process that
    started it, and is used only where there is no other.
    """
    return _status("VmHWM") or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def resident_memory() -> int:
    """The present resident size of this process, in bytes."""
    return _status("VmRSS") or peak_memory()


def _status(field: str) -> int:
    if STATUS.exists():
        for line in STATUS.read_text().splitlines():
            if line.startswith(f"{field}:"):
                return int(line.split()[1]) * 1024
    return 0
