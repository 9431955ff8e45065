"""A job: everything on which its output depends. The output folder keeps the job for the next run."""

import json
from collections.abc import Callable
from typing import Any

from fastattn.distributed.storage import public_url
from fastattn.errors import InputError
from fastattn.system.records import dataclass

LAYOUT = 1  # the output folder's layout; a run refuses a folder of another layout
KINDS = ("translate", "encode")
FORMS = ("parquet", "jsonl")
_MOST_SHOWN = 3  # files that a message lists
_LONGEST_SHOWN = 60  # characters of an option's value that a message shows
_GREATEST_COUNT = 2**63 - 1


@dataclass(frozen=True)
class CorpusJob:
    """Everything on which the output depends; two jobs without differences write the same.

    model      SHA-256 of the checkpoint's files; ``model_name`` is only for messages
    options    name -> value, which JSON can hold
    column     the input column of the texts; ``outputs``: the columns that are added to the input's columns
    form       the output's form, one of FORMS
    version    of fastattn
    input_form of all files
    files      {"url", "size", "modified"} of each input file, in order. "modified" is in ns, 0 for unknown; a new time
               alone makes no other job. URLs have no users, passwords and options.
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
        files = [{name: file[name] for name in _FILE_FIELDS} for file in self.files]
        vars(self)["files"] = [file | {"url": public_url(file["url"])} for file in files]

    def as_json(self) -> bytes:
        return json.dumps({"layout": LAYOUT} | vars(self), indent=1).encode() + b"\n"

    def without_files(self) -> "CorpusJob":
        """The job without its files, which are most of its bytes: enough to compute a block."""
        return CorpusJob(**vars(self) | {"files": []})

    @staticmethod
    def from_json(data: bytes, name: str) -> "CorpusJob":
        """The job in the contents of the file ``name``; InputError if they are no job of this layout."""
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
        """The differences from an earlier job, each as a phrase; none if both jobs write the same."""
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
            # Compared as JSON, in which a tuple is a list but True is not 1. Two models may have the same text here.
            if name == "model" or json.dumps(now, sort_keys=True) != json.dumps(before, sort_keys=True)
        ]
        return differences + _differences_of_files(self.files, earlier.files)

    def files_with_new_time(self, earlier: "CorpusJob") -> list[int]:
        """Numbers of the files whose known time in an earlier job, which has no differences, is another one."""
        pairs = enumerate(zip(self.files, earlier.files))
        return [number for number, (now, before) in pairs if now["modified"] != before["modified"] != 0]


def parse_object(data: bytes) -> dict[str, Any] | None:
    """The JSON object in a file's contents; None for contents that are no JSON object."""
    try:
        values = json.loads(data.decode("utf-8"), parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return None
    return values if isinstance(values, dict) else None


def is_count(value: Any) -> bool:
    """Whether a value of JSON is a whole number of at least 0 that fits in 64 bits."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _GREATEST_COUNT


def _refuse_constant(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def is_text(value: Any) -> bool:
    return isinstance(value, str)


def are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(map(is_text, value))


_FILE_FIELDS = {"url": is_text, "size": is_count, "modified": is_count}


def _is_files(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(file, dict)
        and set(file) == set(_FILE_FIELDS)
        and all(is_right(file[name]) for name, is_right in _FILE_FIELDS.items())
        for file in value
    )


_CHECKS: dict[Any, Callable[[Any], bool]] = {
    str: is_text,
    int: is_count,
    list[str]: are_texts,
    dict[str, Any]: lambda value: isinstance(value, dict),
    list[dict[str, Any]]: _is_files,
}
_FIELDS = {name: _CHECKS[kind] for name, kind in CorpusJob.__annotations__.items()}
_FIELDS |= {"kind": KINDS.__contains__, "form": FORMS.__contains__}


def _shortened(value: Any) -> str:
    text = value if isinstance(value, str) else "not given" if value is None else json.dumps(value)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."


def _differences_of_files(files: list[dict[str, Any]], earlier_files: list[dict[str, Any]]) -> list[str]:
    sizes, earlier = ({file["url"]: file["size"] for file in job_files} for job_files in (files, earlier_files))
    new = [url for url in sizes if url not in earlier]
    missing = [url for url in earlier if url not in sizes]
    if new or missing:
        changes = [f"{change}: {_first_texts(urls)}" for change, urls in (("new", new), ("gone", missing)) if urls]
        return [f"input: {len(files)} file{'s'[: len(files) != 1]}, were {len(earlier_files)} ({'; '.join(changes)})"]
    changed = [f"{url}: {size} bytes, was {earlier[url]}" for url, size in sizes.items() if size != earlier[url]]
    if not changed and list(sizes) != list(earlier):
        return ["input: the same files in another order"]
    return changed if len(changed) <= _MOST_SHOWN else [_first_texts(changed)]


def _first_texts(texts: list[str]) -> str:
    remainder = f" and {len(texts) - _MOST_SHOWN} more" if len(texts) > _MOST_SHOWN else ""
    return ", ".join(texts[:_MOST_SHOWN]) + remainder
