"""CIFAR: `cifar100` in 10 tasks of 10 classes, `cifar100-20` in 20 of 5, `cifar10` in 5 of 2.

`cifar100-incremental` has the tasks of `cifar100`; its name says that results are read with the
task unknown. Normalisation is GPM's for tasks of 10 and 2 classes, La-MAML's for tasks of 5.
"""

from __future__ import annotations

from pydantic import Field

from rivals.seeds import Seed
from rivals.streams.class_split import ClassSplit
from rivals.streams.data.loading import load
from rivals.streams.splits import ClassOrder, SplitSettings
from rivals.streams.stream import Benchmark, Stream, streams
from rivals.streams.task import Preprocessing

GPM = Preprocessing(
    scale=255.0,
    mean=(125.3 / 255, 123.0 / 255, 113.9 / 255),
    std=(63.0 / 255, 62.1 / 255, 66.7 / 255),
)
LAMAML = Preprocessing(scale=255.0, mean=(0.5071, 0.4867, 0.4408), std=(0.2675, 0.2565, 0.2761))


class CifarSettings(SplitSettings):
    """How CIFAR becomes a stream."""

    class_order: ClassOrder = Field("natural", description="natural, or shuffled by the seed")


def _register(name: str, source: str, width: int, preprocessing: Preprocessing) -> None:
    def build(settings: CifarSettings, seed: Seed) -> Stream:
        data, order = load(source), settings.class_order
        return ClassSplit(name, data, width, preprocessing, settings, order, seed)

    streams.register(name)(Benchmark(CifarSettings, build))


_register("cifar100", "cifar-100", 10, GPM)
_register("cifar100-incremental", "cifar-100", 10, GPM)
_register("cifar100-20", "cifar-100", 5, LAMAML)
_register("cifar10", "cifar-10", 2, GPM)
