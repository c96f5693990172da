"""5-Datasets: CIFAR-10, MNIST, SVHN, Fashion-MNIST, notMNIST, ten classes each, as 32×32 RGB.

Grey images of 28×28 are padded by 2 and repeated over three channels; each set has its constants.
"""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

from rivals.seeds import Seed
from rivals.streams.data.loading import load
from rivals.streams.splits import Pool, SplitSettings, divide, restrict
from rivals.streams.stream import Benchmark, Stream, StreamItem, streams
from rivals.streams.task import Examples, Preprocessing, Task


def _grey(mean: float, std: float) -> Preprocessing:
    return Preprocessing(255.0, (mean,) * 3, (std,) * 3)


SETS = {  # in the stream's order; the constants are GPM's and WSN's
    "cifar-10": Preprocessing(
        255.0, (125.3 / 255, 123.0 / 255, 113.9 / 255), (63.0 / 255, 62.1 / 255, 66.7 / 255)
    ),
    "mnist": _grey(0.1, 0.2752),
    "svhn": Preprocessing(255.0, (0.4377, 0.4438, 0.4728), (0.198, 0.201, 0.197)),
    "fashion-mnist": _grey(0.2190, 0.3318),
    "notmnist": _grey(0.4254, 0.4501),
}


class FiveDatasets(Stream):
    """One data set a task."""

    name = "five-datasets"
    input_shape = (3, 32, 32)

    def __init__(self, settings: SplitSettings, seed: Seed) -> None:
        self.settings, self.seed = settings, seed
        self.data = [load(name) for name in list(SETS)[: settings.length(len(SETS))]]
        self.fingerprint = " ".join(data.fingerprint for data in self.data)
        subset = "; ".join(data.subset for data in self.data if data.subset)
        self.subset = settings.describe_subset(subset, len(SETS))

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: int) -> StreamItem:
        index = self.position(index)
        data = self.data[index]
        pool, seed = Pool(data), self.seed.child(data.name)
        parts = restrict(divide(pool, self.settings, seed), pool.labels, self.settings, seed)

        def pick(among: Tensor) -> Examples:
            images = pool.take(among)
            if images.shape[1] == 1:
                images = functional.pad(images, (2, 2, 2, 2)).repeat(1, 3, 1, 1)
            return Examples(images, pool.labels[among])

        train, validation, test = (
            pick(part) for part in (parts.train, parts.validation, parts.test)
        )
        task = Task(data.name, data.classes, train, validation, SETS[data.name])
        return StreamItem(task, test)


streams.register("five-datasets")(Benchmark(SplitSettings, FiveDatasets))
