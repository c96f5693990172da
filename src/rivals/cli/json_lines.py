"""What happens, as lines of JSON: one event each, flushed, for a program that listens."""

from __future__ import annotations

import json
import sys
from typing import Any


class JsonLines:
    """A watcher that prints every event."""

    def __call__(self, event: dict[str, Any]) -> None:
        sys.stdout.write(json.dumps(event) + "\n")
        sys.stdout.flush()

    def __enter__(self) -> JsonLines:
        return self

    def __exit__(self, *_: object) -> None:
        pass
