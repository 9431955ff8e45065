"""Bytes of a file -> tensors by name, plain data, members of an archive: what several exporters read, or none alone."""
