"""Tasks, streams of tasks, and the batches that an epoch is made of."""
