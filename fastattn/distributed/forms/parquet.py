"""To come."""

from fastattn.distributed.forms.text import cut, read

__all__ = ["cut", "read"]
