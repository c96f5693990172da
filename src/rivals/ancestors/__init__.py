"""Networks that were trained before all tasks, for models to start from."""

SHIPPED = ("tiny", "small")  # those that come with the package
DEFAULT = "small"  # what a new model starts from, where nothing else was said
NO_ANCESTOR = "none"  # what a user says to start from random weights
ANCESTORS_SIDES = (48, 64)  # pixels a side of what they look at: smaller pictures are enlarged


def fitting_side(side: int, sides: tuple[int, ...]) -> int:
    """The first of `sides` that is not much smaller than `side`, or else the last."""
    return next((each for each in sides if side <= each * 1.25), sides[-1])
