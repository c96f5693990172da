"""Saving TWTA: the stack of claims, and the task that is being learned as it stands at any step."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from torch import Tensor

from rivals.learn.state import State, StatePart, load_optimiser, optimiser_tensors
from rivals.nn import task_tensors as stack
from rivals.nn.rival_network import RivalNetwork
from rivals.nn.shared_weight import HeldWeight
from rivals.nn.training_copy import TrainingCopy

if TYPE_CHECKING:
    from rivals.learn.twta import TWTA


def save(method: TWTA) -> State:
    """A part for each task that is done, one for the task at work, one for what is common."""
    network, protected = method.network, method.settings.protect == "edges"
    common = method.common_part()
    common.facts["units"] = [rivals.units for rivals in network.rivals()]
    common.facts["facts"], common.facts["density"] = method.facts, method.density
    common.facts["current"], common.facts["competing"] = method.current, method.competing
    common.facts["trial"] = method.trial
    parts: State = {"common": common}
    for task in method.known:
        if task != method.current:
            tensors = partial(stack.tensors, network, task, protected)
            parts[f"task/{task}"] = StatePart(tensors, fixed=protected and not method.dropped)
    if method.current:
        parts["working"] = StatePart(working_tensors(method))
    if not protected:
        parts["weights"] = StatePart(
            {f"layer{i}.values": weight.values for i, weight in enumerate(held(network))}
        )
    return parts


def working_tensors(method: TWTA) -> dict[str, Tensor]:
    """The task that is being learned: posteriors or winners, norms, head, work, buffers."""
    network, task, tensors = method.network, method.current, dict[str, Tensor]()
    for number, optimiser in enumerate(method.optimisers):
        tensors |= optimiser_tensors(optimiser, f"optimiser{number}")
    if method.competing:
        for i, rivals in enumerate(network.rivals()):
            tensors[f"rivals{i}.posterior"] = rivals.posteriors[task].detach()
            tensors[f"rivals{i}.contenders"] = rivals.contenders[task]
        tensors |= {f"head.{name}": t for name, t in network.heads[task].tensors().items()}
        for i, layer in enumerate(network.layers()):
            norm = layer.norm.state(task).tensors()
            tensors |= {f"layer{i}.norm.{name}": value for name, value in norm.items()}
    else:
        for part in method.slices():
            part.write_back()
        tensors |= stack.task_tensors(network, task)
    for i, layer in enumerate(network.layers()):
        tensors[f"layer{i}.work"] = layer.work.values
    return tensors


def load(method: TWTA, state: State) -> None:
    """Bring a fresh method to a saved state, bit for bit."""
    network, protected = method.network, method.settings.protect == "edges"
    method.load_common(state["common"])
    facts = state["common"].facts
    method.facts, method.density = facts["facts"], facts["density"]
    method.current, method.competing = facts["current"], facts["competing"]
    method.trial = facts.get("trial", "")
    for rivals, units in zip(network.rivals(), facts["units"], strict=True):
        rivals.units = units
    for layer in network.layers():
        layer.fit()
    for task in method.known:
        if task != method.current:
            stack.load_task(network, task, state[f"task/{task}"].tensors)
            network.freeze(task)
            if protected:
                stack.load_claims(network, task, state[f"task/{task}"].tensors)
    if not protected:
        for i, weight in enumerate(held(network)):
            weight.values = state["weights"].tensors[f"layer{i}.values"]
    if method.current:
        load_working(method, state["working"].tensors)


def load_working(method: TWTA, tensors: dict[str, Tensor]) -> None:
    """The task at work, as `working_tensors` left it."""
    network, task = method.network, method.current
    if method.competing:
        count = range(len(network.rivals()))
        posteriors = [tensors[f"rivals{i}.posterior"] for i in count]
        contenders = [tensors[f"rivals{i}.contenders"] for i in count]
        classes = len(method.known[task].classes)
        network.open(task, classes, posteriors, contenders=contenders)
        load_work(network, tensors)
        network.heads[task].load({name: tensors[f"head.{name}"] for name in ("weight", "bias")})
        for i, layer in enumerate(network.layers()):
            state = layer.norm.state(task)
            state.load({name: tensors[f"layer{i}.norm.{name}"] for name in state.tensors()})
        method.prepare_competition()
    else:
        stack.load_task(network, task, tensors)
        for layer in network.layers():
            rows, columns = layer.rivals.winner_ids(task), layer.ticket_columns(task)
            layer.work = TrainingCopy.take(layer.weight, rows, columns, None)
        load_work(network, tensors)
        method.prepare_settled()
    for number, optimiser in enumerate(method.optimisers):
        load_optimiser(optimiser, tensors, f"optimiser{number}")


def held(network: RivalNetwork) -> list[HeldWeight]:
    """The shared weights of an unprotected network."""
    weights = [layer.weight for layer in network.layers()]
    return [weight for weight in weights if isinstance(weight, HeldWeight)]


def load_work(network: RivalNetwork, tensors: dict[str, Tensor]) -> None:
    for i, layer in enumerate(network.layers()):
        layer.work.values = tensors[f"layer{i}.work"]


def footprint(method: TWTA) -> dict[str, int]:
    """Bytes of claimed weights, and of what else the tasks keep: winners, norms, heads."""
    parts = save(method).values()
    tensors = [pair for part in parts for pair in part.tensors.items()]
    claimed = [t for name, t in tensors if name.endswith((".claimed", ".values"))]
    weights = sum(tensor.nbytes for tensor in claimed)
    return {"weights": weights, "tasks": sum(tensor.nbytes for _, tensor in tensors) - weights}
