"""Locks: one writer in a folder, a clean folder afterwards, and children that are seen alive."""

from __future__ import annotations

import ast
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import rivals
from rivals.errors import RivalsError
from rivals.io import locks
from rivals.io.files import flush_folder, write_bytes
from rivals.io.locks import LOCK_NAME, BusyError, FolderLock, child_is_alive, lock_for_child

SOURCE = Path(rivals.__file__).parent
HOLD = """
import sys, time
from pathlib import Path
from rivals.io.locks import FolderLock
lock = FolderLock(Path(sys.argv[1]))
print("held", flush=True)
time.sleep(60)
"""
COUNT = """
import sys
from pathlib import Path
from rivals.io.locks import BusyError, FolderLock
folder, done = Path(sys.argv[1]), 0
while done < 100:
    try:
        lock = FolderLock(folder)
    except BusyError:
        continue
    count = folder / "count"
    count.write_text(str(int(count.read_text()) + 1))
    lock.release()
    done += 1
"""


def start(code: str, *words: str | Path) -> subprocess.Popen[str]:
    line = [sys.executable, "-c", code, *map(str, words)]
    return subprocess.Popen(line, stdout=subprocess.PIPE, text=True)


def test_a_released_lock_leaves_nothing_behind(tmp_path: Path) -> None:
    lock = FolderLock(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [LOCK_NAME]
    with pytest.raises(BusyError, match="Another process is at work"):
        FolderLock(tmp_path)
    assert (tmp_path / LOCK_NAME).exists()  # who was refused removed nothing
    lock.release()
    lock.release()
    assert list(tmp_path.iterdir()) == []
    held = FolderLock(tmp_path)
    del held
    assert list(tmp_path.iterdir()) == []


def test_a_lock_can_be_released_in_another_thread(tmp_path: Path) -> None:
    lock = FolderLock(tmp_path)
    thread = threading.Thread(target=lock.release)
    thread.start()
    thread.join()
    FolderLock(tmp_path).release()


def test_a_killed_holder_frees_the_folder(tmp_path: Path) -> None:
    holder = start(HOLD, tmp_path)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(BusyError):
        FolderLock(tmp_path)
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert (tmp_path / LOCK_NAME).exists()
    FolderLock(tmp_path).release()
    assert list(tmp_path.iterdir()) == []


def test_a_forked_child_does_not_release_the_lock_of_its_parent(tmp_path: Path) -> None:
    lock = FolderLock(tmp_path)
    child = os.fork()
    if child == 0:
        lock.release()
        del lock
        os._exit(0)
    os.waitpid(child, 0)
    assert (tmp_path / LOCK_NAME).exists()
    with pytest.raises(BusyError):
        FolderLock(tmp_path)
    lock.release()


def test_many_writers_take_turns(tmp_path: Path) -> None:
    """The lock file is removed on release, and still no two hold the folder at once."""
    (tmp_path / "count").write_text("0")
    writers = [start(COUNT, tmp_path) for _ in range(4)]
    assert [writer.wait(timeout=120) for writer in writers] == [0] * 4
    assert (tmp_path / "count").read_text() == "400"


def test_a_lock_file_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("kept")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / LOCK_NAME).symlink_to(tmp_path / "other")
    with pytest.raises(RivalsError, match="it is a link"):
        FolderLock(tmp_path / "folder")
    assert (tmp_path / "other").read_text() == "kept"


@pytest.mark.parametrize("change", ["moved", "removed", "exchanged"])
def test_a_folder_that_is_no_longer_the_one_that_was_locked(tmp_path: Path, change: str) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    lock = FolderLock(folder)
    lock.check_place()
    shutil.rmtree(folder) if change == "removed" else folder.rename(tmp_path / "moved")
    other = None
    if change == "exchanged":
        folder.mkdir()
        other = FolderLock(folder)
    with pytest.raises(RivalsError, match="was moved, removed or exchanged"):
        lock.check_place()
    lock.release()
    if other is not None:
        other.check_place()  # the first one did not take its lock file away
        other.release()


def test_a_partial_file_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("kept")
    (tmp_path / f".a.{os.getpid()}.part").symlink_to(tmp_path / "other")
    write_bytes(tmp_path / "a", b"new")
    assert (tmp_path / "a").read_bytes() == b"new"
    assert (tmp_path / "other").read_text() == "kept"


def test_a_child_is_alive_until_it_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "alive"
    assert not child_is_alive(path)
    with lock_for_child(path) as inherited:
        child = subprocess.Popen(["sleep", "60"], pass_fds=inherited)
    assert child_is_alive(path)
    child.kill()
    child.wait()
    deadline = time.monotonic() + 10
    while child_is_alive(path) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not child_is_alive(path)


def test_a_system_that_cannot_flush_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.fsync

    def fsync(descriptor: int) -> None:
        if os.path.isdir(f"/proc/self/fd/{descriptor}"):
            raise OSError(error, os.strerror(error))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    error = locks.errno.ENOTSUP
    write_bytes(tmp_path / "a", b"1")
    assert (tmp_path / "a").read_bytes() == b"1"
    error = locks.errno.EIO
    with pytest.raises(OSError, match="Input/output"):
        flush_folder(tmp_path)
    with pytest.raises(RivalsError, match="Input/output"):
        write_bytes(tmp_path / "a", b"2")


@pytest.mark.parametrize("module", ["fcntl", "resource", "termios", "pwd", "grp"])
def test_no_module_imports_what_only_unix_has(module: str) -> None:
    """Such imports stand inside functions, so that every module can be imported anywhere."""
    found = []
    for path in SOURCE.rglob("*.py"):
        for node in ast.parse(path.read_text()).body:
            functions = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
            for each in [] if isinstance(node, functions) else ast.walk(node):
                if isinstance(each, ast.Import) and module in [name.name for name in each.names]:
                    found.append(path)
                if isinstance(each, ast.ImportFrom) and each.module == module:
                    found.append(path)
    assert found == []


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        FolderLock(tmp_path / "nowhere")
    assert list(tmp_path.iterdir()) == []


IMPORT_ALL = """
import importlib, pkgutil, sys
optional = {"executorch", "ai_edge_litert", "litert_torch", "ray", "emx_onnx_cgen"}
import torch, torch.utils.data, numpy, PIL.Image, rich.progress, typer, filelock
unix = ("fcntl", "resource", "termios", "pwd", "grp")
for name in unix:
    sys.modules[name] = None  # importing it fails from now on
import rivals
count = 0
def bridge(name):  # what Avalanche imports is its own affair
    assert name == "rivals.avalanche", name
for module in pkgutil.walk_packages(rivals.__path__, "rivals.", bridge):
    if module.name.endswith("__main__") or module.name.startswith("rivals.avalanche"):
        continue
    try:
        importlib.import_module(module.name)
        count += 1
    except ModuleNotFoundError as error:
        top = (error.name or "").partition(".")[0]
        assert top in optional, (module.name, error)
print(count)
"""


def test_every_module_can_be_imported_without_the_modules_of_unix() -> None:
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_ALL], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.splitlines()[-1]) > 200
