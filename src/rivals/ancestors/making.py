"""Make an ancestor of what was learned before: a task of a model or of a run, or a ticket.

    model, run or ticket ─► weights and norms of a task ─► covariance of its features ─► a folder

The covariance around class means is what a few pictures of a new task cannot show. A run has its
pictures: those of all its tasks are looked at, as the ancestor sees them. A model keeps a few
directions of the covariance of each task. Of a ticket nothing is known: all directions count alike.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from rivals.ancestors import NO_ANCESTOR, SHIPPED
from rivals.ancestors.shipped_file import PREPARED
from rivals.ancestors.ticket_weights import BodyWeights, of_network, of_ticket, recognise
from rivals.deploy.test_pictures import at_random
from rivals.errors import RivalsError
from rivals.experiment.results import read_results
from rivals.experiment.stored_run import StoredRun, restored
from rivals.io import signatures
from rivals.io.files import digest, remove_abandoned, write_folder
from rivals.io.reading import printable
from rivals.learn.method import methods
from rivals.learn.twta import TWTA
from rivals.model import ancestor_file, limits
from rivals.model.ancestor_file import CARD, FILE, FORMAT
from rivals.model.folder import ModelFolder
from rivals.model.folder_kind import folder_kind
from rivals.naming import familiarity, gaussian
from rivals.nn.network_plan import NetworkPlan, NetworkSettings
from rivals.nn.rival_network import ANCESTOR, RivalNetwork
from rivals.seeds import Seed
from rivals.streams.picture_source import named
from rivals.tickets.parallel import ParallelTickets
from rivals.tickets.ticket import Ticket

AT_ONCE = 64  # pictures
SAME = 0.02  # features of the ancestor and of its ticket may differ so much, relatively
SHRINK = 0.1  # towards the same variance in all directions: new classes differ in narrow ones, too
EXACT = torch.float16  # the type in which a model keeps weights
Features = Callable[[Tensor], Tensor]
Found = tuple[NetworkSettings, RivalNetwork, BodyWeights]


@dataclass(frozen=True)
class MadeAncestor:
    """An ancestor in its folder, and its card."""

    folder: Path
    card: dict[str, Any]
    bytes: int

    def to_dict(self) -> dict[str, Any]:
        return {"folder": str(self.folder), "bytes": self.bytes, "card": self.card}


@dataclass
class AncestorSource:
    """What an ancestor is made of."""

    ticket: Ticket
    facts: dict[str, Any]  # of the card
    networks: tuple[str, ...] = tuple(limits.NETWORKS)  # that the ticket may be cut from
    method: TWTA | None = None  # that learned it; its network still has the norms
    covariance: Tensor | None = None  # of the features around class means
    run: StoredRun | None = None  # whose pictures may be looked at
    notes: list[str] = field(default_factory=list)


def make_ancestor(
    source: str | PathLike[str], out: str | PathLike[str], task: str | None = None
) -> MadeAncestor:
    """Make an ancestor of a task that was learned, for new models to start from.

    Args:
        source: The folder of a model, a run or a ticket.
        out: The folder of the ancestor.
        task: The task of a model or a run whose network it is; by default the last one.

    >>> import numpy as np, rivals
    >>> rng = np.random.default_rng(0)
    >>> def pictures():
    ...     images = rng.integers(0, 200, (40, 16, 16, 3), dtype=np.uint8)
    ...     images[:20, :8] += 55
    ...     return images, ["up"] * 20 + ["down"] * 20
    >>> learned = rivals.Model("first").learn(pictures(), "half", size=16, epochs=3)
    >>> rivals.make_ancestor("first", "known").card["task"]
    'half'
    >>> learned = rivals.Model("second").learn(pictures(), "same", ancestor="known")
    """
    place = Path(out)
    name = named(place.absolute().name, "ancestor")
    if name in (NO_ANCESTOR, *SHIPPED):
        raise RivalsError(f"'{name}' is the name of another ancestor; choose another --out.")
    _check_out(place, Path(source))
    origin = find_origin(Path(source), task)
    shape = origin.ticket.input_shape
    found = faithful(origin) if shape[1] == shape[2] else None
    if found is None:
        raise RivalsError(
            f"The task '{origin.ticket.task}' of {source} has another network than a model may "
            f"have, which is {' or '.join(origin.networks)}, with ReLU units and square pictures; "
            "learn it with one of these."
        )
    settings, network, body = found
    within = covariance_of(origin, network)
    prepare = origin.ticket.preprocessing
    rows = (torch.tensor(row, dtype=torch.float64) for row in (prepare.mean, prepare.std))
    tensors = {
        **{key: _kept(key, tensor) for key, tensor in body.tensors().items()},
        **{key: row.expand(shape[0]) for key, row in zip(PREPARED, rows, strict=True)},
        "within": within.float()[tuple(torch.triu_indices(*within.shape))],  # it is symmetric
    }
    data = safetensors.torch.save({key: t.contiguous() for key, t in tensors.items()})
    words = ["rivals", "ancestor", "make", Path(source).resolve().name]
    card: dict[str, Any] = {
        "format": FORMAT,
        "name": name,
        "sha256": digest(data),
        "architecture": settings.architecture,
        "widths": list(settings.widths),
        "input_shape": list(shape),
        "weights": sum(weight.numel() for weight in body.weights),
        **origin.facts,
        "covariance": "; ".join(origin.notes),
        "command": shlex.join([*words, "--task", origin.ticket.task, "--out", name]),
    }
    for key, value in card.items():  # names may come from elsewhere
        card[key] = printable(value, limits.WORDS) if isinstance(value, str) else value
    card["card_sha256"] = ancestor_file.card_checksum(card)
    text = (json.dumps(card, indent=1, ensure_ascii=False) + "\n").encode()
    ancestor_file.parse(text, data, place)  # nothing is written that could not be read
    remove_abandoned(place)
    write_folder(place, {FILE: data, CARD: text}, old=(signatures.NAME,))
    return MadeAncestor(place, card, len(data))


def _check_out(place: Path, source: Path) -> None:
    if place.exists() and not place.is_dir():
        raise RivalsError(f"{place} is a file; --out needs a folder.")
    try:
        names = {path.name for path in place.iterdir()} if place.is_dir() else set()
    except OSError as error:
        raise RivalsError(
            f"{place} cannot be read ({error.strerror}); choose another --out."
        ) from error
    if names - {FILE, CARD, signatures.NAME} or place.resolve() == source.resolve():
        raise RivalsError(f"{place} holds something else than an ancestor; choose another --out.")


def _kept(name: str, tensor: Tensor) -> Tensor:
    return tensor.to(EXACT) if name.endswith(".weight") else tensor.float()


# Sources -----------------------------------------------------------------------------------------


def find_origin(source: Path, task: str | None) -> AncestorSource:
    """What is in a folder, for the task that is asked for or the last one."""
    found = {"model": of_model, "run": of_run, "ticket": of_ticket_folder}
    kind = folder_kind(source)
    if kind not in found:
        raise RivalsError(f"{source} is an ancestor already; use it with --ancestor {source}.")
    return found[kind](source, task)


def of_model(source: Path, task: str | None) -> AncestorSource:
    model = ModelFolder.open(source)
    if model.method.network.stem is not None:
        raise RivalsError(
            f"The model {source} reads features of a network that is not its own, so its tasks "
            "cannot be ancestors; start new models from that network as well."
        )
    facts = model.task(_of_network(model) if task is None else task)
    if model.method.network.is_direct(facts.name):
        raise RivalsError(
            f"The task '{facts.name}' of {source} is named by its pixels alone, so it has no "
            "network that could be an ancestor; choose another with --task."
        )
    before = [each.name for each in model.tasks[: model.tasks.index(facts)]]
    card: dict[str, Any] = {
        "trained_on": f"{facts.images:,} pictures of the task '{facts.name}' ("
        f"{_some(facts.classes)}){_after(before)}",
        "task": facts.name,
        "accuracy": facts.accuracy,
    }
    if model.description.ancestor:
        older = model.ancestor
        card["began_with"] = {"name": older.name, "sha256": older.sha256}
        card["trained_on"] += f", from the ancestor '{older.name}': {older.card.get('trained_on')}"
        if older.card.get("terms"):
            card["terms"] = older.card["terms"]
    kept = gaussian.full_covariance(model.familiarity[facts.name].density.to_dict())
    return AncestorSource(
        model.ticket(facts.name), card, (model.description.network,), model.method, kept,
        notes=["the widest directions, as the model keeps them of the task"],
    )  # fmt: skip


def _of_network(model: ModelFolder) -> str:
    """The last task with a network of its own, else the last task; `""` without tasks."""
    names = [task.name for task in model.tasks]
    own = [name for name in names if not model.method.network.is_direct(name)]
    return next(reversed([*names[-1:], *own]), "")


def of_run(source: Path, task: str | None) -> AncestorSource:
    run = StoredRun(source)
    config = run.config
    name = run.tasks[-1] if task is None else task
    ticket = run.ticket(name)
    architecture = str(config["network"].get("architecture"))
    if architecture not in limits.NETWORKS:
        raise RivalsError(
            f"The run {source} has the network '{architecture}', but models have "
            f"{', '.join(limits.NETWORKS)}; run it with one of these."
        )
    number = run.tasks.index(name)
    results = read_results(run.folder.results)
    subset = f" ({results['subset']})" if results.get("subset") else ""
    card = {
        "trained_on": f"{config['benchmark']}{subset}, task '{name}' ({_some(ticket.classes)})"
        f"{_after(run.tasks[:number])}, by {config['method']}",
        "task": name,
        "accuracy": results["matrix"][-1][number],
    }
    method = None
    if issubclass(methods[config["method"]], TWTA) and run.folder.checkpoints.exists():
        found = restored(source, config, run.folder.checkpoints.load(), ticket.input_shape)
        assert isinstance(found, TWTA)
        method = found if name in found.known else None
    return AncestorSource(ticket, card, (architecture,), method, run=run)


def of_ticket_folder(source: Path, task: str | None) -> AncestorSource:
    ticket = Ticket.load(source)
    if task not in (None, ticket.task):
        raise RivalsError(
            f"{source} holds the ticket of '{ticket.task}', not of '{task}'; leave out --task."
        )
    card = {
        "trained_on": f"the task '{ticket.task}' ({_some(ticket.classes)})",
        "task": ticket.task,
        "accuracy": ticket.accuracy,
    }
    return AncestorSource(ticket, card)


def _after(tasks: list[str]) -> str:
    return f", after {_some(tasks)}" if tasks else ""


def _some(names: list[str] | tuple[str, ...], most: int = 10) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


# Features ----------------------------------------------------------------------------------------


def faithful(origin: AncestorSource) -> Found | None:
    """A network with the ancestor, whose features are those of the ticket; None: there is none."""
    ticket = origin.ticket
    images = at_random(ticket).held[:AT_ONCE]
    together = ParallelTickets([ticket.network], [ticket.preprocessing])
    wanted = together(images)[0].features
    for settings, body in bodies(origin):
        network = NetworkPlan(settings, ticket.input_shape).rivals(Seed(0))
        network.adopt(body.weights, body.norms, torch.eye(network.features))  # not known yet
        apart = (features(network, ticket.preprocessing(images)) - wanted).norm()
        if apart <= SAME * wanted.norm():
            return settings, network, body
    return None


def bodies(origin: AncestorSource) -> Iterator[tuple[NetworkSettings, BodyWeights]]:
    """Weights that may be those of the source, the better ones first, and their network."""
    ticket, method = origin.ticket, origin.method
    if method is not None and method.plan.settings.widths:
        units = method.plan.settings.units
        widths = tuple(width // units for width in method.plan.settings.widths)
        settings = NetworkSettings(architecture=origin.networks[0], widths=widths, units=1)
        yield settings, of_network(method.network, ticket.task)
    found = recognise(ticket.network, ticket.input_shape, origin.networks)
    if found is not None and method is not None:
        yield found, of_network(method.network, ticket.task)
    if found is not None:
        yield found, of_ticket(ticket.network, found, ticket.input_shape)


@torch.no_grad()
def features(network: RivalNetwork, prepared: Tensor) -> Tensor:
    """What the ancestor of a network sees in prepared pictures."""
    still = network.learning(False)
    return torch.cat([still.flow(part, ANCESTOR).values for part in torch.split(prepared, AT_ONCE)])


@torch.no_grad()
def covariance_of(origin: AncestorSource, network: RivalNetwork) -> Tensor:
    """(d, d): the covariance of features around class means, wider in its narrow directions."""
    found, prepare = origin.covariance, origin.ticket.preprocessing
    if origin.run is not None:
        found, note = _of_pictures(origin.run, lambda images: features(network, prepare(images)))
        origin.notes.append(note)
    if found is None:
        noise = features(network, prepare(at_random(origin.ticket).held))
        variance = float(noise.var(0).mean()) or 1.0
        origin.notes.append("unknown: the same in all directions")
        return variance * torch.eye(noise.shape[1])
    mean = float(found.diagonal().mean()) or 1.0
    wider = torch.lerp(found, mean * torch.eye(len(found), dtype=found.dtype), SHRINK)
    return (wider + wider.T) / 2  # products are symmetric but for rounding


def _of_pictures(run: StoredRun, look: Features) -> tuple[Tensor | None, str]:
    """From training pictures of all tasks of a run, where they are here; and what was done."""
    try:
        run.stream  # noqa: B018 - finds the data
    except RivalsError as error:
        return None, f"the pictures of the run are not here ({error})"
    total, count, classes = torch.zeros((), dtype=torch.float64), 0, 0
    for name in run.tasks:
        few = familiarity.few(run.item(name).task, familiarity.STATISTICS // len(run.tasks))
        some = few.train
        rows = look(some.images).double()
        for label in torch.unique(some.labels):
            own = rows[some.labels == label]
            apart = own - own.mean(0)
            total, count, classes = total + apart.T @ apart, count + len(own), classes + 1
    if count <= classes:
        return None, "the run has one picture a class"
    return total / (count - classes), f"{count:,} training pictures of {classes} classes of the run"
