"""Results in pandas: who is better, what it costs, and what each method forgets as tasks come.

`rivals report` writes one CSV a table, and every run keeps its results as JSON. Needs `pip install
pandas 'rivals[report]'`.
"""

import json
import subprocess
import sys
from pathlib import Path

import pandas as pd

import rivals

GRID, REPORT = Path("runs/two"), Path("runs/report")

if __name__ == "__main__":  # every run is a process of its own
    # As in compare_methods.py; runs that are there are kept.
    rivals.compare("digits", ["twta", "finetune"], seeds=[0, 1], settings={"epochs": 3}, out=GRID)
    command = [sys.executable, "-m", "rivals", "report", str(GRID), "--out", str(REPORT)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    accuracy = pd.read_csv(REPORT / "accuracy.csv", index_col="method")
    cost = pd.read_csv(REPORT / "cost.csv", index_col="method")
    table = accuracy[["seeds", "task known %", "task unknown %"]].join(cost[["ticket bytes"]])
    print(table.round(1), end="\n\n")

    curves = {}
    for file in sorted(GRID.glob("*/results.json")):
        run = json.loads(file.read_text())
        # matrix[i][j]: percent right on task j after task i was learned.
        curves[run["method"], run["seed"]] = [row[0] for row in run["matrix"]]
    first = pd.DataFrame(curves).round(1).rename_axis(columns=["method", "seed"])
    first.index = [f"after task {number + 1}" for number in first.index]
    print("Percent right on the first task:", first, sep="\n")
