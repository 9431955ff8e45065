"""Worker processes: each has an interpreter's lock of its own, and maps the same packed weights. Imported when used."""
