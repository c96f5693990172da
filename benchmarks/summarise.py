"""Print one Markdown table: a row per benchmark, method and preset, mean ± deviation over seeds.

Takes run folders, JSON files of runs, or folders of either. Seconds are the wall time of training,
of the fastest seed.
"""

import argparse
import csv
import statistics
from collections import defaultdict
from pathlib import Path

from rivals.experiment.report.report_runs import read

COLUMNS = {
    "task known %": lambda r: r["summary"]["accuracy"]["task_known"],
    "task inferred %": lambda r: r["summary"]["accuracy"]["task_inferred"],
    "BTI": lambda r: r["summary"]["bti"],
    "weights per ticket": lambda r: r["summary"]["retained"]["weights"],
    "kilobytes to continue": lambda r: sum(r["summary"]["bytes"].values()) / 1e3,
    "training GFLOPs": lambda r: r["summary"]["flops"] / 1e9,
}


def cell(values: list[float]) -> str:
    if len(values) == 1:
        return f"{values[0]:,.1f}"
    spread = statistics.stdev(values)
    return f"{statistics.mean(values):,.1f}" + (f" ± {spread:.1f}" if spread >= 0.05 else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--csv", type=Path)
    arguments = parser.parse_args()
    groups = defaultdict(list)
    for run in read(arguments.runs):
        result = {**run.results, "seconds": run.measured["total_train_seconds"]}
        groups[result["benchmark"], result["method"], result["preset"]].append(result)
    print("| benchmark | method | preset | seeds | " + " | ".join(COLUMNS) + " | seconds |")
    print("|" + "---|" * (5 + len(COLUMNS)))
    rows = []
    for names, results in sorted(groups.items()):
        cells = [cell([column(r) for r in results]) for column in COLUMNS.values()]
        seconds = min(r["seconds"] for r in results)  # others waited more for a busy machine
        print("| " + " | ".join([*names, str(len(results)), *cells, f"{seconds:.0f}"]) + " |")
        for r in results:
            values = [round(column(r), 4) for column in COLUMNS.values()]
            rows.append([*names, r["seed"], r["subset"], *values, round(r["seconds"], 1)])
    if arguments.csv:
        with arguments.csv.open("w", newline="") as file:
            head = ["benchmark", "method", "preset", "seed", "subset", *COLUMNS, "seconds"]
            csv.writer(file).writerows([head, *rows])


if __name__ == "__main__":
    main()
