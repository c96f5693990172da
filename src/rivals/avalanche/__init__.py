"""A bridge to Avalanche; the package avalanche-lib is needed for this room alone."""

from rivals.avalanche.experiences import stream_from
from rivals.avalanche.strategy import TWTAStrategy

__all__ = ["TWTAStrategy", "stream_from"]
