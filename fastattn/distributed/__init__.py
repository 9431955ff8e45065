"""Whole corpora on Ray Data: a dataset's column translated or encoded, and jobs over files that go on after a loss.

Needs the extra ``fastattn[ray]``; imported without it, its functions say so when they are called.
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
