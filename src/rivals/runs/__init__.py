"""Runs: the loop, its settings, its results, and the folder that survives a kill."""
