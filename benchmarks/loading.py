"""Loading, measured: decoding once, starting warm, and batches against the training they feed.

    python benchmarks/loading.py            needs $RIVALS_DATA; a fresh cache is made and thrown away

Each decode and each warm start is a process of its own; its memory is its high-water mark. Batches
and training steps take turns in one process with one thread, and medians are compared.
"""

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time

SETS = ("mnist", "fashion-mnist", "cifar-10", "cifar-100", "svhn", "notmnist", "omniglot",
        "tiny-imagenet")  # fmt: skip


def load(name: str) -> None:
    """Load one data set and print seconds and peak memory; run in a process of its own."""
    from rivals.data.load import load

    idle, start = _peak(), time.perf_counter()
    found = load(name)
    images = len(found.train.labels) + len(found.test.labels)
    facts = {"seconds": time.perf_counter() - start, "idle": idle, "peak": _peak()}
    print(json.dumps({**facts, "images": images, "subset": found.subset}))


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def tables() -> None:
    print("| data set | images | decode once, s | peak MB | warm start, s | peak MB |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "RIVALS_CACHE": cache}
        for name in SETS:
            cold, warm = (
                json.loads(
                    subprocess.run(
                        [sys.executable, __file__, name], env=environment, check=True,
                        capture_output=True, text=True,
                    ).stdout
                )
                for _ in range(2)
            )  # fmt: skip
            cells = [f"{cold['images']:,}"]
            for found in (cold, warm):
                cells += [f"{found['seconds']:.2f}", f"{found['peak']:.0f}"]
            print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


def batches() -> None:
    """Batches of CIFAR-100 with crop and flip against steps of the settled AlexNet ticket."""
    import torch

    from rivals.methods import methods
    from rivals.networks import NetworkPlan, NetworkSettings
    from rivals.seeds import Seed
    from rivals.tasks import epoch, streams

    torch.set_num_threads(1)
    found = streams["cifar100"]
    stream = found.build(found.settings(), Seed(0))
    task = stream.lesson(0).task
    cls = methods["random-ticket"]
    plan = NetworkPlan(NetworkSettings(network="alexnet", units=8), stream.input_shape)
    settings = cls.settings_class(epochs=1, augmentation="crop-flip")
    method = cls(plan, settings, Seed(0))
    method.start(task)
    feeding, training = [], []
    feed = epoch([task], settings.batching, Seed(0))
    while True:
        start = time.perf_counter()
        batch = next(feed, None)
        middle = time.perf_counter()
        if batch is None:
            break
        method.step(batch)
        feeding.append(middle - start)
        training.append(time.perf_counter() - middle)
    one, other = (1000 * statistics.median(times[3:]) for times in (feeding, training))
    print(f"\nbatch of 40 delivered in {one:.2f} ms, trained on in {other:.2f} ms: "
          f"{other / one:.1f} × faster")  # fmt: skip


if __name__ == "__main__":
    if len(sys.argv) > 1:
        load(sys.argv[1])
    else:
        tables()
        batches()
