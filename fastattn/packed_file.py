"""Packed weights in the cache folder: the first load of a checkpoint writes them, later ones map them.

One file for each checkpoint, precision and layout, of the form in ``weights/containers/kept_file.py``.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from fastattn.atomic_files import sweep
from fastattn.cache_folder import cache_root
from fastattn.kernels.packing import PackedLinear, packed_layout, packed_shapes
from fastattn.weights.containers.kept_file import content_hash, load_kept, store
from fastattn.weights.containers.safetensors import StoredTensor

VERSION = 6  # of the file format; increased when the contents change


class PackedFile:
    """The packed linear layers of one checkpoint in one precision; ``variety`` distinguishes further variants."""

    def __init__(self, files: Sequence[Path], precision: str, variety: str = ""):
        self._precision = precision
        self._origin = {"checkpoint": str(files[0].absolute())} if files else {}  # for people; loading needs no name
        name = f"{content_hash(files)[:40]}-{packed_layout(precision)}{variety}-{VERSION}.safetensors"
        self.path = cache_root() / "packed" / name
        self._made: dict[str, PackedLinear] = {}
        sweep(self.path.parent)
        self._stored: dict[str, StoredTensor] = load_kept(self.path)

    def linear(
        self, name: str, shape: tuple[int, int], make: Callable[[], PackedLinear], precision: str = ""
    ) -> PackedLinear:
        """The layer ``name``, with weights of ``shape``: mapped from the file if stored, else made, for ``save``.

        precision  "": the file's
        """
        balanced = f"{name}.input_factors" in self._stored and self._stored[f"{name}.input_factors"].shape != (0,)
        shapes = packed_shapes(*shape, precision or self._precision, balanced)
        stored = {field: self._stored.get(f"{name}.{field}") for field in shapes}
        arrays = {field: tensor.array() for field, tensor in stored.items() if tensor is not None}
        if {field: array.shape for field, array in arrays.items()} == shapes:
            return PackedLinear(shape[0], shape[1], **arrays)
        self._made[name] = made = make()
        return made

    def save(self) -> None:
        """Write the layers that were made."""
        if not self._made:
            return
        arrays = {
            f"{name}.{field}": array for name, packed in self._made.items() for field, array in packed.arrays().items()
        }
        store(self.path, arrays, self._origin)
        self._made = {}
