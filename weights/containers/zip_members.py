"""Members of a zip archive in memory: the archive's list of them, and their bytes without a copy."""

import struct
import zipfile

from fastattn.weights.containers.byte_reader import ByteReader

MAGIC = b"PK\x03\x04"
LOCAL_HEADER = struct.Struct("<4s22xHH")  # followed by the member's name and extra field, of these lengths


class ZipError(Exception):
    """Bytes that are no zip archive; the message is one line."""


def list_members(data: memoryview) -> list[zipfile.ZipInfo]:
    """The members by the list at the archive's end; raises ZipError."""
    try:
        return zipfile.ZipFile(ByteReader(data)).infolist()  # type: ignore[call-overload]
    except (zipfile.BadZipFile, NotImplementedError, ValueError, OverflowError, OSError, struct.error) as error:
        raise ZipError(" ".join(str(error).split())) from None


def packed_bytes(data: memoryview, member: zipfile.ZipInfo) -> memoryview | None:
    """A member's bytes as packed, fewer if the archive ends before; None if it is not where the list says."""
    begin = member.header_offset
    header = data[begin : begin + LOCAL_HEADER.size] if begin >= 0 else b""
    if len(header) < LOCAL_HEADER.size or header[:4] != MAGIC:
        return None
    _, *lengths = LOCAL_HEADER.unpack(header)
    begin += LOCAL_HEADER.size + sum(lengths)
    return data[begin : begin + member.compress_size]
