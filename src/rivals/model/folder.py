"""A model as a folder: a description, and a file for each task.

    model/model.json                     written last: it decides what is there
    model/tasks/<checksum>.safetensors   winners, claimed edges, norms, head, statistics of a task;
                                         and its ancestor, if that is not shipped
    model/signature.json                 a signature, where somebody signed it (`rivals sign`)
    model/.spare                         space for `rivals drop` on a full disk

An edge that no task claimed is a function of the seed and stored nowhere. Tickets are not stored:
they are cut from the claims when they are asked for, so that nothing is there twice. Readers need
no lock; one process at a time may write. Links in the folder are not followed.
"""

from __future__ import annotations

import unicodedata
import zlib
from collections.abc import MutableMapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from rivals.ancestors.timm_backbone import Backbone
from rivals.errors import RivalsError, unknown
from rivals.io.files import write_bytes
from rivals.io.locks import FolderLock
from rivals.io.process_memory import available_memory
from rivals.io.reading import printable
from rivals.learn.model_twta import ModelTWTA, by_pixels
from rivals.learn.twta import TWTASettings
from rivals.model import (
    ancestor_file,
    defaults,
    limits,
    manifest,
    moved_edges,
    spare_space,
    task_file,
)
from rivals.model.ancestor_file import AnyAncestor
from rivals.model.folder_writing import check_different, write_model
from rivals.model.history import ModelHistory
from rivals.model.manifest import Description, MovedEdges, TaskFacts, damaged
from rivals.model.moved_edges import Cells, StoredEdges, cell_count
from rivals.model.network_size import check_network_size
from rivals.model.stored_file import in_words
from rivals.model.ticket_mark import ticket_mark
from rivals.naming import familiarity
from rivals.naming.familiarity import FeatureStatistics
from rivals.naming.predictor import Predictor
from rivals.naming.task_record import TaskRecord
from rivals.naming.task_statistics import check_statistics
from rivals.nn import task_tensors
from rivals.nn.device import find_device
from rivals.nn.network_plan import NetworkPlan, NetworkSettings
from rivals.nn.rival_network import RivalNetwork
from rivals.seeds import Seed
from rivals.streams.task import Preprocessing
from rivals.tickets.overlap import overlaps
from rivals.tickets.ticket import Ticket

TICKET_WEIGHT = 8  # bytes of a weight in memory: in its ticket, and where tickets run together
DAMAGE = (LookupError, TypeError, ValueError, AttributeError, RuntimeError, zlib.error)


