"""Worker processes: each has its own interpreter lock, and all map the same packed weights. Imported when used."""
