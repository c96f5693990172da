"""What `naming.rule=judge` gains, measured on validation images that it does not keep.

    python benchmarks/judge.py                        five benchmarks; needs $RIVALS_DATA
    python benchmarks/judge.py cifar100 --seeds 0 1   one of them, mean of two seeds

TWTA learns with a fifth of the training images held out for validation and test images out of
reach. Half of the validation images of a class may be kept as exemplars, the other half measures.
Runs are kept in --runs, so a second call only measures. Seconds to fit and microseconds an image
are of naming alone, 40 images at once; the row of the tickets is what they take before.
"""

import argparse
import statistics
import time
from dataclasses import replace
from pathlib import Path

import torch

from rivals.experiment.calibration import expected_error
from rivals.experiment.run_settings import resolve
from rivals.experiment.start import prepare
from rivals.naming.judge import Judgement
from rivals.naming.rules import RULES
from rivals.streams.augment import augment
from rivals.streams.task import Examples

PRESETS = {
    "digits": "default", "five-datasets": "compare", "pmnist": "compare",
    "omniglot-rotation": "compare", "cifar100": "compare",
}  # fmt: skip
FEW, COUNTS = 10, (2, 5, 10, 20)  # images a class
TIMED = 40  # images at once


def learned(benchmark, seed, runs):
    """TWTA after all tasks, its test images out of reach."""
    folder = runs / f"{benchmark}-{seed}"
    held = {"validation_share": 0.2, "competition.share": 0.2}  # as it was when the rule was chosen
    held["naming.rule"] = "pixels+confidence"
    settings = resolve(benchmark, "twta", PRESETS[benchmark], seed, held)
    run = prepare(settings, folder, resume=folder.exists(), on="validation")
    run.go()
    return run


def halves(examples):
    """The validation images that may be kept, and those that measure."""
    kept, measured = [], []
    for label in examples.labels.unique():
        members = torch.nonzero(examples.labels == label).flatten()
        kept.append(members[: len(members) // 2])
        measured.append(members[len(members) // 2 :])
    return examples.subset(torch.cat(kept)), examples.subset(torch.cat(measured))


def limited(examples, count):
    """At most so many of a class."""
    members = [torch.nonzero(examples.labels == y).flatten() for y in examples.labels.unique()]
    return examples.subset(torch.cat([m[:count] for m in members]))


def sources(task, held):
    """Where exemplars may come from: the task as the rule is shown it, and how many of a class."""
    nothing = Examples(held.images[:0], held.labels[:0])
    moved = augment(task.train.images, "crop-flip", torch.Generator().manual_seed(0))
    shown = {f"judge, {count} a class": (held, task.train, count) for count in COUNTS}
    return shown | {
        "judge, half of 10 trained on": (limited(held, FEW // 2), task.train, FEW),
        "judge, all 10 trained on": (nothing, task.train, FEW),
        "judge, the same, moved": (nothing, Examples(moved, task.train.labels), FEW),
    }


def microseconds(function, *given):
    """Of one image, the quickest of ten calls."""
    times = []
    for _ in range(10):
        begin = time.perf_counter()
        function(*given)
        times.append(time.perf_counter() - begin)
    return 1e6 * min(times) / TIMED


@torch.no_grad()
def measure(run):
    """By variant: task right, class right, calibration error, kB, seconds, microseconds."""
    method, stream = run.method, run.stream
    tasks, together = method.predictor().tasks, method.predictor().group()
    lessons = [stream[number].task for number in range(len(tasks))]
    parts = [halves(task.validation) for task in lessons]
    kept = {"pixels+confidence": [method.known[name].kept for name in tasks]}
    for task, (held, _) in zip(lessons, parts, strict=True):
        for name, (validation, train, count) in sources(task, held).items():
            shown = replace(task, validation=validation, train=train)
            density = RULES["pixels"].keep(task, None)
            found = {**RULES["judge"].keep(shown, None, count), **density}
            kept.setdefault(name, []).append(found)
    namers, seconds = {}, {}
    for name, each in kept.items():
        begin = time.perf_counter()
        namers[name] = RULES[name.partition(",")[0]].namer(each, together)
        seconds[name] = time.perf_counter() - begin
    whole = namers["judge, 10 a class"]
    for name, mask in {"without regression": [1, 1, 0], "regression alone": [0, 0, 1]}.items():
        weights = whole.weights * torch.tensor(mask)
        namers[f"judge, {name}"] = Judgement(
            whole.look, whole.ridge, weights, [len(task.classes) for task in lessons], whole.kept
        )
    images = torch.cat([measured.images for _, measured in parts])
    labels = torch.cat([measured.labels for _, measured in parts])
    own = torch.cat([torch.full((len(m),), n) for n, (_, m) in enumerate(parts)])
    readings, few = together(images), together(images[:TIMED])
    table = {}
    for name, namer in namers.items():
        task, label, sure = namer(images, readings)
        right = (task == own) & (label == labels)
        size = sum(t.nbytes for each in kept.get(name, []) for t in each.values())
        table[name] = [
            100 * (task == own).float().mean().item(), 100 * right.float().mean().item(),
            100 * expected_error(sure, right), size / 1000, seconds.get(name, 0.0),
            microseconds(namer, images[:TIMED], few),
        ]  # fmt: skip
    given = torch.stack([each.scores.argmax(1) for each in readings]).gather(0, own[None])[0]
    known = 100 * (given == labels).float().mean().item()
    table["task known; tickets"] = [100, known, 0, 0, 0, microseconds(together, images[:TIMED])]
    return table, len(images)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("benchmarks", nargs="*", default=list(PRESETS), metavar="benchmark")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--runs", type=Path, default=Path("runs/judge"))
    words = parser.parse_args()
    for benchmark in words.benchmarks:
        found = [measure(learned(benchmark, seed, words.runs)) for seed in words.seeds]
        print(f"\n{benchmark}, seeds {', '.join(map(str, words.seeds))}, {found[0][1]} images each")
        heads = ["", "task right %", "class right %", "ECE %", "kept kB", "s to fit", "µs an image"]
        print("\n| " + " | ".join(heads) + " |\n|---|" + "--:|" * 6)
        for name in found[0][0]:
            means = [statistics.mean(v) for v in zip(*(t[name] for t, _ in found), strict=True)]
            shown = [*(f"{v:.1f}" for v in means[:3]), f"{means[3]:,.0f}", f"{means[4]:.1f}"]
            shown.append(f"{means[5]:.0f}")
            print(f"| {name} | " + " | ".join(shown) + " |", flush=True)


if __name__ == "__main__":
    main()
