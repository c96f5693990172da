"""The suites by name, and one pass over those that were asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import torch

from rivals.errors import RivalsError, unknown
from rivals.experiment.bench import bench_deploy as deploy
from rivals.experiment.bench import bench_edge as edge
from rivals.experiment.bench import bench_load as load
from rivals.experiment.bench import bench_memory as memory
from rivals.experiment.bench import bench_serve as serve
from rivals.experiment.bench import bench_tickets as tickets
from rivals.experiment.bench import bench_train as train
from rivals.experiment.bench import growth
from rivals.experiment.bench.bench_row import Row
from rivals.experiment.bench.bench_sizes import Sizes

SUITES: dict[str, Callable[[Sizes, int], Iterator[Row]]] = {
    "train": train.rows,
    "memory": memory.rows,
    "tickets": tickets.rows,
    "growth": growth.rows,
    "load": load.rows,
    "deploy": deploy.rows,
    "edge": edge.rows,
    "serve": serve.rows,
}


def chosen(name: str) -> list[str]:
    """The suites that a name stands for."""
    if name == "all":
        return [each for each in SUITES if each != "serve" or not serve.missing()]
    if name not in SUITES:
        raise unknown("suite", name, [*SUITES, "all"])
    return [name]


def measure(name: str, repeat: int, sizes: Sizes | None = None) -> Iterator[Row]:
    """The rows of a suite, or of all, one by one as they are measured, with one thread."""
    names = chosen(name)
    if repeat < 1:
        raise RivalsError(f"--repeat is {repeat}, but must be at least 1.")
    return _measure(names, repeat, sizes or Sizes())


def _measure(names: list[str], repeat: int, sizes: Sizes) -> Iterator[Row]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for name in names:
            for row in SUITES[name](sizes, repeat):
                yield replace(row, suite=name)
    finally:
        torch.set_num_threads(threads)
