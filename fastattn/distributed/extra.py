"""Imports of the libraries of the extra ``fastattn[ray]``; if one is missing, a one-line error says what to install."""

from types import ModuleType

from fastattn.errors import FastattnError


def import_ray() -> ModuleType:
    """The module ``ray``, with ``ray.data``. Raises FastattnError if ray is not installed."""
    try:
        import ray
        import ray.data
    except ImportError as error:
        raise _missing(error) from None
    return ray


def import_pyarrow() -> ModuleType:
    """The module ``pyarrow``, with its file systems and Parquet. Raises FastattnError if it is not installed."""
    try:
        import pyarrow
        import pyarrow.compute
        import pyarrow.fs
        import pyarrow.parquet
    except ImportError as error:
        raise _missing(error) from None
    return pyarrow


def _missing(error: ImportError) -> FastattnError:
    return FastattnError(f"fastattn.distributed needs the extra: pip install 'fastattn[ray]' ({error})")
