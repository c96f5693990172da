"""The memory of this process and of the machine, in bytes, on Linux, macOS and Windows."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from pathlib import Path

STATUS = Path("/proc/self/status")  # Linux: this process
MACHINE = Path("/proc/meminfo")  # Linux: the machine
MEMBER, GROUPS = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")  # Linux: control groups
GROUP_FILES = (  # limit, use, and the field of memory.stat that could be given back; versions 2, 1
    ("memory.max", "memory.current", "inactive_file"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)
UNKNOWN = 2**31  # assumed to be available where the system does not say
MMAP_THRESHOLD = -3  # a parameter of mallopt in glibc
BLOCK = 2**20  # bytes


def peak_memory() -> int:
    """The largest resident size that this process ever had.

    On Linux `getrusage` starts with the peak of the parent process, so it is not used there.
    """
    if sys.platform == "win32":
        return _windows_process()[0]
    peak = _linux(STATUS, "VmHWM")
    if peak is not None:
        return peak
    import resource

    found = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return found if sys.platform == "darwin" else found * 1024  # bytes on macOS, else kilobytes


def resident_memory() -> int:
    """The present resident size of this process; its peak where only that is known."""
    if sys.platform == "win32":
        return _windows_process()[1]
    present = _linux(STATUS, "VmRSS")
    return peak_memory() if present is None else present


def memory_of(process: int) -> int | None:
    """The present resident size of another process; None where only Linux would know."""
    return _linux(Path(f"/proc/{process}/status"), "VmRSS")


def available_memory() -> int:
    """What can be used without swapping; on macOS an estimate, half of what is built in.

    In a container it is what the container has left.
    """
    if sys.platform == "win32":
        return _windows_available()
    available = _linux(MACHINE, "MemAvailable")
    if available is not None:
        return min([available, *_left_in_groups()])
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    except (ValueError, OSError):
        return UNKNOWN


def return_freed_blocks() -> None:
    """Let large blocks go back to the system when they are freed, for a process that runs for long.

    glibc keeps them otherwise, for every thread apart. Other systems are left as they are.
    """
    if sys.platform == "linux":
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
        if mallopt is not None:
            mallopt(MMAP_THRESHOLD, BLOCK)


def _left_in_groups() -> Iterator[int]:
    """What each control group with a limit leaves to this process and to others in it."""
    try:
        lines = MEMBER.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        version, kinds, name = line.split(":", 2)
        if version != "0" and "memory" not in kinds.split(","):
            continue
        root = GROUPS if version == "0" else GROUPS / "memory"
        limit, use, field = GROUP_FILES[version != "0"]
        path = root / name.lstrip("/")
        for folder in (path, *path.parents):  # of a container only the last may be there
            try:
                given_back = _number(folder / "memory.stat", field) or 0
                used = int((folder / use).read_text()) - given_back
                yield max(0, int((folder / limit).read_text()) - used)
            except (OSError, ValueError):  # no such group, or no limit: "max"
                continue


def _linux(file: Path, field: str) -> int | None:
    """One field of a file in /proc, which counts in kilobytes; None on other systems."""
    found = _number(file, f"{field}:")
    return None if found is None else found * 1024


def _number(file: Path, field: str) -> int | None:
    """The number that follows a word in a file of the kernel."""
    try:
        lines = map(str.split, file.read_text().splitlines())
        return next(int(words[1]) for words in lines if words and words[0] == field)
    except (OSError, StopIteration, ValueError):
        return None


if sys.platform == "win32":
    from ctypes import wintypes

    class _ProcessCounters(ctypes.Structure):  # PROCESS_MEMORY_COUNTERS of psapi.h
        _fields_ = (
            ("cb", wintypes.DWORD),
            ("PageFaultCount", wintypes.DWORD),
            ("PeakWorkingSetSize", ctypes.c_size_t),
            ("WorkingSetSize", ctypes.c_size_t),
            ("QuotaPeakPagedPoolUsage", ctypes.c_size_t),
            ("QuotaPagedPoolUsage", ctypes.c_size_t),
            ("QuotaPeakNonPagedPoolUsage", ctypes.c_size_t),
            ("QuotaNonPagedPoolUsage", ctypes.c_size_t),
            ("PagefileUsage", ctypes.c_size_t),
            ("PeakPagefileUsage", ctypes.c_size_t),
        )

    class _MachineStatus(ctypes.Structure):  # MEMORYSTATUSEX of sysinfoapi.h
        _fields_ = (
            ("dwLength", wintypes.DWORD),
            ("dwMemoryLoad", wintypes.DWORD),
            ("ullTotalPhys", ctypes.c_ulonglong),
            ("ullAvailPhys", ctypes.c_ulonglong),
            ("ullTotalPageFile", ctypes.c_ulonglong),
            ("ullAvailPageFile", ctypes.c_ulonglong),
            ("ullTotalVirtual", ctypes.c_ulonglong),
            ("ullAvailVirtual", ctypes.c_ulonglong),
            ("ullAvailExtendedVirtual", ctypes.c_ulonglong),
        )

    def _windows_process() -> tuple[int, int]:
        """The largest and the present working set of this process."""
        counters = _ProcessCounters()
        counters.cb = ctypes.sizeof(counters)
        kernel, psapi = ctypes.WinDLL("kernel32"), ctypes.WinDLL("psapi")
        kernel.GetCurrentProcess.restype = wintypes.HANDLE
        psapi.GetProcessMemoryInfo.argtypes = (
            wintypes.HANDLE,
            ctypes.POINTER(_ProcessCounters),
            wintypes.DWORD,
        )
        if not psapi.GetProcessMemoryInfo(
            kernel.GetCurrentProcess(), ctypes.byref(counters), counters.cb
        ):
            return 0, 0
        return int(counters.PeakWorkingSetSize), int(counters.WorkingSetSize)

    def _windows_available() -> int:
        status = _MachineStatus()
        status.dwLength = ctypes.sizeof(status)
        if not ctypes.WinDLL("kernel32").GlobalMemoryStatusEx(ctypes.byref(status)):
            return UNKNOWN
        return int(status.ullAvailPhys)
