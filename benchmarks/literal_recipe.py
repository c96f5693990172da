"""Why the paper's recipe, taken literally, learns badly: the numbers of docs/paper.md.

    python benchmarks/literal_recipe.py

`signal_sizes` shows how the signal shrinks with Glorot's initial weights; `first_task` shows that
the posterior of the literal recipe never leaves its start, and what each repair brings.
"""

from __future__ import annotations

import torch

from rivals.experiment.run_settings import resolve
from rivals.learn.callbacks import OnStep
from rivals.learn.method import methods
from rivals.learn.trainer import Trainer
from rivals.nn.activations import Activations
from rivals.nn.network_plan import NetworkPlan, NetworkSettings
from rivals.nn.selection import Winners
from rivals.seeds import Seed
from rivals.streams.stream import streams

VARIANTS: dict[str, tuple[str, dict[str, object]]] = {  # preset, changes
    "paper": ("paper", {}),
    "initial weights repaired": ("paper", {"init": "active"}),
    "log π learned by Adam": ("paper", {"competition.optimizer": "adam"}),
    "both: paper-repaired": ("paper-repaired", {}),
    "default": ("default", {}),
}


@torch.no_grad()
def signal_sizes(init: str) -> list[float]:
    """Standard deviation after each of four linear layers, J = 8, for noise of deviation 1."""
    settings = NetworkSettings(
        architecture="mlp", widths=(256,) * 4, units=8, activation="linear", norm="none", init=init
    )
    network = NetworkPlan(settings, input_shape=(1, 16, 16)).rivals(Seed(0))
    posteriors = [
        torch.randn(rivals.blocks, rivals.units, generator=Seed(number).torch())
        for number, rivals in enumerate(network.rivals())
    ]
    network.open("task", 10, posteriors)
    network.settle("task")
    noise = torch.randn(500, 1, 16, 16, generator=Seed(0).torch())
    activations, sizes = Activations(noise.flatten(1), "task", Winners("task")), []
    for layer in network.layers():
        activations = layer(activations)
        sizes.append(activations.values.std().item())
    return sizes


def first_task(preset: str, changes: dict[str, object]) -> tuple[float, float, float]:
    """Accuracy in percent, and the entropy of the first layer's posterior at both ends."""
    settings = resolve("digits-permuted", preset=preset, overrides={"epochs": 5, **changes})
    stream = streams["digits-permuted"].build(settings.stream, Seed(0))
    plan = NetworkPlan(settings.network, stream.input_shape)
    method = methods["twta"](plan, settings.training, Seed(0))
    task, test = stream[0].task, stream[0].test
    entropy: list[float] = []

    def watch(step: object) -> None:
        if method.competing:
            log_posterior = method.network.rivals()[0].posteriors[task.name].detach()
            posterior = torch.distributions.Categorical(logits=log_posterior)
            entropy.append(posterior.entropy().mean().item())

    Trainer(method, [OnStep(watch)]).fit(task)
    correct = method.predict(test.images, task.name).label == test.labels
    return 100 * correct.float().mean().item(), entropy[0], entropy[-1]


def main() -> None:
    torch.set_num_threads(1)
    for init in ("glorot", "active"):
        sizes = ", ".join(f"{size:.2f}" for size in signal_sizes(init))
        print(f"signal after each layer, init={init}: {sizes}")
    for name, (preset, changes) in VARIANTS.items():
        accuracy, start, end = first_task(preset, changes)
        print(f"{name:30} {accuracy:5.1f} %   entropy {start:.2f} → {end:.2f}")


if __name__ == "__main__":
    main()
