"""A model as a folder: a description, and a file for each task.

    model/model.json                     written last: it decides what is there
    model/tasks/<checksum>.safetensors   winners, claimed edges, norms, head, statistics of a task

An edge that no task claimed is a function of the seed and stored nowhere. Tickets are not stored:
they are cut from the claims when they are asked for, so that nothing is there twice. Readers need
no lock; one process at a time may write.
"""

from __future__ import annotations

import contextlib
import os
import re
import unicodedata
from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rivals.errors import RivalsError, unknown
from rivals.io.files import make_folder, make_folders, write_bytes
from rivals.io.locks import LOCK_NAME, BusyError, FolderLock
from rivals.learn.twta import TWTA, TWTASettings
from rivals.model import defaults, manifest, task_file
from rivals.model.manifest import NAME, Description, TaskFacts, damaged
from rivals.naming import familiarity
from rivals.naming.familiarity import FeatureStatistics
from rivals.naming.task_record import TaskRecord
from rivals.nn import task_tensors
from rivals.nn.device import find_device
from rivals.nn.network_plan import NetworkPlan, NetworkSettings
from rivals.seeds import Seed
from rivals.tickets.overlap import overlap
from rivals.tickets.ticket import Ticket

HALF = re.compile(r"\.model\.json\.\d+\.part")  # what a killed process may leave in the folder
OURS = re.compile(r"[0-9a-f]{16}\.safetensors|\.[0-9a-f]{16}\.safetensors\.\d+\.part")  # in tasks
DAMAGE = (LookupError, TypeError, ValueError, AttributeError, RuntimeError)


class ModelFolder:
    """What lies in a model's folder. Its network is built when it is first needed."""

    def __init__(self, path: Path, content: Description, device: str = "cpu") -> None:
        self.path, self.description, self.device = path, content, device

    @classmethod
    def open(cls, path: str | Path, device: str = "cpu") -> ModelFolder:
        """The model at `path`, as it was when its last writer was done."""
        return cls(Path(path), manifest.read(Path(path)), device)

    @property
    def familiarity(self) -> MutableMapping[str, FeatureStatistics]:
        """What is usual for the pictures of each task."""
        return self.method.tasks.column("familiarity")

    @property
    def tasks(self) -> list[TaskFacts]:
        return list(self.description.tasks)

    def task(self, name: str) -> TaskFacts:
        found = self.description.task(unicodedata.normalize("NFC", name))
        if found is None:
            if not self.tasks:
                raise RivalsError(f"The model {self.path} has no tasks; learn one first.")
            raise unknown("task", name, [task.name for task in self.tasks])
        return found

    # The network -------------------------------------------------------------------------------

    @cached_property
    def method(self) -> TWTA:
        """The network with all that was learned, ready to learn more.

        Who writes meanwhile takes files away that were described when this model was opened; then
        it is opened anew.
        """
        while True:
            try:
                method = empty(self.description, self.device)
                self._load(method)
                return method
            except (RivalsError, *DAMAGE) as error:
                now = manifest.read(self.path)
                if now != self.description:
                    self.description = now
                    continue
                if isinstance(error, RivalsError):
                    raise
                what = f"its parts do not fit ({type(error).__name__})"
                raise damaged(self.path, what) from error

    def _load(self, method: TWTA) -> None:
        network, content = method.network, self.description
        if not content.tasks and not content.units:
            return  # a new model
        if len(content.units) != len(network.rivals()):
            raise damaged(self.path, "it has another number of layers than its network")
        for rivals, units in zip(network.rivals(), content.units, strict=True):
            if units < rivals.units:
                raise damaged(self.path, "its layers are narrower than its network's")
            rivals.units = units
        for layer in network.layers():
            layer.fit()
        for facts in content.tasks:
            tensors = task_file.read(self.path, facts, network)
            tensors = {name: tensor.to(method.device) for name, tensor in tensors.items()}
            task_tensors.load_task(network, facts.name, tensors)
            network.freeze(facts.name)
            task_tensors.load_claims(network, facts.name, tensors)
            kept = {k.removeprefix("kept."): t for k, t in tensors.items() if k.startswith("kept.")}
            prepare = defaults.preparation(content.input_shape[0])
            method.known[facts.name] = TaskRecord(facts.classes, prepare, kept)
            method.facts[facts.name] = {}
            method.tasks.column("familiarity")[facts.name] = familiarity.load(tensors)

    def room(self) -> dict[str, float]:
        """The share of edges that no task uses, layer by layer."""
        return self.method.network.room()

    def winners(self, task: str) -> list[list[int]]:
        """The unit of each block that won `task`, layer by layer."""
        name = self.task(task).name
        return [winners.tolist() for winners in self.method.winners(name)]

    def overlap(self) -> list[list[float]]:
        """For each two tasks the percentage of blocks that both won with the same unit."""
        won = [self.method.winners(task.name) for task in self.tasks]
        return [[overlap(one, other) for other in won] for one in won]

    def ticket(self, task: str) -> Ticket:
        """The small network of one task, cut out."""
        facts = self.task(task)
        known = self.method.known[facts.name]
        return Ticket(
            self.method.ticket(facts.name), facts.name, known.classes, known.preprocessing,
            self.description.input_shape, self.winners(task), facts.accuracy,
        ).cpu()  # fmt: skip

    # Writing -----------------------------------------------------------------------------------

    def commit(self, facts: list[TaskFacts]) -> ModelFolder:
        """Write the tasks of the network, described by `facts` in their order.

        A kill at any moment leaves the old model or the new one; an error leaves the old one.
        """
        network, written = self.method.network, []
        make_folder(self.path / task_file.FOLDER)
        try:
            for each in facts:
                kept = self.method.known[each.name].kept or {}
                tensors = task_tensors.tensors(network, each.name, protected=True)
                tensors |= {f"kept.{name}": tensor for name, tensor in kept.items()}
                tensors |= self.familiarity[each.name].tensors()
                check_finite(each.name, tensors)
                file, checksum, data = task_file.encode(tensors)
                if (file, checksum) != (each.file, each.sha256):
                    write_bytes(self.path / task_file.FOLDER / file, data)
                written.append(replace(each, file=file, sha256=checksum, bytes=len(data)))
            units = tuple(rivals.units for rivals in network.rivals())
            content = replace(self.description, units=units, tasks=tuple(written))
            write_bytes(self.path / NAME, content.to_bytes())
        except BaseException:
            with contextlib.suppress(RivalsError):
                sweep(self.path)
            raise
        sweep(self.path)
        made = ModelFolder(self.path, content, self.device)
        made.__dict__["method"] = self.method
        return made


