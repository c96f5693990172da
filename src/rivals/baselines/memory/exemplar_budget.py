"""How much may be kept: images of each class, images in all, or bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rivals.errors import RivalsError


@dataclass(frozen=True)
class Budget:
    """Exactly one of the three is given. Bytes count pixels, labels and extra tensors."""

    per_class: int = 0  # the benchmarks use 10, Tiny-ImageNet 5
    total: int = 0
    bytes: int = 0

    def __post_init__(self) -> None:
        given = [value for value in vars(self).values() if value != 0]
        if len(given) != 1 or given[0] < 0:
            raise RivalsError(
                f"The budget of a memory is per_class={self.per_class}, total={self.total}, "
                f"bytes={self.bytes}; give exactly one of the three, at least 1."
            )

    def __str__(self) -> str:
        if self.per_class:
            return f"{self.per_class} images a class"
        return f"{self.total} images" if self.total else f"{self.bytes} bytes"

    def whole(self, sizes: Sequence[int]) -> int:
        """Images in one common store, if an exemplar of each task seen so far takes `sizes` bytes.

        The largest counts, so the store holds whatever mixture of tasks chance puts into it.
        """
        return self._checked(self.total or self.bytes // max(sizes), max(sizes), "image")

    def share(self, sizes: Sequence[int], kind: str) -> int:
        """Images in each of several stores of equal length, whose exemplars take `sizes` bytes.

        Rounded down (m = K / classes), so the budget is never exceeded.
        """
        room = self.total // len(sizes) if self.total else self.bytes // sum(sizes)
        least = len(sizes) if self.total else sum(sizes)
        return self._checked(room, least, f"image for each {kind} seen so far ({len(sizes)})")

    def _checked(self, room: int, least: int, what: str) -> int:
        if room < 1:
            unit = "images" if self.total else "bytes"
            raise RivalsError(
                f"The memory's budget of {self} does not hold one {what}; "
                f"raise it to at least {least} {unit}."
            )
        return room
