"""Files, locks, pictures, limits and memory: one of each, without torch."""
