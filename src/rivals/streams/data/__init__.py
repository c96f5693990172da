"""Official data files: found, fetched, checked, decoded once and mapped into memory."""
