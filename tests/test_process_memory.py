"""Memory of this process: its own peak and nobody else's, on every system."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import room
from rivals.io import process_memory
from rivals.io.process_memory import available_memory, peak_memory, resident_memory

MEGABYTE = 10**6
FAT_PARENT = """
import subprocess, sys
fat = bytearray(b"x") * 300_000_000
code = "from rivals.io.process_memory import peak_memory; print(peak_memory())"
child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
from rivals.io.process_memory import peak_memory
print(child.stdout.strip(), peak_memory())
"""
GIVEN_BACK = """
from rivals.io.process_memory import peak_memory, resident_memory
print(resident_memory(), peak_memory())
much = bytearray(b"x") * 100_000_000
print(resident_memory(), peak_memory())
del much
print(resident_memory(), peak_memory())
"""


def test_a_child_of_a_fat_parent_reports_its_own_peak() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FAT_PARENT], capture_output=True, text=True, check=True
    )
    child, parent = map(int, done.stdout.split())
    assert parent > 300 * MEGABYTE
    assert child < 60 * MEGABYTE


def test_the_peak_stays_when_memory_is_given_back() -> None:
    """In a process of its own: the one of the tests may have free memory that nobody gave back."""
    done = subprocess.run(
        [sys.executable, "-c", GIVEN_BACK], capture_output=True, text=True, check=True
    )
    before, first, during, high, after, last = map(int, done.stdout.split())
    assert 0 < before <= first
    assert during > before + 90 * MEGABYTE
    assert last > high - MEGABYTE  # Linux counts pages in batches
    assert after < high - 50 * MEGABYTE


def test_available_memory_is_less_than_the_machine_has() -> None:
    total = process_memory._linux(process_memory.MACHINE, "MemTotal")
    assert total is not None
    assert 0 < available_memory() < total


@pytest.mark.parametrize(
    ("member", "folder", "names"),
    [
        ("0::/outer/own\n", "outer", ("memory.max", "memory.current", "inactive_file")),
        ("0::/unknown/here\n", ".", ("memory.max", "memory.current", "inactive_file")),
        (
            "5:cpu:/x\n4:hugetlb,memory:/outer/own\n", "memory/outer",
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        ),
    ],
)  # fmt: skip
def test_a_container_has_what_its_limit_leaves(
    member: str, folder: str, names: tuple[str, str, str], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Of a board with 512 MB by a control group the memory of the machine was taken."""
    (tmp_path / "member").write_text(member)
    (tmp_path / folder / "own").mkdir(parents=True)
    for place, limit in ((tmp_path / folder, "1000"), (tmp_path / folder / "own", "max")):
        for name, text in zip(names, (limit, "700", f"cache 9\n{names[2]} 300\n"), strict=True):
            (place / name.replace(names[2], "memory.stat")).write_text(f"{text}\n")
    monkeypatch.setattr(process_memory, "MEMBER", tmp_path / "member")
    monkeypatch.setattr(process_memory, "GROUPS", tmp_path)
    if sys.platform == "linux":
        assert available_memory() == 1000 - 700 + 300


def test_a_real_control_group_counts() -> None:
    with room.groups() as folders:
        if folders is None:
            pytest.skip("No control group may be made here.")
    code = "from rivals.io.process_memory import available_memory; print(available_memory())"
    status, printed, told = room.run([sys.executable, "-c", code], 60, share=1)
    assert (status, told) == (0, "")
    assert 0 < int(printed) < room.MEMORY


def test_a_system_without_proc(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("STATUS", "MACHINE", "MEMBER"):
        monkeypatch.setattr(process_memory, name, Path("/nowhere"))
    assert 10 * MEGABYTE < peak_memory() < 10**12
    assert resident_memory() == peak_memory()
    assert available_memory() > 100 * MEGABYTE
    kilobytes = peak_memory() // 1024
    monkeypatch.setattr(process_memory.sys, "platform", "darwin")
    assert kilobytes <= peak_memory() < 2 * kilobytes  # the system counts bytes there
