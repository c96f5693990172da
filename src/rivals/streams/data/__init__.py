"""Official data files: find, download, check, decode once and map into memory."""
