"""The tokens of a vocabulary by their ids, from the places that a mapping may name."""

from collections.abc import Sequence

from fastattn.errors import CheckpointError
from fastattn.weights.containers.json_file import JsonObject, decoded, read_object, shorten
from fastattn.weights.containers.safetensors import read_metadata
from fastattn.weights.folder import Folder


def read_vocabulary(place: JsonObject, folder: Folder, weights: Sequence[str], rows: int) -> tuple[str, ...]:
    """The tokens, as many as the embedding has ``rows``; ``weights`` are the files that may have metadata."""
    known = [name for name in READERS if place.has(name)]
    if len(known) != 1:
        raise CheckpointError(f"{place.where} should have one of {', '.join(READERS)}, has {shorten(place.values)}")
    return checked(READERS[known[0]](place, folder, weights), rows, place.where)


def checked(tokens: list[str], rows: int, where: str) -> tuple[str, ...]:
    """The tokens, which should be as many as the embedding has ``rows``."""
    if len(tokens) != rows:
        raise CheckpointError(f"{where}: the embedding has {rows} rows, the vocabulary {len(tokens)} tokens")
    return tuple(tokens)


def _file(place: JsonObject, entry: str) -> str:
    name = place.string(entry)
    if any(sign in name for sign in "/\\:"):
        raise place.error(entry, "a file beside the weights", name)
    return name


def _lines(place: JsonObject, folder: Folder, weights: Sequence[str]) -> list[str]:
    """A token a line."""
    name = _file(place, "lines")
    lines = decoded(folder.read(name), folder.where(name)).split("\n")
    return lines if lines[-1] else lines[:-1]


def _object(place: JsonObject, folder: Folder, weights: Sequence[str]) -> list[str]:
    """{token: id} under a key of a JSON object."""
    ids = read_object(folder, _file(place, "json")).nested(place.string("key"))
    numbers = [ids.integer(token) for token in ids.values]
    if sorted(numbers) != list(range(len(numbers))):
        raise CheckpointError(f"{ids.where}: should have each id from 0 to {len(numbers) - 1} once")
    return sorted(ids.values, key=lambda token: ids.values[token])


def _metadata(place: JsonObject, folder: Folder, weights: Sequence[str]) -> list[str]:
    """Tokens with NULs between them in the metadata of the weights, one .safetensors file."""
    return read_metadata(folder, weights[0]).string(place.string("metadata")).split("\0")


READERS = {"lines": _lines, "json": _object, "metadata": _metadata}
