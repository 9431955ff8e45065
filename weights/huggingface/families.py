"""Tables of what reads which model: config.json's model_type -> "module.NAME" in a package, imported when needed."""

from collections.abc import Collection, Mapping
from importlib import import_module
from typing import Any

from fastattn.errors import CheckpointError
from fastattn.weights.containers.json_file import JsonObject, shorten


def known_type(config: JsonObject, known: Collection[str]) -> str:
    """A config.json's model_type; raises CheckpointError that lists the known ones, the nearest first."""
    kind = config.string("model_type")
    if kind not in known:
        from difflib import SequenceMatcher  # which no start needs

        nearest = sorted(known, key=lambda name: (-SequenceMatcher(None, kind[:100], name).ratio(), name))
        names = ", ".join(nearest)
        raise CheckpointError(f"{config.where}: model type {shorten(kind)} is not supported; known: {names}")
    return kind


def found_in(table: Mapping[str, str], config: JsonObject, package: str) -> Any:
    """What a package's table has for a config.json; raises as ``known_type``."""
    module, name = table[known_type(config, table)].split(".")
    return getattr(import_module(f"{package}.{module}"), name)
