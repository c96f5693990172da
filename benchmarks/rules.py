"""What every rule names of a finished run's tickets: nothing is trained again.

    python benchmarks/rules.py RUN [RUN ...] --rules filters filters+judge --out results/rules.csv

For each run and rule: percent of test images whose class is right without the task, whose task is
right, the calibration error, kilobytes that the rule keeps, and seconds to keep them. Images are
read from $RIVALS_DATA, as the run read them. Rows that are there are not measured again.
"""

from __future__ import annotations

import argparse
import csv
import time
from pathlib import Path
from typing import get_args

import torch

from rivals.experiment.evaluation import calibration_error, inferred
from rivals.experiment.stored_run import StoredRun
from rivals.learn.training_settings import NamingSettings
from rivals.seeds import Seed

RULES = get_args(NamingSettings.model_fields["rule"].annotation)
FIELDS = ("run", "rule", "class right", "task right", "calibration error", "kB", "seconds")


def measure(run: StoredRun, rule: str) -> list[object]:
    """A row of the table but for the name of the run."""
    method, items = run.method(), [run.item(task) for task in run.tasks]
    method.settings = method.settings.replace(naming=NamingSettings(rule=rule))
    begin = time.process_time()
    for item in items:
        method.keep(item.task)
    seconds = time.process_time() - begin
    found = inferred(method, items, Seed(run.config["seed"]).child("evaluation"))
    means = [sum(getattr(e, name) for e in found) / len(found) for name in ("accuracy", "task")]
    kilobytes = method.kept_bytes() / 1000
    return [rule, *(round(value, 2) for value in (*means, calibration_error(found), kilobytes)),
            round(seconds, 1)]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--rules", nargs="+", choices=RULES, default=["filters"])
    parser.add_argument("--out", type=Path, required=True)
    wanted = parser.parse_args()
    torch.set_num_threads(1)
    rows = list(csv.reader(wanted.out.open())) if wanted.out.exists() else [list(FIELDS)]
    for path in wanted.runs:
        for rule in wanted.rules:
            if [path.name, rule] in [row[:2] for row in rows]:
                continue
            rows.append([path.name, *map(str, measure(StoredRun(path), rule))])
            print(*rows[-1], flush=True)
            with wanted.out.open("w", newline="") as file:
                csv.writer(file, lineterminator="\n").writerows(rows)


if __name__ == "__main__":
    main()
