"""Worker processes: each has its own interpreter's lock, and maps the same packed weights. Imported when used."""
