"""C that learns: a frozen network, sums of its features, and everything a device does with them."""
