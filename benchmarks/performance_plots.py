"""The pictures and the table of docs/performance.md.

    python benchmarks/performance_plots.py                     measure and draw into docs/images
    python benchmarks/performance_plots.py --table bench.json  what `rivals bench --json` printed

Steps of every kind take turns in one process with one thread; a point is a median of CPU seconds.
"""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from rivals.experiment.bench.bench_row import number
from rivals.experiment.bench.bench_sizes import Sizes
from rivals.experiment.bench.growth import Filled
from rivals.experiment.bench.noise_stream import noise_task
from rivals.experiment.bench.plain_networks import LAYOUTS
from rivals.experiment.bench.probe import ask
from rivals.experiment.bench.steps import PhaseSteps, plain_training
from rivals.experiment.bench.timing import Variant, fastest, interleave

IMAGES = Path(__file__).parent.parent / "docs" / "images"
ROUNDS = 7
STYLES = {"dense": "C7", "relaxed": "C3", "competing": "C1", "settled": "C0", "native": "C2"}
Curves = dict[str, list[float]]


def steps(sizes: Sizes, kinds: Iterable[str]) -> dict[str, float]:
    """Milliseconds of a step of the AlexNet, by kind; plain networks in their fastest layout."""
    task = noise_task(sizes.shape, sizes.batch, sizes.classes)
    variants: dict[str, Variant] = {}
    for kind in kinds:
        if kind in ("dense", "native"):
            for layout in LAYOUTS:
                plain = plain_training("alexnet", sizes, kind == "native", layout)
                variants[f"{kind} {layout}"] = plain.step
        else:
            variants[kind] = PhaseSteps.of(kind, sizes.plan("alexnet"), task, sizes.batch).step
    times = interleave(variants, ROUNDS)
    return {kind: 1000 * fastest(times, kind).median for kind in kinds}


def sweep(
    cases: Mapping[int, Sizes] | Mapping[float, Sizes], kinds: Iterable[str] = tuple(STYLES)
) -> Curves:
    """A curve for each kind over the cases."""
    found = [steps(sizes, kinds) for sizes in cases.values()]
    return {kind: [each[kind] for each in found] for kind in kinds}


def tasks(counts: list[int]) -> tuple[Curves, list[float]]:
    """Steps of small LeNets with ever more tasks stored, in turn; what a process of each has."""
    filled = {count: Filled(count, Sizes()) for count in counts}
    curves: Curves = {}
    for kind in ("settled", "competing"):  # a settled task has winners, which the next inherits
        variants: dict[str, Variant] = {str(n): each.steps(kind).step for n, each in filled.items()}
        times = interleave(variants, ROUNDS)
        curves[kind] = [1000 * times[str(count)].median for count in counts]
    memory = [ask("growth", Sizes(), tasks=n, rounds=1)["bytes"] / 1e6 for n in counts]
    return curves, memory


def draw(
    name: str, title: str, x: Sequence[float], curves: Curves, memory: Iterable[float] = ()
) -> None:
    """One picture; both axes are logarithmic, so that a power is a straight line."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot
    from matplotlib.ticker import NullFormatter, ScalarFormatter

    pyplot.rcParams["svg.fonttype"] = "none"
    pyplot.rcParams["svg.hashsalt"] = "rivals"
    figure, axes = pyplot.subplots(figsize=(5, 3.2))
    for kind, values in curves.items():
        axes.plot(x, values, "o-", color=STYLES[kind], label=kind, markersize=4)
    axes.set(xscale="log", yscale="log", xlabel=title, ylabel="ms a step, batch 40")
    if memory := list(memory):
        axes.set_yscale("linear")
        axes.set_ylim(0, 1.5 * max(max(values) for values in curves.values()))
        other = axes.twinx()
        other.plot(x, memory, "s--", color="C4", markersize=3)
        other.set_ylabel("resident MB (dashed)")
        other.set_ylim(0, 1.5 * max(memory))
    axes.set_xticks(x, [f"{value:g}" for value in x])
    axes.xaxis.set_minor_formatter(NullFormatter())
    for which in (axes.yaxis.set_major_formatter, axes.yaxis.set_minor_formatter):
        which(ScalarFormatter())
    axes.tick_params(axis="y", which="minor", labelsize=6)
    axes.legend(fontsize=8)
    figure.tight_layout()
    IMAGES.mkdir(parents=True, exist_ok=True)
    figure.savefig(IMAGES / f"{name}.svg", metadata={"Date": None})
    print(name, x, {k: [round(v, 2) for v in c] for k, c in curves.items()},
          [round(v) for v in memory], flush=True)  # fmt: skip


def pictures() -> None:
    torch.set_num_threads(1)
    counts = [1, 10, 100, 1000]
    draw("cost-tasks", "tasks stored (LeNet, images of 8×8)", counts, *tasks(counts))
    sizes = Sizes()
    units = {j: replace(sizes, units=j) for j in (2, 4, 8, 16, 32)}
    draw("cost-units", "J, units in a block", list(units), sweep(units))
    width = {f: replace(sizes, alexnet=tuple(int(w * f) for w in sizes.alexnet))
             for f in (0.25, 0.5, 1, 2)}  # fmt: skip
    draw("cost-width", "width, in AlexNets of 64-128-256-2048-2048", list(width), sweep(width))
    side = {s: replace(sizes, side=s) for s in (32, 40, 48, 64)}
    draw("cost-image", "side of an image, pixels", list(side), sweep(side))


def table(path: Path) -> None:
    """The rows as Markdown, and below them how each was measured."""
    content = json.loads(path.read_text())
    print("| suite | row | value | quartiles | target | met |\n|---|---|---|---|---|---|")
    for row in content["rows"]:
        spread = "" if row["spread"] is None else "–".join(map(number, row["spread"]))
        met = {True: "yes", False: "**no**", None: ""}[row["met"]]
        print(f"| {row['suite']} | `{row['name']}` | {number(row['value'])} {row['unit']} | "
              f"{spread} | {row['target'] or ''} | {met} |")  # fmt: skip
    print()
    for row in content["rows"]:
        print(f"- `{row['name']}`: {row['how']}.")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--table"]:
        table(Path(sys.argv[2]))
    else:
        pictures()
