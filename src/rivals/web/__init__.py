"""A local page to teach a device: collect, train, try, take away. Needs the extra [web]."""
