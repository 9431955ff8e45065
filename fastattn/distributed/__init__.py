"""Whole corpora on Ray Data: translations or vectors of a dataset's column or, by jobs that survive losses, of files.

Needs the extra ``fastattn[ray]``; without it the functions raise an error that says so.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fastattn.distributed.datasets import encode_dataset, translate_dataset

__all__ = ["encode_dataset", "translate_dataset"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'fastattn.distributed' has no attribute {name!r}")
    from fastattn.distributed import datasets

    return getattr(datasets, name)
