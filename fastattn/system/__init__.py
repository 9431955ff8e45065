"""Files, folders, threads and the machine: modules that know nothing of attention."""
