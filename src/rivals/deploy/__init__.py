"""Tickets leave Python: written for a runtime, run there, compared, and only then put in place."""
