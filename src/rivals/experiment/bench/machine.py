"""The machine that the numbers come from."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

import torch

PROCESSORS = Path("/proc/cpuinfo")


def machine() -> dict[str, Any]:
    """Processor, cores, versions, threads and load."""
    return {
        "cpu": _processor(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "threads": torch.get_num_threads(),
        "load": round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None,
    }


def _processor() -> str:
    if PROCESSORS.exists():
        for line in PROCESSORS.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
