"""Writing a model's folder, with or without torch: one writer, and the old state or the new one."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from rivals.errors import RivalsError
from rivals.io import signatures
from rivals.io.files import make_folders, remove_files, write_bytes
from rivals.io.locks import LOCK_NAME, BusyError, FolderLock
from rivals.io.reading import check_no_links
from rivals.model import manifest, spare_space
from rivals.model.manifest import NAME, Description, TaskFacts
from rivals.model.stored_file import FOLDER

HALF = re.compile(r"\.model\.json\.\d+\.part")  # what a killed process may leave in the folder
OURS = re.compile(r"[0-9a-f]{16}\.safetensors|\.[0-9a-f]{16}\.safetensors\.\d+\.part")  # in tasks


def write_model(
    folder: Path, lock: FolderLock, write_files: Callable[[Path], Description], dropping: bool
) -> tuple[Description, bool]:
    """Write the files of a model, and model.json last.

    A kill at any moment leaves the old model or the new one; an error leaves the old one.

    Args:
        folder: The model.
        lock: Of who writes.
        write_files: Writes what is new into the folder of files; returns what the model is then.
        dropping: Whether it becomes smaller: then a full disk gives the spare space back.

    Returns:
        What the model is now, and whether it was signed, which it is no longer.
    """
    lock.check_place()
    check_no_links(folder, folder / FOLDER, "folder")
    try:
        content = _attempt(folder, lock, write_files)
    except RivalsError as error:
        full = dropping and spare_space.is_full(error)
        if not full or not spare_space.give_back(folder):
            raise
        content = _attempt(folder, lock, write_files)
    unsigned = signatures.remove(folder)
    sweep(folder)
    return content, unsigned


def _attempt(
    folder: Path, lock: FolderLock, write_files: Callable[[Path], Description]
) -> Description:
    """Write it all, or leave nothing of it behind."""
    try:
        with _in_words(folder / FOLDER):
            (folder / FOLDER).mkdir(exist_ok=True)  # not its parents: who moved it keeps it so
        content = write_files(folder / FOLDER)
        lock.check_place()
        write_bytes(folder / NAME, content.to_bytes())
        return content
    except BaseException:
        with contextlib.suppress(RivalsError):
            lock.check_place()
            sweep(folder)
        raise


@contextlib.contextmanager
def _in_words(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise RivalsError(
            f"Could not write to {path} ({error.strerror}); make room there, or choose another "
            "place."
        ) from error


def check_different(tasks: Sequence[TaskFacts]) -> None:
    """Refuse two tasks with one file: dropping one of them would take it from the other."""
    seen: dict[str, str] = {}
    for each in tasks:
        if each.file in seen:
            raise RivalsError(
                f"The task '{each.name}' would be '{seen[each.file]}' again, the same in every "
                "bit; give it other pictures, or drop that task first."
            )
        seen[each.file] = each.name


def sweep(folder: Path) -> None:
    """Remove what no description names: dropped tasks, and what a killed process left."""
    used: set[str] = manifest.read(folder).files() if manifest.exists(folder) else set()
    real = Path(os.path.realpath(folder))  # the folder itself may be a link, for the user named it
    remove_files(real, lambda name: HALF.fullmatch(name) is not None)
    remove_files(real / FOLDER, lambda name: OURS.fullmatch(name) is not None and name not in used)


@contextlib.contextmanager
def write_lock(folder: Path) -> Iterator[FolderLock]:
    """Be the only one who writes to a model, which may be a new one."""
    new, lock = not folder.exists(), None
    try:
        try:
            make_folders(folder)
            if not os.access(folder, os.W_OK | os.X_OK):
                raise RivalsError(f"The model {folder} cannot be written to; choose another place.")
            lock = FolderLock(folder)
        except BusyError as error:
            raise BusyError(
                f"Another process is writing to the model {folder}; wait for it, or stop it."
            ) from error
        except (FileExistsError, NotADirectoryError) as error:
            raise RivalsError(f"{folder} is a file; --model needs a folder.") from error
        except OSError as error:
            raise RivalsError(f"The model {folder} cannot be used ({error.strerror}).") from error
        check_no_links(folder, folder / FOLDER, "folder")
        if not manifest.exists(folder):
            _check_empty(folder)
        sweep(folder)
        yield lock
    finally:
        if lock:
            with contextlib.suppress(RivalsError):  # another folder in its place is not ours
                lock.check_place()
                if not manifest.exists(folder):
                    _tidy(folder)
            lock.release()
            if new and not manifest.exists(folder):
                with contextlib.suppress(OSError):
                    folder.rmdir()


def _check_empty(folder: Path) -> None:
    """Where there is no model yet, there may be what killed lessons left, and nothing else."""
    inside = folder / FOLDER
    known = (inside, folder / LOCK_NAME, folder / spare_space.NAME)
    others = [path for path in folder.iterdir() if path not in known and not HALF.match(path.name)]
    if inside.is_dir():
        others += [path for path in inside.iterdir() if not OURS.match(path.name)]
    if others or (inside.exists() and not inside.is_dir()):
        raise RivalsError(f"{folder} is not empty and holds no model; choose another --model.")


def _tidy(folder: Path) -> None:
    """A model that did not come to be leaves nothing behind."""
    spare_space.give_back(folder)
    with contextlib.suppress(OSError):
        (folder / FOLDER).rmdir()