class ModelFolder:
    """What lies in a model's folder. Its network is built when it is first needed."""

    def __init__(
        self, path: Path, content: Description, device: str = "cpu",
        lock: FolderLock | None = None, key: Path | None = None,
        ancestor: AnyAncestor | None = None,
    ) -> None:  # fmt: skip
        self.path, self.description, self.device = path, content, device
        self.new_ancestor = ancestor  # of a model that is not written yet
        self.lock = lock  # of who writes
        self.key = key  # public; then only a signed model is read
        self.moved: Cells = {}  # edges that are not in the files of their owners
        self.unsigned = False  # whether this change took a signature away
        self._tickets_fit = False  # whether there was memory for all of them
        self._read_ancestor: AnyAncestor | None = None

    @classmethod
    def open(
        cls, path: str | Path, device: str = "cpu", lock: FolderLock | None = None
    ) -> ModelFolder:
        """The model at `path`, as it was when its last writer was done."""
        return cls(Path(path), manifest.read(Path(path)), device, lock)

    def at(self, path: Path, lock: FolderLock) -> ModelFolder:
        """What its network knows as a new model at `path`, where nothing is written yet."""
        content = replace(self.description, tasks=(), moved=None)
        made = ModelFolder(path, content, self.device, lock)
        made.__dict__["method"] = self.method
        return made

    @property
    def familiarity(self) -> MutableMapping[str, FeatureStatistics]:
        """What is usual for the pictures of each task."""
        return self.method.tasks.column("familiarity")

    @property
    def tasks(self) -> list[TaskFacts]:
        return list(self.description.tasks)

    @property
    def ancestor(self) -> AnyAncestor:
        """The ancestor of a model that has one."""
        named, known = self.description.ancestor, self.new_ancestor or self._read_ancestor
        assert named is not None
        if known is None or known.sha256 != named.sha256:
            known = self._read_ancestor = ancestor_file.of_model(self.path, self.description)
        return known

    @property
    def preparation(self) -> Preprocessing:
        """From the bytes of a picture to the network's input, the same for every task."""
        ancestor = self.ancestor if self.description.ancestor else None
        return defaults.preparation(self.description.input_shape[0], ancestor)

    def task(self, name: str) -> TaskFacts:
        found = self.description.task(unicodedata.normalize("NFC", name))
        if found is None:
            if not self.tasks:
                raise RivalsError(f"The model {self.path} has no tasks; learn one first.")
            raise unknown("task", name, [task.name for task in self.tasks])
        return found

    # The network -------------------------------------------------------------------------------

    @cached_property
    def method(self) -> ModelTWTA:
        """The network with all that was learned, ready to learn more.

        Who writes meanwhile takes files away that were described when this model was opened; then
        it is opened anew.
        """
        while True:
            try:
                ancestor = self.ancestor if self.description.ancestor else None
                method = empty(self.description, ancestor, self.device)
                self._load(method)
                return method
            except (RivalsError, *DAMAGE) as error:
                if manifest.exists(self.path):  # otherwise it is a new model
                    now = manifest.read(self.path, self.key)
                    if now != self.description:
                        self.description = now
                        continue
                if isinstance(error, RivalsError):
                    raise
                what = f"its parts do not fit ({type(error).__name__})"
                raise damaged(self.path, what) from error

    def _load(self, method: ModelTWTA) -> None:
        network, content, prepare = method.network, self.description, self.preparation
        if not content.tasks and not content.units:
            return  # a new model
        if len(content.units) != len(network.rivals()):
            raise damaged(self.path, "it has another number of layers than its network")
        for rivals, units in zip(network.rivals(), content.units, strict=True):
            if units < rivals.units:
                raise damaged(self.path, "its layers are narrower than its network's")
            if units * rivals.blocks > limits.ALL_UNITS:
                raise damaged(self.path, "its layers have more units than any model's")
            rivals.units = units
        for layer in network.layers():
            layer.fit()
        cells = sum(map(cell_count, network.layers()))  # a byte each says who owns it
        self._check_free(content.total_bytes() + len(content.tasks) * cells, "The model")
        edges = self._moved_edges(network)
        for facts in content.tasks:
            tensors = task_file.read(self.path, facts, network)
            tensors = {name: tensor.to(method.device) for name, tensor in tensors.items()}
            kept = {k.removeprefix("kept."): t for k, t in tensors.items() if k.startswith("kept.")}
            record = TaskRecord(facts.classes, prepare, kept)
            if "counts" in kept:  # statistics of shared features
                with in_words(self.path, f"the file of '{facts.name}'"):
                    check_statistics({name: each.cpu().numpy() for name, each in kept.items()})
            if "prior" in kept:
                method.learn_in_closed_form(facts.name, record)
                known = FeatureStatistics.of_statistics(
                    kept, network.within, float(kept["prior"]), tensors["levels"]
                )
            else:
                task_tensors.load_task(network, facts.name, tensors)
                network.freeze(facts.name)
                tensors = edges.merge(network, facts.name, tensors)
                task_tensors.load_claims(network, facts.name, tensors)
                method.known[facts.name], method.facts[facts.name] = record, {}
                known = familiarity.load(tensors)
            method.tasks.column("familiarity")[facts.name] = known
        if len({by_pixels(record) for record in method.known.values()}) > 1:
            raise damaged(self.path, "its tasks are named in two ways")

    def _moved_edges(self, network: RivalNetwork) -> StoredEdges:
        """The edges that a drop took from a task and gave to others."""
        content, tensors = self.description, dict[str, Tensor]()
        if content.moved:
            tensors = task_file.read_moved(self.path, content.moved, network, len(content.tasks))
        edges = StoredEdges(network, tensors, [task.name for task in content.tasks])
        self.moved = edges.cells
        return edges

    def _check_free(self, size: int, what: str) -> None:
        free = available_memory()
        if size > free:
            raise RivalsError(
                f"{what} {self.path} takes {size:,} bytes of memory, but only {free:,} are free; "
                "close other programs, or use a machine with more."
            )

    def predictor(self) -> Predictor:
        """All tickets, ready to answer. A small file can stand for a large ticket, which shares
        its weights with others, so their size is checked before they are cut."""
        if not self._tickets_fit:
            method, layers = self.method, self.method.network.layers()
            weights = sum(cell_count(layer) * layer.weight.taps for layer in layers)
            # Tasks in closed form and direct ones are heads on features that are computed once.
            heads = [method.in_closed_form(each.name) or method.network.is_direct(each.name)
                     for each in self.tasks]  # fmt: skip
            tickets = f"Answering with the {len(self.tasks):,} tasks of the model"
            self._check_free((1 + heads.count(False)) * weights * TICKET_WEIGHT, tickets)
            self._tickets_fit = True
        return self.method.predictor()

    def room(self) -> dict[str, float]:
        """The share of edges that no task uses, layer by layer."""
        return self.method.network.room()

    def winners(self, task: str) -> list[list[int]]:
        """The unit of each block that won `task`, layer by layer."""
        name = self.task(task).name
        return [winners.tolist() for winners in self.method.winners(name)]

    def overlap(self) -> list[list[float]]:
        """For each two tasks the percentage of blocks that both won with the same unit."""
        return overlaps([self.method.winners(task.name) for task in self.tasks])

    def ticket(self, task: str) -> Ticket:
        """The small network of one task, cut out."""
        facts = self.task(task)
        known = self.method.known[facts.name]
        return Ticket(
            self.method.ticket(facts.name), facts.name, known.classes, known.preprocessing,
            self.description.input_shape, self.winners(task), facts.accuracy,
            self.description.sound,
        ).cpu()  # fmt: skip

    def mark(self, task: str, placed: bool = True) -> str:
        """A checksum of all that makes up the ticket of a task and decides about its answers.

        If not `placed`, its name and its place in the network, the winners, are left out: what is
        left stays the same in another model.
        """
        network, content = self.method.network, self.description
        parts = {f"kept.{name}": t for name, t in (self.method.known[task].kept or {}).items()}
        parts |= self.familiarity[task].tensors()
        if not self.method.in_closed_form(task):  # else all follows from statistics
            own = task_tensors.task_tensors(network, task)
            parts |= {k: t for k, t in own.items() if placed or not k.startswith("rivals")}
        for number, layer in enumerate(network.layers_of(task)):
            parts[f"layer{number}.weight"] = network.ticket_slice(layer, task)
        own_ancestor = content.ancestor is not None and content.ancestor.file is not None
        return ticket_mark(
            content, task if placed else "", self.method.known[task].classes,
            self.method.known[task].preprocessing if own_ancestor else None,
            {name: tensor.detach().cpu().contiguous().numpy() for name, tensor in parts.items()},
        )  # fmt: skip

    # Writing -----------------------------------------------------------------------------------

    def commit(self, facts: list[TaskFacts], event: str, *tasks: str) -> ModelFolder:
        """Write the tasks of the network, described by `facts` in their order, after an event.

        A kill at any moment leaves the old model or the new one; an error leaves the old one.

        Args:
            facts: All tasks. Those without a file are written, and those that edges moved to.
            event: learn, refine or drop. Dropping changes no file of another task: edges that move
                are written to a file of their own.
            tasks: The task that it happened to; of a model that was joined, all of them.
        """
        assert self.lock is not None
        moved = self.moved if event == "drop" else {}
        files = {} if moved else {each.name: each for each in facts if each.name in self.moved}
        files |= {each.name: each for each in facts if not each.file}
        content = replace(self.description, history=self._history(facts, event, tasks))
        content, unsigned = write_model(
            self.path, self.lock, lambda place: self._write(place, content, facts, files, moved),
            event == "drop",
        )  # fmt: skip
        made = ModelFolder(self.path, content, self.device, self.lock)
        made.unsigned = unsigned
        made.__dict__["method"], made.moved = self.method, moved
        most, old = moved_edges.largest(self.method.network, moved), content.moved
        spare_space.keep(self.path, most + (old.bytes if old else 0), len(content.to_bytes()))
        return made

    def _write(
        self, place: Path, content: Description, facts: list[TaskFacts],
        files: dict[str, TaskFacts], moved: Cells,
    ) -> Description:  # fmt: skip
        """Write `files`, the edges that moved and a new ancestor."""
        network = self.method.network
        if content.ancestor and content.ancestor.file and self.new_ancestor:
            write_bytes(place / content.ancestor.file, self.new_ancestor.data)
        written = []
        for each in facts:
            if each.name in files:
                kept = self.method.known[each.name].kept or {}
                tensors = {f"kept.{name}": tensor for name, tensor in kept.items()}
                if not self.method.in_closed_form(each.name):
                    tensors |= task_tensors.tensors(network, each.name, protected=True)
                tensors |= self.familiarity[each.name].tensors()
                check_finite(each.name, tensors)
                file, checksum, data = task_file.encode(tensors)
                write_bytes(place / file, data)
                each = replace(each, file=file, sha256=checksum, bytes=len(data))
            written.append(each)
        others = None
        if moved:
            tensors = moved_edges.encode(network, [each.name for each in facts], moved)
            file, checksum, data = task_file.encode(tensors)
            write_bytes(place / file, data)
            others = MovedEdges(file, checksum, len(data))
        check_different(written)
        units = tuple(rivals.units for rivals in network.rivals())
        return replace(content, units=units, tasks=tuple(written), moved=others)

    def _history(self, facts: list[TaskFacts], event: str, tasks: tuple[str, ...]) -> ModelHistory:
        """The history with the event added; a model of rivals 0.1 begins its history now."""
        history = self.description.history
        if history is None:
            return ModelHistory.begin([self.mark(each.name) for each in facts])
        names = [each.name for each in self.description.tasks]
        for task in tasks:
            place = names.index(task) if task in names else None
            history = history.add(event, "" if event == "drop" else self.mark(task), place)
        return history


