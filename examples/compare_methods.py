"""Two methods on one benchmark with two seeds: mean and spread of accuracy, and forgetting.

The same as `rivals compare --benchmarks digits --methods twta,finetune --seeds 0,1 --set epochs=3
--out runs/two`. A grid that was stopped continues where it was; finished runs are not repeated.
"""

import json
from pathlib import Path
from statistics import mean, stdev

import rivals

GRID, METHODS = Path("runs/two"), ["twta", "finetune"]

if __name__ == "__main__":  # every run is a process of its own
    outcomes = rivals.compare("digits", METHODS, seeds=[0, 1], settings={"epochs": 3}, out=GRID)
    for method in METHODS:
        accuracy, lost = [], []
        for outcome in (each for each in outcomes if each.run.method == method):
            assert outcome.accuracy is not None, outcome.reason
            accuracy.append(outcome.accuracy)  # percent, over all tasks after the last one
            results = json.loads((GRID / outcome.run.folder / "results.json").read_text())
            lost.append(results["summary"]["forgetting"])  # points since each task was learned
        spread = f"{mean(accuracy):5.1f} ± {stdev(accuracy):4.1f} %"
        print(f"{method:10} {spread} right, {mean(lost):5.1f} points forgotten")
