"""How often each rule names the right task: TWTA learns, then every rule of `infer` is asked.

    python benchmarks/task_inference.py          four benchmarks, two seeds; needs $RIVALS_DATA
    python benchmarks/task_inference.py --time   20 AlexNet tickets against one dense pass

A rule is chosen by the validation columns; test columns stand beside them. Runs are kept in --runs,
so a second call only measures.
"""

import argparse
import statistics
from functools import partial
from pathlib import Path

import torch

from rivals.experiment.bench.timing import fastest, interleave
from rivals.experiment.loop import Run
from rivals.experiment.run_settings import resolve
from rivals.experiment.start import prepare
from rivals.naming import scores
from rivals.naming.scores import SCORES, Output, Standardised, name_tasks
from rivals.nn.network_plan import NetworkPlan, NetworkSettings
from rivals.seeds import Seed
from rivals.streams.task import Preprocessing
from rivals.tickets.parallel import ParallelTickets

BENCHMARKS = {
    "digits": {},
    "digits-permuted": {"tasks": 10},
    "five-datasets": {"preset": "small"},
    "cifar100": {"preset": "small"},
}
OTHERS = {  # how standardising changes the rules that go without, and the one that does not
    "confidence, standardised": Standardised(Output(scores.confidence)),
    "entropy, standardised": Standardised(Output(scores.negative_entropy)),
    "energy, not standardised": Output(scores.energy),
}
IMAGES = 200  # of a task, at most


def learned(benchmark: str, seed: int, runs: Path) -> Run:
    """TWTA after all tasks of a benchmark; taken from `runs` where it was learned before."""
    changes = dict(BENCHMARKS[benchmark])
    preset = changes.pop("preset", "default")
    folder = runs / f"{benchmark}-{seed}"
    changes["competition.share"] = 0.2  # as it was when the rule was chosen
    changes["naming.rule"] = "pixels+confidence"  # then only tickets run together
    settings = resolve(benchmark, "twta", preset, seed, changes)
    run = prepare(settings, folder, resume=folder.exists())
    run.go()
    return run


@torch.no_grad()
def measure(run: Run, seed: int) -> dict[str, list[float]]:
    """By rule: task right and class right on validation images, the same on test images, bytes."""
    method, lessons = run.method, [run.stream[i] for i in range(len(run.stream))]
    together = method.predictor().group()
    rules = {**SCORES, **OTHERS}
    kept = {name: [] for name in rules}
    for lesson in lessons:
        own = ParallelTickets([method.ticket(lesson.task.name)], [lesson.task.preprocessing])
        for name, rule in rules.items():
            kept[name].append(rule.keep(lesson.task, lambda images, own=own: own(images)[0]))
    found = {name: [] for name in (*rules, "task known")}
    for part in ("validation", "test"):
        counts = {name: [0, 0] for name in found}
        total = 0
        for number, lesson in enumerate(lessons):
            examples = lesson.test if part == "test" else lesson.task.validation
            order = torch.randperm(len(examples), generator=Seed(seed).child(part, number).torch())
            examples = examples.subset(order[:IMAGES])
            readings = together(examples.images)
            total += len(examples)
            right = readings[number].scores.argmax(1) == examples.labels
            counts["task known"] = [total, counts["task known"][1] + int(right.sum())]
            for name, rule in rules.items():
                which, labels, _ = name_tasks(rule, examples.images, readings, kept[name])
                here = which == number
                counts[name][0] += int(here.sum())
                counts[name][1] += int((here & (labels == examples.labels)).sum())
        for name, pair in counts.items():
            found[name] += [100 * count / total for count in pair]
    for name in rules:
        found[name].append(statistics.mean(sum(t.nbytes for t in k.values()) for k in kept[name]))
    return found