def empty(content: Description, ancestor: AnyAncestor | None, device: str = "cpu") -> ModelTWTA:
    """A network that knows nothing yet."""
    settings = NetworkSettings(
        architecture=content.network, widths=content.widths, units=content.rivals
    )
    stem, shape = None, content.input_shape
    if isinstance(ancestor, Backbone):
        stem = ancestor.stem(shape[1])
        check_network_size(settings, (stem.features, 1, 1))
    else:
        check_network_size(settings, shape)
    plan = NetworkPlan(settings, shape, find_device(device), stem)
    method = ModelTWTA(plan, TWTASettings(), Seed(content.seed).child("method"))
    if ancestor and not isinstance(ancestor, Backbone):
        if settings != ancestor.network(content.rivals) or ancestor.misfit(method.network):
            raise RivalsError(
                "The model's network does not have the shape of its ancestor "
                f"'{printable(ancestor.name)}'; bring back a copy of the model."
            )
        ancestor.give_to(method.network)
    method.statistics_images = familiarity.STATISTICS  # so that memory stays bounded
    return method


def check_finite(task: str, tensors: dict[str, Tensor]) -> None:
    for tensor in tensors.values():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise RivalsError(
                f"The weights of '{task}' are no longer finite, so the model was left as it was; "
                "try other pictures, or fewer --epochs."
            )
