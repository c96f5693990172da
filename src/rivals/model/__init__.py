"""A model as a folder: learn, test, predict, drop."""
