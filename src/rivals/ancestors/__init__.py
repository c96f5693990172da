"""Networks that were trained before all tasks, for models to start from."""

SHIPPED = ("tiny", "small")  # those that come with the package
DEFAULT = "small"  # what a new model starts from, where nothing else was said
NO_ANCESTOR = "none"  # what a user says to start from random weights
