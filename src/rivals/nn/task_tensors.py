"""A protected model is a seed and a stack of claims: what a task adds to it, as tensors, and back.

A task owns the edges that it was the first to use; the values of these, the winners, the norms and
the head are all there is to store. Which edges are owned follows from the winners of the tasks in
order, so it is not stored. Winners take ⌈log2 units⌉ bits a block. A direct task is its head.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from rivals.errors import RivalsError
from rivals.nn.head import Head
from rivals.nn.rival_network import RivalNetwork

DIRECT = "direct."  # before the names of the tensors of a direct head


def pack_winners(winners: Tensor, bits: int) -> Tensor:
    """Unit numbers (blocks,) → bytes, `bits` bits each."""
    digits = (winners.cpu().numpy()[:, None] >> np.arange(bits)) & 1
    return torch.from_numpy(np.packbits(digits.astype(np.uint8).flatten()))


def unpack_winners(packed: Tensor, blocks: int, bits: int) -> Tensor:
    digits = np.unpackbits(packed.numpy(), count=blocks * bits).reshape(blocks, bits)
    return torch.from_numpy((digits.astype(np.int64) << np.arange(bits)).sum(1))


def winner_tensors(number: int, winners: Tensor) -> dict[str, Tensor]:
    """The winners (blocks,) of a set of rivals by the name that says how many bits one takes."""
    bits = max(1, int(winners.max()).bit_length())
    return {f"rivals{number}.winners.{bits}": pack_winners(winners, bits)}


def task_tensors(network: RivalNetwork, task: str) -> dict[str, Tensor]:
    """What a task that has settled knows by itself: winners, norms, head."""
    head = network.heads[task].tensors()
    if network.is_direct(task):
        return {f"{DIRECT}{name}": value for name, value in head.items()}
    tensors = {f"head.{name}": value for name, value in head.items()}
    for number, rivals in enumerate(network.rivals()):
        tensors |= winner_tensors(number, rivals.winners[task])
    for number, layer in enumerate(network.layers()):
        for name, value in layer.norm.state(task).tensors().items():
            tensors[f"layer{number}.norm.{name}"] = value
    return tensors


def claimed_tensors(network: RivalNetwork, task: str) -> dict[str, Tensor]:
    """The values of the edges that `task` owns, layer by layer: (edges, taps)."""
    layers = enumerate(network.layers_of(task))
    return {f"layer{number}.claimed": layer.weight.owned(task) for number, layer in layers}


def tensors(network: RivalNetwork, task: str, protected: bool) -> dict[str, Tensor]:
    """All that is stored of a task; without protection no edge is its own."""
    claimed = claimed_tensors(network, task) if protected else {}
    return task_tensors(network, task) | claimed


def load_task(network: RivalNetwork, task: str, tensors: dict[str, Tensor]) -> None:
    """Give a network the winners, norms and head of `task`."""
    if direct := _under(tensors, DIRECT):
        network.add_direct_head(task, direct["weight"].squeeze(2), direct["bias"])
        return
    for number, rivals in enumerate(network.rivals()):
        prefix = f"rivals{number}.winners."
        name = next((key for key in tensors if key.startswith(prefix)), None)
        if name is None:
            raise damaged(task, f"has no {prefix[:-1]}")
        winners = unpack_winners(tensors[name], rivals.blocks, int(name.removeprefix(prefix)))
        if int(winners.max()) >= rivals.units:
            raise damaged(task, f"names unit {int(winners.max())} of {rivals.units}")
        rivals.winners[task] = winners.to(network.device)
    for number, layer in enumerate(network.layers()):
        layer.norm.begin(task, layer.rivals.blocks, device=network.device)
        layer.norm.state(task).load(_under(tensors, f"layer{number}.norm."))
    classes, width, positions = tensors["head.weight"].shape
    network.heads[task] = Head(classes, width, positions, active=1, seed=0).to(network.device)
    network.heads[task].load(_under(tensors, "head."))


def load_claims(network: RivalNetwork, task: str, tensors: dict[str, Tensor]) -> None:
    """Claim the ticket of `task`, whose winners are known, and fill in the edges that it owns."""
    for number, layer in enumerate(network.layers_of(task)):
        rows, columns = layer.rivals.winner_ids(task), layer.ticket_columns(task)
        first = layer.weight.free(rows, columns)
        values = tensors[f"layer{number}.claimed"]
        if values.shape != (int(first.sum()), layer.weight.taps):
            raise damaged(task, f"has {tuple(values.shape)} weights in layer {number}")
        whole = torch.zeros(*first.shape, layer.weight.taps, device=first.device)
        whole[first] = values.to(whole)
        layer.weight.claim(task, rows, columns, whole)


def winner_bits(network: RivalNetwork) -> int:
    """The bits that the winners of one task take."""
    return sum(r.blocks * math.ceil(math.log2(max(2, r.units))) for r in network.rivals())


def damaged(task: str, what: str) -> RivalsError:
    return RivalsError(f"The stored task '{task}' {what}, which does not fit this network.")


def _under(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
