"""Does torch.compile pay for a task? The step of the small AlexNet, eager and compiled, in turn.

    python benchmarks/compile.py

Prints the seconds that compiling takes, the milliseconds of a step each way, and after how many
steps compiling has paid for itself.
"""

import time

import torch

from rivals.experiment.bench.bench_sizes import Sizes
from rivals.experiment.bench.plain_networks import PlainTraining, alexnet
from rivals.experiment.bench.steps import plain_training
from rivals.experiment.bench.timing import interleave


def main() -> None:
    torch.set_num_threads(1)
    sizes = Sizes()
    eager = plain_training("alexnet", sizes, True, "channels_last")
    network = alexnet(sizes.widths("alexnet", True), sizes.side, sizes.classes)
    quick = PlainTraining(network, eager.images, eager.labels, "channels_last")
    start = time.perf_counter()
    quick.network = torch.compile(quick.network)
    quick.step()
    seconds = time.perf_counter() - start
    times = interleave({"eager": eager.step, "compiled": quick.step}, 15)
    slow, fast = (1000 * times[name].median for name in ("eager", "compiled"))
    print(f"compiling {seconds:.1f} s, a step {slow:.2f} ms eager and {fast:.2f} ms compiled")
    if fast < slow:
        print(f"paid for after {seconds * 1000 / (slow - fast):,.0f} steps")


if __name__ == "__main__":
    main()
