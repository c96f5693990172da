"""Layers and networks of rival units, and the state that a task has in them."""
