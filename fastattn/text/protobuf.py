"""The protocol-buffer wire format, every varint and length checked; no allocation is sized by a number in the file."""

from collections.abc import Iterator

from fastattn.errors import TokenizerError

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5


def read_fields(data: bytes, what: str, position: int = 0) -> Iterator[tuple[int, int, int | bytes]]:
    """The fields of one message from ``position`` on, in file order: (number, wire type, value).

    A varint's value is an int below 2**64; the value of every other wire type is its bytes.
    ``what`` names the message in errors. Raises TokenizerError where the bytes are no message.
    """
    end = len(data)
    while position < end:
        key = data[position]
        if key < 0x80:
            position += 1
        else:
            key, position = _read_varint(data, position, what)
        number, wire = key >> 3, key & 7
        if number == 0 or number >> 29:
            raise TokenizerError(f"{what}: field number {number} at byte {position} is not a protocol buffer's")
        if wire == LENGTH:
            length, position = _read_varint(data, position, what)
            if length > end - position:
                raise TokenizerError(f"{what}: field {number} wants {length} bytes, but {end - position} are left")
            yield number, wire, data[position : position + length]
            position += length
        elif wire == VARINT:
            value, position = _read_varint(data, position, what)
            yield number, wire, value
        elif wire in (FIXED32, FIXED64):
            length = 4 if wire == FIXED32 else 8
            if length > end - position:
                raise TokenizerError(f"{what}: field {number} wants {length} bytes, but {end - position} are left")
            yield number, wire, data[position : position + length]
            position += length
        else:
            raise TokenizerError(f"{what}: wire type {wire} at byte {position} is not a protocol buffer's")


def read_int(value: int | bytes, what: str) -> int:
    """The int32 of a VARINT field; a negative one is stored as 64 bits."""
    if not isinstance(value, int):
        raise TokenizerError(f"{what}: an integer was expected")
    return value - (1 << 64) if value >> 63 else value


def read_bytes(value: int | bytes, wire: int, what: str) -> bytes:
    """The bytes of a LENGTH field."""
    if not isinstance(value, bytes) or wire != LENGTH:
        raise TokenizerError(f"{what}: a string was expected")
    return value


def _read_varint(data: bytes, position: int, what: str) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if position >= len(data):
            raise TokenizerError(f"{what}: ends inside a number at byte {position}")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> 64:
                break
            return value, position
    raise TokenizerError(f"{what}: a number at byte {position} is longer than 64 bits")
