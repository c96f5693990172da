"""Undoing a drop: what was dropped stays beside the model until the next training.

    parts.collected/dropped/model/              the files of the model before the drop, linked
    parts.collected/dropped/pictures/<task>/    the pictures of the task

The files of a model are replaced and never changed, so links to them are a copy that takes no
space and no time. What is kept goes away with the next training, the next drop, the server, or at
the user's wish; a server that was killed leaves it to the next one, which removes it.
"""

from __future__ import annotations

import os
from pathlib import Path

from rivals.errors import RivalsError
from rivals.io.files import flush_folder, make_folder, move_folder, remove_folder, remove_partial
from rivals.io.reading import check_no_links
from rivals.web.collection import Collection
from rivals.web.open_model import OpenModel, Stamp

PARTS = (".", "tasks")  # folders of a model
CHANGED = "The model has changed since the drop, which can no longer be undone."


class LastDrop:
    """The last drop, while it can be undone; `task` is None if there is nothing to undo."""

    def __init__(self, folder: Path, model: OpenModel, collection: Collection) -> None:
        self.folder, self.model, self.collection = folder / "dropped", model, collection
        self.task: str | None = None
        self.version = 0
        self._stamp: Stamp | None = None  # of the model after the drop
        check_no_links(folder, self.folder, "folder of the server")
        for left in folder.glob(".dropped.*.part"):
            remove_partial(left)
        self.forget()

    def drop(self, task: str) -> list[str]:
        """Drop a task with its pictures; returns the tasks that inherited from it."""
        self.forget()
        kept = self._link()
        heirs = self.model.drop(task)
        if kept:
            self.collection.take_out(task, self.folder / "pictures")
            self.task, self._stamp = task, self.model.stamp()
        else:
            self.collection.remove(task)
        self.version += 1
        return heirs

    def undo(self) -> str:
        """Bring the last drop back; returns the task."""
        from rivals.model.folder_writing import write_lock

        if self.task is None:
            raise RivalsError("There is no drop that could be undone.")
        task = self.task
        self.collection.check_new(task)
        with write_lock(self.model.folder) as lock:
            if self.model.stamp() != self._stamp:
                raise RivalsError(CHANGED)
            lock.check_place()
            try:
                flush_folder(self.folder / "model")
                move_folder(self.folder / "model", self.model.folder)
            except OSError as error:
                raise RivalsError(
                    f"The drop could not be undone ({error.strerror}); the model is as it was."
                ) from error
        self.collection.bring_back(task, self.folder / "pictures")
        self.forget()
        return task

    def forget(self) -> None:
        """Delete for good what was dropped."""
        remove_folder(self.folder)
        self.task = None
        self.version += 1

    def _link(self) -> bool:
        """Keep the files of the model; False where a file system, or a full disk, refuses."""
        source, place = self.model.folder, self.folder / "model"
        try:
            for folder in (self.folder, place, self.folder / "pictures"):
                make_folder(folder)
            for part in PARTS:
                if part != ".":
                    make_folder(place / part)
                for each in os.scandir(source / part):
                    if each.is_file(follow_symlinks=False) and not each.name.startswith("."):
                        os.link(each.path, place / part / each.name, follow_symlinks=False)
            flush_folder(place / "tasks")
        except (OSError, RivalsError):
            self.forget()
            return False
        return True
