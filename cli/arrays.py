"""Arrays from .npy files."""

from typing import TYPE_CHECKING

from fastattn.errors import InputError

if TYPE_CHECKING:
    import numpy as np


def open_array(path: str) -> "np.ndarray":
    """The array of a .npy file, mapped and not read. Raises InputError where it holds none, or Python objects."""
    import numpy as np

    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or 'not a .npy file'}") from None
    except (ValueError, EOFError, OverflowError, MemoryError):
        raise InputError(f"{path}: a .npy file with an array of numbers is expected") from None
    if not isinstance(array, np.ndarray):  # a .npz
        raise InputError(f"{path}: a .npy file with one array is expected, not an archive of several")
    return array
