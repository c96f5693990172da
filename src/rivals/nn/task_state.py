"""The state of a task: one module for each task, in one table that a whole network shares.

    table["screws"]  ─►  TaskState
                           head                classes × features
                           norm0, norm1, …     scale, shift, mean and variance of each layer
                           winners0, …         the unit that won each block
                           claim0, …           the edges that the task uses, and the values it owns
                           statistics          what it takes to recognise the task's images
                           facts               plain values for results and for people

A layer sees its own column of the table: `layer.norm.tasks["screws"]` is `table["screws"].norm0`.
So `parameters()`, `state_dict()` and `to(device)` of a network reach every tensor of every task,
and dropping a task is dropping one object.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any, Generic, TypeVar, cast
from urllib.parse import quote

from torch import Tensor, nn

Value = TypeVar("Value")


class NamedTensors(nn.Module):
    """Tensors by name, as buffers."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        super().__init__()
        for name, tensor in tensors.items():
            self.register_buffer(name, tensor)

    def to_dict(self) -> dict[str, Tensor]:
        return dict(self.named_buffers(recurse=False))


class TaskState(nn.Module):
    """All that belongs to one task. Entries are set by name as tasks are learned.

    Tensors become buffers, `nn.Parameter`s parameters, modules submodules; anything else is a plain
    attribute.
    """

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def put(self, entry: str, value: Any) -> None:
        if entry in self:
            delattr(self, entry)
        if isinstance(value, Tensor) and not isinstance(value, nn.Parameter):
            self.register_buffer(entry, value)
        else:
            setattr(self, entry, value)

    def __contains__(self, entry: str) -> bool:
        return (
            entry in self._buffers
            or entry in self._parameters
            or entry in self._modules
            or entry in vars(self)
        )

    def bytes(self) -> int:
        return sum(tensor.nbytes for tensor in (*self.parameters(), *self.buffers()))


class TaskTable(nn.Module):
    """The states of all tasks by name, in the order in which they were added."""

    def __init__(self) -> None:
        super().__init__()
        self.keys_by_name: dict[str, str] = {}
        self.version = 0  # changes whenever a task is added or dropped

    def __getitem__(self, task: str) -> TaskState:
        return cast(TaskState, self._modules[self.keys_by_name[task]])

    def __contains__(self, task: object) -> bool:
        return task in self.keys_by_name

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys_by_name)

    def __len__(self) -> int:
        return len(self.keys_by_name)

    def add(self, task: str) -> TaskState:
        """The state of `task`, made if it is not there."""
        if task not in self.keys_by_name:
            key = module_key(task)
            self.keys_by_name[task] = key
            self._modules[key] = TaskState(task)
            self.version += 1
        return self[task]

    def drop(self, task: str) -> None:
        """Forget everything about `task`."""
        if task in self.keys_by_name:
            del self._modules[self.keys_by_name.pop(task)]
            self.version += 1

    def column(self, entry: str) -> TaskColumn[Any]:
        """One entry of every task that has it, as a dictionary by task."""
        return TaskColumn(self, entry)

    def train(self, mode: bool = True) -> TaskTable:
        """States behave the same in both modes, so there is nothing to walk through."""
        self.training = mode
        return self


class TaskColumn(MutableMapping[str, Value], Generic[Value]):
    """One entry of all task states: `norms["screws"]`. Setting it adds the task if it is new."""

    def __init__(self, table: TaskTable, entry: str) -> None:
        self.table, self.entry = table, entry

    def __getitem__(self, task: str) -> Value:
        if task not in self:
            raise KeyError(task)
        return cast(Value, getattr(self.table[task], self.entry))

    def __setitem__(self, task: str, value: Value) -> None:
        self.table.add(task).put(self.entry, value)

    def __delitem__(self, task: str) -> None:
        if task not in self:
            raise KeyError(task)
        delattr(self.table[task], self.entry)

    def __contains__(self, task: object) -> bool:
        return task in self.table and self.entry in self.table[cast(str, task)]

    def __iter__(self) -> Iterator[str]:
        return (task for task in self.table if self.entry in self.table[task])

    def __reversed__(self) -> Iterator[str]:
        return reversed(list(self))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def module_key(task: str) -> str:
    """A task's name as torch allows it in names of modules: without dots."""
    return quote(task, safe=" ").replace(".", "%2E")
