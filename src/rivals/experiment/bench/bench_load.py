"""Suite `load`: decoding a data set once, starting warm, and batches against training steps."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from typing import Any

from rivals.experiment.bench.bench_row import Row, at_least
from rivals.experiment.bench.bench_sizes import Sizes
from rivals.experiment.bench.noise_stream import noise_task
from rivals.experiment.bench.probe import ask
from rivals.experiment.bench.steps import PhaseSteps
from rivals.experiment.bench.timing import interleave, ratio
from rivals.io.process_memory import peak_memory
from rivals.seeds import Seed
from rivals.streams.batching import Batching, epoch

SETS = (
    "mnist", "fashion-mnist", "cifar-10", "cifar-100", "svhn", "notmnist", "omniglot",
    "tiny-imagenet",
)  # fmt: skip


def rows(sizes: Sizes, repeat: int) -> Iterator[Row]:
    yield batches_row(sizes, repeat)
    if os.environ.get("RIVALS_DATA"):
        yield from data_rows(sizes)


def batches_row(sizes: Sizes, repeat: int) -> Row:
    """Batches with crop and flip in turn with settled steps of the AlexNet, which are quick."""
    task = noise_task(sizes.shape, 100 * sizes.batch, sizes.classes)
    steps = PhaseSteps.of("settled", sizes.plan("alexnet"), task, sizes.batch)
    batching = Batching(sizes.batch, augmentation="crop-flip")
    feed = epoch([task], batching, Seed(0))

    def deliver() -> None:
        nonlocal feed
        if next(feed, None) is None:
            feed = epoch([task], batching, Seed(0))

    times = interleave({"batch": deliver, "step": steps.step}, repeat)
    found = ratio(times["step"], times["batch"])
    return Row(
        "load-batches", found.value, "× faster", at_least(5),
        f"a batch of {sizes.batch} with crop and flip is delivered in "
        f"{1000 * times['batch'].median:.2f} ms and trained on in "
        f"{1000 * times['step'].median:.2f} ms",
        found.spread,
    )  # fmt: skip


def data_rows(sizes: Sizes) -> Iterator[Row]:
    """Every data set that is there: decoded once into a fresh cache, then started warm."""
    from rivals.streams.data.catalogue import dataset
    from rivals.streams.data.find import search

    with tempfile.TemporaryDirectory() as cache:
        for name in SETS:
            if search(dataset(name)) is None:
                continue
            cold, warm = (ask("load", sizes, name=name, cache=cache) for _ in range(2))
            for word, facts in (("decode", cold), ("warm", warm)):
                yield Row(
                    f"load-{word}-{name}", facts["seconds"], "s", None,
                    f"{facts['images']:,} images in a process of its own, with at most "
                    f"{facts['peak'] / 1e6:.0f} MB resident ({facts['idle'] / 1e6:.0f} before)",
                )  # fmt: skip


def load(sizes: Sizes, name: str, cache: str) -> dict[str, Any]:
    """Load one data set with a cache of its own: seconds and memory."""
    os.environ["RIVALS_CACHE"] = cache
    from rivals.streams.data.loading import load

    idle, start = peak_memory(), time.perf_counter()
    found = load(name)
    images = len(found.train.labels) + len(found.test.labels)
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "idle": idle, "peak": peak_memory(), "images": images}
