"""`python -m rivals.edge` is `rivals-edge`."""

from __future__ import annotations

from rivals.edge.command import run

if __name__ == "__main__":
    run()
