"""A grid of runs: methods × seeds × benchmarks, in worker processes or on a Ray cluster."""
