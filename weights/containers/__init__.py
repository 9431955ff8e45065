"""Readers of file formats, and what they share: a reader of numbers and bytes that checks how many bytes remain."""

import struct

from fastattn.errors import CheckpointError


class ByteReader:
    """Bytes with a position. ``read``, ``seek`` and ``tell`` work as those of a binary file, for ``zipfile``."""

    def __init__(self, data: memoryview, where: str = "") -> None:
        self.data, self.where, self.position = data, where, 0

    @property
    def remaining(self) -> int:
        return len(self.data) - self.position

    def take(self, size: int, label: str) -> memoryview:
        """The next ``size`` bytes, not copied; CheckpointError, which calls them ``label``, if there are fewer."""
        if size > self.remaining:
            raise self.error(f"expected {size} bytes of {label}, {self.remaining} remain (is the file complete?)")
        self.position += size
        return self.data[self.position - size : self.position]

    def number(self, letter: str, label: str) -> int:
        """The next integer, little-endian, of the type that ``letter`` names in ``struct``."""
        return struct.unpack("<" + letter, self.take(struct.calcsize("<" + letter), label))[0]

    def check_end(self) -> None:
        if self.remaining:
            raise self.error(f"expected the end of the file, {self.remaining} bytes remain")

    def error(self, message: str) -> CheckpointError:
        return CheckpointError(f"{self.where}: at byte {self.position}: {message}")

    def read(self, count: int = -1) -> bytes:
        end = len(self.data) if count < 0 else self.position + count
        content = bytes(self.data[self.position : end])
        self.position += len(content)
        return content

    def seek(self, offset: int, whence: int = 0) -> int:
        position = offset + (0, self.position, len(self.data))[whence]
        if position < 0:
            raise OSError("a position before the beginning")
        self.position = position
        return position

    def tell(self) -> int:
        return self.position
