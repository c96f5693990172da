"""Benchmark runs: the loop over tasks, its settings and its results."""
