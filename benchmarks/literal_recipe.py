"""Why the paper's recipe, taken literally, learns badly: the numbers of docs/paper.md.

    python benchmarks/literal_recipe.py

`signal_sizes` shows how the signal shrinks with Glorot's initial weights; `first_task` shows that
the posterior of the literal recipe never leaves its start.
"""

from __future__ import annotations

import torch

from rivals.experiment.run_settings import resolve
from rivals.learn.method import methods
from rivals.nn.activations import Activations
from rivals.nn.network_plan import NetworkPlan, NetworkSettings
from rivals.nn.selection import Winners
from rivals.seeds import Seed
from rivals.streams.stream import streams

SETTLING = {"spread": 4.0, "posterior_optimiser": "adam"}
VARIANTS: dict[str, tuple[str, dict[str, object]]] = {  # preset, changes
    "paper": ("paper", {}),
    "initial weights repaired": ("paper", {"initial": "live"}),
    "competition settles": ("paper", SETTLING),
    "both": ("paper", {"initial": "live", **SETTLING}),
    "default, a fifth of the steps": ("default", {"compete": 0.2}),
}


@torch.no_grad()
def signal_sizes(initial: str) -> list[float]:
    """Standard deviation after each of four linear layers, J = 8, for noise of deviation 1."""
    settings = NetworkSettings("mlp", (256,) * 4, 8, "linear", "none", initial)
    network = NetworkPlan(settings, input_shape=(1, 16, 16)).rivals(Seed(0))
    posteriors = [
        torch.randn(rivals.blocks, rivals.units, generator=Seed(number).torch())
        for number, rivals in enumerate(network.rivals())
    ]
    network.open("task", 10, posteriors)
    network.settle("task")
    noise = torch.randn(500, 1, 16, 16, generator=Seed(0).torch())
    flow, sizes = Activations(noise.flatten(1), "task", Winners("task")), []
    for layer in network.layers():
        flow = layer(flow)
        sizes.append(flow.values.std().item())
    return sizes


def first_task(preset: str, changes: dict[str, object]) -> tuple[float, float, float]:
    """Accuracy in percent, and the entropy of the first layer's posterior at both ends."""
    settings = resolve("digits-permuted", preset=preset, overrides={"epochs": 5, **changes})
    stream = streams["digits-permuted"].build(settings.stream, Seed(0))
    plan = NetworkPlan(settings.network, stream.input_shape)
    method = methods["twta"](plan, settings.training, Seed(0))
    lesson = stream.lesson(0)
    name = lesson.task.name
    entropy: list[float] = []

    def watch(step: object) -> None:
        if method.competing:
            log_posterior = method.network.rivals()[0].posteriors[name].detach()
            posterior = torch.distributions.Categorical(logits=log_posterior)
            entropy.append(posterior.entropy().mean().item())

    method.start(lesson.task)
    method.learn(lesson.task, watch)
    method.finish(lesson.task)
    correct = method.predict(lesson.test.images, name).label == lesson.test.labels
    return 100 * correct.float().mean().item(), entropy[0], entropy[-1]


def main() -> None:
    torch.set_num_threads(1)
    for initial in ("glorot", "live"):
        sizes = ", ".join(f"{size:.2f}" for size in signal_sizes(initial))
        print(f"signal after each layer, initial={initial}: {sizes}")
    for name, (preset, changes) in VARIANTS.items():
        accuracy, start, end = first_task(preset, changes)
        print(f"{name:30} {accuracy:5.1f} %   entropy {start:.2f} → {end:.2f}")


if __name__ == "__main__":
    main()
