"""The tables of a report in pandas: accuracy over time, and what each method costs.

Every run keeps its results as JSON, and `rivals report` writes one CSV a table. Needs `pip install
pandas 'rivals[report]'`.
"""

import json
import subprocess
import sys
from pathlib import Path

import pandas as pd

import rivals

if __name__ == "__main__":  # every run is a process of its own
    settings, grid = {"epochs": 3}, Path("runs/two")  # as in compare_methods.py
    rivals.compare("digits", ["twta", "finetune"], seeds=[0, 1], settings=settings, out=grid)
    report = [sys.executable, "-m", "rivals", "report", str(grid), "--out", "runs/report"]
    subprocess.run(report, check=True, stdout=subprocess.DEVNULL)

    overview = pd.read_csv("runs/report/overview.csv")
    print(overview.iloc[:, :5].to_string(index=False), end="\n\n")

    matrices = {}
    for file in sorted(grid.glob("*/results.json")):
        content = json.loads(file.read_text())
        known = pd.DataFrame(content["matrix"]["task_known"])  # of task j, after task i
        matrices[content["method"], content["seed"]] = known.mean(axis=1)
    curves = pd.DataFrame(matrices).round(1)
    curves.index = [f"after task {number + 1}" for number in curves.index]
    print(curves)
