"""Floating-point operations of whatever torch does, training among it."""

from __future__ import annotations

from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode


class FlopCounter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts while it is entered, by the formulas of `torch.utils.flop_counter`.

    torch's own `FlopCounterMode` counts for every module by itself, and the first operation that
    it sees imports torch's compiler: a second and 70 MB.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        from torch.utils.flop_counter import flop_registry  # who only predicts does not need it

        self.formulas, self.total = flop_registry, 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # nothing is compiled here, so there is nothing to keep the compiler from

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        with self:  # what consists of other operations is counted as those
            parts = func.decompose(*args, **kwargs)
        if parts is not NotImplemented:
            return parts
        out = func(*args, **kwargs)
        if func._overloadpacket in self.formulas:
            self.total += self.formulas[func._overloadpacket](*args, **kwargs, out_val=out)
        return out
