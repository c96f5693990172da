"""`rivals watch`: frames from a source, answers by the last ones together, sinks that take them."""
