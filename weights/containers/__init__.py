"""File formats that several exporters share: tensors by name, plain data, members of an archive."""