def accuracy(names: list[str], seeds: list[int], runs: Path) -> None:
    overall: dict[str, list[list[float]]] = {}
    for benchmark in names:
        tables = [measure(learned(benchmark, seed, runs), seed) for seed in seeds]
        means = {
            rule: [statistics.mean(v) for v in zip(*(t[rule] for t in tables), strict=True)]
            for rule in tables[0]
        }
        table(f"{benchmark}, mean of seeds {', '.join(map(str, seeds))}", means)
        for rule, mean in means.items():
            overall.setdefault(rule, []).append(mean[:4])
    means = {
        rule: [statistics.mean(v) for v in zip(*rows, strict=True)]
        for rule, rows in overall.items()
    }
    table("mean of the benchmarks", means)


def table(title: str, means: dict[str, list[float]]) -> None:
    head = ["rule", "task %, validation", "class %, validation", "task %, test", "class %, test"]
    print(f"\n{title}\n\n| " + " | ".join([*head, "bytes a task"]) + " |")
    print("|" + "---|" * 6)
    for rule, mean in means.items():
        size = f"{mean[4]:,.0f}" if len(mean) > 4 else ""
        print(f"| {rule} | " + " | ".join(f"{v:.1f}" for v in mean[:4]) + f" | {size} |")


@torch.no_grad()
def time(count: int, rounds: int) -> None:
    """Tickets together, one after the other, and the dense network, taking turns; one thread."""
    torch.set_num_threads(1)
    plan = NetworkPlan(NetworkSettings(network="alexnet", units=8), (3, 32, 32))

    def cut(network):
        network.add("task", 10)
        return network.cut("task")

    tickets = [cut(plan.dense(Seed(number), "ticket")) for number in range(count)]
    prepare = Preprocessing(255.0, (0.5,) * 3, (0.25,) * 3)
    raw = torch.randint(0, 256, (40, 3, 32, 32), generator=Seed(0).torch(), dtype=torch.uint8)
    together = ParallelTickets(tickets, [prepare] * count)
    rule = SCORES["pixels+confidence"]
    train = torch.randint(0, 256, (200, 3, 32, 32), generator=Seed(1).torch(), dtype=torch.uint8)
    kept = rule.keep(_Task(train), None)
    readings = together(raw)
    dense = cut(plan.dense(Seed(0)))

    def one_by_one(layout):
        images = prepare(raw).contiguous(memory_format=layout)
        return [ticket(images) for ticket in tickets]

    def stacked():  # vmap over the weights
        images = prepare(raw)
        return torch.func.vmap(
            lambda weights: torch.func.functional_call(tickets[0], weights, (images,))
        )(weights)

    weights = {
        name: torch.stack([ticket.state_dict()[name] for ticket in tickets])
        for name in tickets[0].state_dict()
    }
    layouts = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}
    variants = {
        f"dense {name}": partial(lambda to: dense(prepare(raw).contiguous(memory_format=to)), to)
        for name, to in layouts.items()
    }
    variants |= {f"one by one {name}": partial(one_by_one, to) for name, to in layouts.items()}
    variants |= {
        "vmap": stacked,
        "together": partial(together, raw),
        "naming from readings": partial(name_tasks, rule, raw, readings, [kept] * count),
        "together and naming": lambda: name_tasks(rule, raw, together(raw), [kept] * count),
    }
    times = interleave(variants, rounds)
    best = fastest(times, "dense").median
    print("| | ms | × dense |\n|---|---|---|")
    for name, found in times.items():
        print(f"| {name} | {1000 * found.median:.1f} | {found.median / best:.2f} |")


class _Task:
    """Only what a rule of pixels looks at."""

    def __init__(self, images):
        self.train = self
        self.images = images


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("benchmarks", nargs="*", default=list(BENCHMARKS), metavar="benchmark")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--runs", type=Path, default=Path("runs/task-inference"))
    parser.add_argument("--time", action="store_true", help="measure milliseconds instead")
    parser.add_argument("--rounds", type=int, default=25)
    arguments = parser.parse_args()
    if arguments.time:
        time(20, arguments.rounds)
    else:
        accuracy(arguments.benchmarks, arguments.seeds, arguments.runs)


if __name__ == "__main__":
    main()
