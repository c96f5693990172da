"""A memory of exemplars beside a method: what it costs, how it is saved."""

from __future__ import annotations

from rivals.baselines.memory.exemplars import ExemplarMemory
from rivals.learn.method import Method
from rivals.learn.state import State


class Remembering(Method):
    """Stands before the method that it is joined with: `class ER(Remembering, Finetune)`."""

    memory: ExemplarMemory

    def footprint(self) -> dict[str, int]:
        return {**super().footprint(), "exemplars": sum(self.memory.bytes().values())}  # type: ignore[safe-super]

    def state(self) -> State:
        return {**super().state(), "memory": self.memory.state()}  # type: ignore[safe-super]

    def load(self, state: State) -> None:
        super().load(state)  # type: ignore[safe-super]
        self.memory.load(state["memory"])
