"""How many answers change when claims are kept with 16 bits instead of 32; for docs/research.md.

    python benchmarks/research/rounding.py cifar100 --seed 10

A stream is learned with claims of 32 bits; then they are rounded, as they are at the end of a task,
and the validation images of every task are answered again, the task being known.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import torch
from torch import Tensor

from rivals.experiment.run_settings import parse_overrides, resolve
from rivals.experiment.start import prepare
from rivals.nn import generated_weight as generated
from rivals.nn import shared_weight as shared


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("benchmark", nargs="?", default="digits")
    parser.add_argument("--seed", type=int, default=10)
    parser.add_argument("--set", nargs="*", default=["validation_share=0.333"])
    words = parser.parse_args()
    settings = resolve(words.benchmark, "twta", "default", words.seed, parse_overrides(words.set))
    rounded, exact = shared.kept, lambda values: values.clone()
    shared.kept = generated.kept = exact
    with tempfile.TemporaryDirectory() as folder:
        run = prepare(settings, Path(folder) / "run")
        run.go()
    asked = [run.stream[index].task for index in range(len(run.method.known))]

    def answers() -> list[Tensor]:
        return [run.method.predict(task.validation.images, task.name).label for task in asked]

    before = answers()
    for layer in run.method.network.layers():
        layer.weight.kept = {task: rounded(kept) for task, kept in layer.weight.kept.items()}
    after = answers()
    right = [
        sum(int((a == task.validation.labels).sum()) for a, task in zip(said, asked, strict=True))
        for said in (before, after)
    ]
    images = sum(len(each) for each in before)
    changed = sum(int((a != b).sum()) for a, b in zip(before, after, strict=True))
    print(
        f"{words.benchmark}, seed {words.seed}: of {images:,} answers {changed} change; "
        f"{100 * right[0] / images:.2f} % right before, {100 * right[1] / images:.2f} % after."
    )


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