def empty(content: Description, device: str = "cpu") -> TWTA:
    """A network that knows nothing yet."""
    check_size(content)
    settings = NetworkSettings(
        architecture=content.network, widths=content.widths, units=content.rivals
    )
    plan = NetworkPlan(settings, content.input_shape, find_device(device))
    method = TWTA(plan, TWTASettings(), Seed(content.seed).child("method"))
    method.statistics_images = familiarity.STATISTICS  # so that memory stays bounded
    return method


def check_finite(task: str, tensors: dict[str, Tensor]) -> None:
    for tensor in tensors.values():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise RivalsError(
                f"The weights of '{task}' are no longer finite, so the model was left as it was; "
                "try other pictures, or --epochs with fewer."
            )


def check_size(content: Description) -> None:
    """Refuse a network whose tickets would be larger than any device's."""
    if content.widths and max(content.widths) // content.rivals > 2048:
        raise RivalsError("The model's layers are too wide for this version.")


def sweep(folder: Path) -> None:
    """Remove what no description names: dropped tasks, and what a killed process left."""
    used: set[str] = set()
    if (folder / NAME).exists():
        used = {task.file for task in manifest.read(folder).tasks}
    for place, ours in ((folder, HALF), (folder / task_file.FOLDER, OURS)):
        for path in place.iterdir() if place.is_dir() else ():
            if ours.fullmatch(path.name) and path.name not in used and not path.is_dir():
                with contextlib.suppress(OSError):
                    path.unlink()


@contextlib.contextmanager
def write_lock(folder: Path) -> Iterator[None]:
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
        if not (folder / NAME).exists():
            _check_empty(folder)
        sweep(folder)
        yield
    finally:
        if lock:
            lock.release()
            if not (folder / NAME).exists():
                _tidy(folder, new)


def _check_empty(folder: Path) -> None:
    """Where there is no model yet, there may be what killed lessons left, and nothing else."""
    inside = folder / task_file.FOLDER
    known = (inside, folder / LOCK_NAME)
    others = [path for path in folder.iterdir() if path not in known and not HALF.match(path.name)]
    if inside.is_dir():
        others += [path for path in inside.iterdir() if not OURS.match(path.name)]
    if others or (inside.exists() and not inside.is_dir()):
        raise RivalsError(f"{folder} is not empty and holds no model; choose another --model.")


def _tidy(folder: Path, new: bool) -> None:
    """A model that did not come to be leaves no folder behind."""
    with contextlib.suppress(OSError):
        (folder / task_file.FOLDER).rmdir()
    if new:
        with contextlib.suppress(OSError):
            folder.rmdir()


def drop(path: str | Path, task: str) -> Dropped:
    """Take `task` out of the model; a kill at any moment leaves it in or out, never between.

    Edges that only this task used are untrained again; those that others use move to the earliest
    of them; its winners, norms, head and statistics are gone with its file. Tickets of the others
    keep every bit. Tasks that began with its weights are named: what they learned from it stays.
    """
    folder = Path(path)
    manifest.read(folder)  # before a folder is made for a model that is not there
    with write_lock(folder):
        model = ModelFolder.open(folder)
        gone = model.task(task)
        heirs = [each.name for each in model.tasks if gone.name in each.inherited_from]
        before = sum(each.bytes for each in model.tasks)
        model.method.drop(gone.name)
        left = [
            replace(each, inherited_from=tuple(n for n in each.inherited_from if n != gone.name))
            for each in model.tasks
            if each != gone
        ]
        made = model.commit(left)
        freed = before - sum(each.bytes for each in made.tasks)
        return Dropped(gone.name, heirs, freed, made.room())


@dataclass(frozen=True)
class Dropped:
    """What was taken out, and which tasks inherited from it."""

    task: str
    heirs: list[str]
    freed: int  # bytes on disk
    room: dict[str, float]  # share of edges that are free, by layer

    def to_dict(self) -> dict[str, Any]:
        return {"event": "dropped", **vars(self)}
