"""A job: everything that its output depends on, which the output folder keeps for the next run."""

import json
from collections.abc import Callable
from typing import Any

from fastattn.distributed.storage import public
from fastattn.errors import InputError
from fastattn.system.records import dataclass

LAYOUT = 1  # of the output folder; a run refuses a folder of another layout
KINDS = ("translate", "encode")
FORMS = ("parquet", "jsonl")
_MOST_SHOWN = 3  # files of a kind in a message
_LONGEST_SHOWN = 60  # characters of an option's value in a message
_GREATEST = 2**63 - 1


@dataclass(frozen=True)
class CorpusJob:
    """Everything that the output depends on; two jobs without differences write the same.

    model      SHA-256 of the checkpoint's files; ``model_name`` is only for messages
    options    JSON, by name
    column     the input column of the texts; ``outputs``: the columns that are added to the input's
    form       of the output, one of FORMS
    version    of fastattn
    input_form of all files
    files      {"url", "size", "modified"} of each input file, in order. "modified" is in ns, 0 for unknown, and makes
               no other job (``touched``). URLs have no users, passwords and options.
    """

    kind: str
    model: str
    model_name: str
    options: dict[str, Any]
    column: str
    outputs: list[str]
    form: str
    version: str
    block_bytes: int
    input_form: str
    files: list[dict[str, Any]]

    def __post_init__(self) -> None:
        files = [{name: file[name] for name in _OF_FILES} for file in self.files]
        vars(self)["files"] = [file | {"url": public(file["url"])} for file in files]

    def as_json(self) -> bytes:
        return json.dumps({"layout": LAYOUT} | vars(self), indent=1).encode() + b"\n"

    def without_files(self) -> "CorpusJob":
        """The job without its files' names, which are most of it: enough to compute a block."""
        return CorpusJob(**vars(self) | {"files": []})

    @staticmethod
    def from_json(data: bytes, name: str) -> "CorpusJob":
        """The job in a file's contents; InputError for contents that are no job of this layout."""
        values = parse_object(data)
        if values is None:
            raise InputError(f"{name} should hold a job of fastattn as JSON, and does not; name another folder")
        if values.get("layout") != LAYOUT:
            shown = _shortened(values.get("layout"))
            raise InputError(f"{name} has layout {shown}, this version of fastattn has {LAYOUT}; name another folder")
        for field, is_right in _FIELDS.items():
            if not is_right(values.get(field)):
                shown = _shortened(values.get(field))
                raise InputError(f"{name}: {field} cannot be that of a job, is {shown}; name another folder")
        return CorpusJob(**{field: values[field] for field in _FIELDS})

    def differences(self, earlier: "CorpusJob") -> list[str]:
        """The differences from an earlier job, a phrase each; none where both write the same."""
        values: list[tuple[str, Any, Any]] = [("kind", self.kind, earlier.kind)]
        if self.model != earlier.model:
            now, before = (f"{job.model_name} ({job.model[:12]})" for job in (self, earlier))
            values.append(("model", now, before))
        values += [(name, self.options.get(name), earlier.options.get(name)) for name in self.options | earlier.options]
        names = ("column", "outputs", "form", "version", "block_bytes", "input_form")
        values += [(name, getattr(self, name), getattr(earlier, name)) for name in names]
        differences = [
            f"{_shortened(name)}: {_shortened(now)}, was {_shortened(before)}"
            for name, now, before in values
            # Compared as JSON, where a tuple is a list, but True is not 1. The shown names of two models may be equal.
            if name == "model" or json.dumps(now, sort_keys=True) != json.dumps(before, sort_keys=True)
        ]
        return differences + _differences_of_files(self.files, earlier.files)

    def touched(self, earlier: "CorpusJob") -> list[int]:
        """Numbers of the files with another time than in an earlier job, which has no differences."""
        pairs = enumerate(zip(self.files, earlier.files))
        return [number for number, (now, before) in pairs if now["modified"] != before["modified"] != 0]


def parse_object(data: bytes) -> dict[str, Any] | None:
    """The JSON object in a file's contents; None for contents that are no JSON object."""
    try:
        values = json.loads(data.decode("utf-8"), parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    return values if isinstance(values, dict) else None


def is_count(value: Any) -> bool:
    """Whether a value of JSON is a whole number of at least 0 that fits in 64 bits."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _GREATEST


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def is_text(value: Any) -> bool:
    return isinstance(value, str)


def are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(map(is_text, value))


_OF_FILES = {"url": is_text, "size": is_count, "modified": is_count}


def _is_files(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(file, dict)
        and set(file) == set(_OF_FILES)
        and all(is_right(file[name]) for name, is_right in _OF_FILES.items())
        for file in value
    )


_KINDS: dict[Any, Callable[[Any], bool]] = {
    str: is_text,
    int: is_count,
    list[str]: are_texts,
    dict[str, Any]: lambda value: isinstance(value, dict),
    list[dict[str, Any]]: _is_files,
}
_FIELDS = {name: _KINDS[kind] for name, kind in CorpusJob.__annotations__.items()}
_FIELDS |= {"kind": KINDS.__contains__, "form": FORMS.__contains__}


def _shortened(value: Any) -> str:
    text = value if isinstance(value, str) else "not given" if value is None else json.dumps(value)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."


def _differences_of_files(files: list[dict[str, Any]], earlier_files: list[dict[str, Any]]) -> list[str]:
    sizes_now, sizes = ({file["url"]: file["size"] for file in listed} for listed in (files, earlier_files))
    new = [url for url in sizes_now if url not in sizes]
    gone = [url for url in sizes if url not in sizes_now]
    if new or gone:
        changes = [f"{word}: {_first_texts(urls)}" for word, urls in (("new", new), ("gone", gone)) if urls]
        return [f"input: {len(files)} file{'s'[: len(files) != 1]}, were {len(earlier_files)} ({'; '.join(changes)})"]
    changed = [f"{url}: {size} bytes, was {sizes[url]}" for url, size in sizes_now.items() if size != sizes[url]]
    if not changed and list(sizes_now) != list(sizes):
        return ["input: the same files in another order"]
    return changed if len(changed) <= _MOST_SHOWN else [_first_texts(changed)]


def _first_texts(texts: list[str]) -> str:
    more = f" and {len(texts) - _MOST_SHOWN} more" if len(texts) > _MOST_SHOWN else ""
    return ", ".join(texts[:_MOST_SHOWN]) + more
