"""`python -m rivals.edge` is `rivals-edge`."""

from __future__ import annotations

import sys

from rivals.edge.command import main

if __name__ == "__main__":
    sys.exit(main())
