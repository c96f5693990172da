"""A registry is a dictionary and a decorator; a missing name is answered with the nearest ones.

Importing a module runs it. A name `module:name` is therefore imported only inside a block of
`imports_allowed`, which the command line and `rivals.run` open for the names that they are given.
The same name in a run folder, a grid file or a model is refused.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Generic, TypeVar

from rivals.errors import RivalsError, unknown

Entry = TypeVar("Entry")
_allowed: ContextVar[frozenset[str]] = ContextVar("allowed imports", default=frozenset())


@contextmanager
def imports_allowed(names: Iterable[object]) -> Iterator[None]:
    """Inside the block, registries import those of `names` that are `module:name`.

    >>> from rivals.registry import Registry, imports_allowed
    >>> with imports_allowed(["math:sqrt"]):
    ...     Registry("function")["math:sqrt"](9)
    3.0
    """
    named = {name for name in names if isinstance(name, str) and ":" in name}
    token = _allowed.set(_allowed.get() | named)
    try:
        yield
    finally:
        _allowed.reset(token)


def allowed_imports() -> list[str]:
    """The names that may be imported here, to hand them on to another process."""
    return sorted(_allowed.get())


class Registry(Generic[Entry]):
    """Named entries of one kind: `@methods.register("gem")` adds, `methods["gem"]` finds.

    `modules` says in which module a name is registered; that module is imported when the name is
    asked for. `my_module:MyMethod` finds an entry that is not registered, where that is allowed:
    see `imports_allowed`.

    >>> import rivals
    >>> rivals.methods["twta"].__name__
    'TWTA'
    >>> "er" in rivals.methods, "lenet" in rivals.networks
    (True, True)
    >>> list(rivals.networks)[:3]
    ['alexnet', 'alexnet-table', 'conv-residual']
    """

    def __init__(self, kind: str, modules: Mapping[str, str] | None = None) -> None:
        self.kind = kind
        self._modules = dict(modules or {})
        self._entries: dict[str, Entry] = {}

    def register(self, name: str) -> Callable[[Entry], Entry]:
        def add(entry: Entry) -> Entry:
            self._entries[name] = entry
            return entry

        return add

    def __getitem__(self, name: str) -> Entry:
        if ":" in name and name not in self._entries:
            return self._imported(name)
        if name not in self._entries and name in self._modules:
            importlib.import_module(self._modules[name])
        if name not in self._entries:
            raise unknown(self.kind, name, self)
        return self._entries[name]

    def check_allowed(self, name: str) -> None:
        """Refuse a name that would have to be imported, and may not be."""
        if ":" in name and name not in _allowed.get():
            raise RivalsError(
                f"The {self.kind} '{name}' is a module to be imported, and a file alone cannot ask "
                f"for that; if you trust the module, add --allow-import {name}."
            )

    def _imported(self, name: str) -> Entry:
        """An entry named `module:name`; the module may lie in the working folder."""
        self.check_allowed(name)
        module, _, attribute = name.partition(":")
        sys.path.insert(0, str(Path.cwd()))
        try:
            found: Entry = getattr(importlib.import_module(module), attribute)
        except (ImportError, AttributeError) as error:
            raise RivalsError(
                f"The {self.kind} '{name}' was not found ({error}); "
                "give it as module:name, the module being importable from here."
            ) from error
        finally:
            sys.path.pop(0)
        return found

    def name_of(self, entry: object) -> str | None:
        """The name under which `entry` was registered."""
        return next((name for name, found in self._entries.items() if found is entry), None)

    def __contains__(self, name: str) -> bool:
        return name in self._entries or name in self._modules

    def __iter__(self) -> Iterator[str]:
        return iter(sorted({*self._entries, *self._modules}))
