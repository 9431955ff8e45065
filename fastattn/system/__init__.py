"""Files, folders, threads and the machine: what knows nothing of attention."""
