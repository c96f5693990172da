"""A run that was made before, to be read and not to be continued."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

from rivals.errors import RivalsError
from rivals.experiment.checkpoint import DAMAGE, Checkpoint
from rivals.experiment.results import read_results
from rivals.experiment.run_folder import RunFolder
from rivals.io.pictures import Shape
from rivals.io.reading import check_no_links
from rivals.learn.method import Method, methods
from rivals.nn.network_plan import NetworkPlan, NetworkSettings
from rivals.seeds import Seed
from rivals.streams.on_validation import measured_on
from rivals.streams.stream import Stream, StreamItem, streams
from rivals.tickets.ticket import Ticket

MOST_WEIGHTS = 2**26  # between layers of the widths that config.yaml names


class StoredRun:
    """The tasks, tickets, images and the model of a run's folder."""

    def __init__(self, path: Path) -> None:
        self.folder = RunFolder(path)
        self.config = self.folder.read_config()
        if not self.folder.results.exists():
            raise RivalsError(
                f"No task of the run {path} is done yet; go on with it by `rivals run … --resume`."
            )
        results = read_results(self.folder.results)
        self.tasks: list[str] = [task["name"] for task in results["tasks"]]

    def ticket(self, task: str) -> Ticket:
        """The stored ticket of `task`; another name is answered with those that there are."""
        if task not in self.tasks:
            raise RivalsError(
                f"The run {self.folder.path} has no task named '{task}'; "
                f"it has {', '.join(self.tasks)}."
            )
        folder = self.folder.ticket(task)
        check_no_links(self.folder.path, folder, "ticket")
        return Ticket.load(folder)

    @cached_property
    def stream(self) -> Stream:
        """The stream that was learned; other data than those are refused."""
        try:
            benchmark = streams[self.config["benchmark"]]
            settings = benchmark.settings(**self.config["stream"])
            seed = Seed(self.config["seed"])
            fingerprint = self.config["data"]["fingerprint"]
            on = self.config["data"]["measured_on"]
        except DAMAGE as error:
            raise foreign(self.folder.path, error) from error
        stream = benchmark.build(settings, seed.child("stream"))
        if stream.fingerprint != fingerprint:
            raise RivalsError(
                f"The run {self.folder.path} learned from other data ({fingerprint}) than are "
                f"here ({stream.fingerprint}); bring back the former, or use --images."
            )
        return measured_on(stream, on)

    def item(self, task: str) -> StreamItem:
        return self.stream[self.tasks.index(task)]

    def method(self) -> Method:
        """The method as its last checkpoint has it."""
        checkpoint = self.folder.checkpoints.load()
        return restored(self.folder.path, self.config, checkpoint, self.stream.input_shape)


def restored(path: Path, config: dict[str, Any], checkpoint: Checkpoint, shape: Shape) -> Method:
    """The method of the run in `path`, for images of `shape`, as a checkpoint has it."""
    try:
        network = NetworkSettings(**config["network"])
        pairs = zip(network.widths, network.widths[1:], strict=False)
        if sum(before * after for before, after in pairs) > MOST_WEIGHTS:
            raise RivalsError(
                f"The settings of the run {path} describe a network of more than "
                f"{MOST_WEIGHTS:,} pairs of units, which is the limit for stored runs."
            )
        cls = methods[config["method"]]
        settings = cls.settings_class(**config["training"])
        plan = NetworkPlan(network, shape)
        method = cls(plan, settings, Seed(config["seed"]).child("method"))
        checkpoint.into(method)
    except DAMAGE as error:
        raise foreign(path, error) from error
    return method


def foreign(path: Path, error: Exception) -> RivalsError:
    return RivalsError(
        f"The settings or the checkpoint of the run {path} do not fit this version "
        f"({type(error).__name__}); use the version of rivals that wrote them."
    )
