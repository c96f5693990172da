"""Suite `memory`: the extra memory of training after a warm-up, compared with dense training."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rivals.experiment.bench.bench_row import Row, at_most
from rivals.experiment.bench.bench_sizes import Sizes
from rivals.experiment.bench.probe import ask
from rivals.experiment.bench.steps import PHASES

LIMITS = {"stored": 1 / 3, "generated": 1 / 7}


def rows(sizes: Sizes, repeat: int) -> Iterator[Row]:
    for network in ("alexnet", "resnet18"):
        yield from against_dense(network, sizes)
    for stored, name in ((0, "memory-siblings"), (sizes.earlier_tasks, "memory-siblings-later")):
        yield siblings(name, sizes, stored)
    yield wider_than_memory(sizes)


def against_dense(network: str, sizes: Sizes) -> Iterator[Row]:
    """Weights held in memory or generated, each compared with dense training of the same width."""
    dense, native = (_extra(network, sizes, kind) for kind in ("dense", "native"))
    for kind, limit in LIMITS.items():
        ours = _extra(network, sizes, kind)
        yield Row(
            f"memory-{network}-{kind}", ours / dense, "of dense", at_most(limit),
            f"a task of {sizes.memory_steps} steps takes {ours:.0f} MB after a warm-up, "
            f"dense {dense:.0f} MB, the native small network {native:.0f} MB",
        )  # fmt: skip


def wider_than_memory(sizes: Sizes) -> Row:
    """A network that is never in memory as a whole."""
    native = _extra("wide", sizes, "native")
    found = ask("memory", sizes, network="wide", kind="generated")
    ours, weights = found["bytes"] / 1e6, found["weights"]
    return Row(
        "wide-network", ours, "MB", None,
        f"ResNet18 with {sizes.wide_units} rivals a block, {weights / 1e6:.0f} M weights "
        f"({weights * 4 / 1e6:.0f} MB if held), learns a task of {sizes.memory_steps} steps "
        f"(loss {found['first_loss']:.2f} to {found['last_loss']:.2f}); the "
        f"native small network takes {native:.0f} MB",
    )  # fmt: skip


def siblings(name: str, sizes: Sizes, stored: int) -> Row:
    """A task in which all rivals compete as siblings to the end, against one without competition.

    Both include what the earlier tasks occupy.
    """
    competing, settled = (
        _extra("alexnet", sizes, "generated", stored=stored, **PHASES[phase])
        for phase in ("siblings", "settled")
    )
    return Row(
        name, competing / settled, "× settled", at_most(1.3),
        f"AlexNet, all {sizes.units} rivals of a block compete, {stored} earlier tasks: "
        f"{competing:.0f} MB after a warm-up, settled {settled:.0f} MB",
    )  # fmt: skip


def _extra(network: str, sizes: Sizes, kind: str, **options: Any) -> float:
    found = ask("memory", sizes, network=network, kind=kind, **options)
    return float(found["bytes"]) / 1e6
