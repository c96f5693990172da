"""Accuracy of each task when it was learned, against its number, with growth and without."""

import sys
from pathlib import Path

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot

from rivals.experiment.results import read_results


def smooth(values: list[float], width: int = 9) -> list[float]:
    windows = (values[max(0, i - width // 2) : i + width // 2 + 1] for i in range(len(values)))
    return [sum(window) / len(window) for window in windows]


def main() -> None:
    grows, never, out = (Path(word) for word in sys.argv[1:])
    figure, (top, bottom) = pyplot.subplots(2, 1, figsize=(7, 5.5), sharex=True)
    for run, label, colour in ((grows, "grow: auto", "C0"), (never, "grow: never", "C3")):
        tasks = read_results(run / "results.json")["tasks"]
        numbers = range(1, len(tasks) + 1)
        values = [task["accuracy"] for task in tasks]
        top.plot(numbers, values, ".", color=colour, alpha=0.25, markersize=4)
        top.plot(numbers, smooth(values), color=colour, label=label)
        for layer, style in (("layer0", "-"), ("layer1", "--")):
            free = [100 * task["trainable"][layer] for task in tasks]
            bottom.plot(numbers, free, style, color=colour, label=f"{label}, {layer}", lw=1)
    top.set_ylabel("test accuracy when learned, %")
    bottom.set_ylabel("trainable share of the ticket, %")
    bottom.set_xlabel("task number (digits-permuted, one seed)")
    top.legend()
    bottom.legend(ncols=2, fontsize=8)
    figure.tight_layout()
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, metadata={"Date": None})


if __name__ == "__main__":
    main()
