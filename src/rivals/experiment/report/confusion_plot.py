"""The confusion matrix of a test as a picture."""

from __future__ import annotations

from collections.abc import Sequence

from rivals.errors import RivalsError


def save_confusion(labels: Sequence[str], confusion: Sequence[Sequence[int]], path: str) -> None:
    """Save confusion[true][predicted] to `path`; its ending says the format (PNG, SVG, PDF)."""
    try:
        from matplotlib.figure import Figure as Canvas
    except ImportError as error:
        raise RivalsError(
            "The plot needs matplotlib, which is not installed; pip install 'rivals[report]'."
        ) from error
    count = len(labels)
    side = max(3.0, 0.45 * count + 1.6)
    canvas = Canvas(figsize=(side, side), layout="constrained")
    axes = canvas.subplots()
    shares = [[cell / max(1, sum(row)) for cell in row] for row in confusion]
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    axes.set_xticks(range(count), labels, rotation=45, ha="right", parse_math=False)
    axes.set_yticks(range(count), labels, parse_math=False)
    axes.set_xlabel("predicted")
    axes.set_ylabel("true")
    for true, row in enumerate(confusion):
        for guess, cell in enumerate(row):
            if cell:
                colour = "white" if shares[true][guess] > 0.5 else "black"
                axes.text(guess, true, str(cell), ha="center", va="center", color=colour)
    try:
        canvas.savefig(path, dpi=150)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error).partition(";")[0].partition("(")[0]
        raise RivalsError(
            f"Could not save the plot {path} ({why.strip()}); choose a name that ends in .png."
        ) from error
