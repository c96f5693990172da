"""Two methods on one benchmark with two seeds: mean, spread and forgetting.

The same as `rivals compare --benchmarks digits --methods twta,finetune --seeds 0,1 --set epochs=3
--out runs/two`. A grid that was stopped continues where it was; finished runs are not repeated.
"""

from collections import defaultdict
from statistics import mean, stdev

import rivals

if __name__ == "__main__":  # every run is a process of its own
    outcomes = rivals.compare(
        "digits", ["twta", "finetune"], seeds=[0, 1], settings={"epochs": 3}, out="runs/two"
    )
    accuracies = defaultdict(list)
    for outcome in outcomes:
        assert outcome.accuracy is not None, outcome.reason
        accuracies[outcome.run.method].append(outcome.accuracy)
    for method, values in accuracies.items():
        print(f"{method:10} {mean(values):5.1f} ± {stdev(values):.1f} % over {len(values)} seeds")
