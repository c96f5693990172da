"""Networks that were trained before all tasks, for models to start from."""

from rivals.ancestors.shipped_file import ANCESTORS_SIDES, DEFAULT, SHIPPED, fitting_side

__all__ = ["ANCESTORS_SIDES", "DEFAULT", "NO_ANCESTOR", "SHIPPED", "fitting_side"]

NO_ANCESTOR = "none"  # what a user says to start from random weights
