"""A local page: collect pictures, train, try, download. Needs the extra [web]."""
