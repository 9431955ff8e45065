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
_MOST_LISTED = 3  # files in a message
_LONGEST_VALUE = 60  # characters of an option's value in a message
_GREATEST_COUNT = 2**63 - 1


@dataclass(frozen=True)
class CorpusJob:
    """Everything on which the output depends; two jobs without differences write the same output.

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
        files = [{name: file[name] for name in _FILE_CHECKS} for file in self.files]
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
            layout = _short_text(values.get("layout"))
            raise InputError(f"{name} has layout {layout}, this version of fastattn has {LAYOUT}; name another folder")
        for field, is_valid in _FIELD_CHECKS.items():
            if not is_valid(values.get(field)):
                text = _short_text(values.get(field))
                raise InputError(f"{name}: {field} cannot be that of a job, is {text}; name another folder")
        return CorpusJob(**{field: values[field] for field in _FIELD_CHECKS})

    def differences(self, earlier: "CorpusJob") -> list[str]:
        """The differences from an earlier job, each as a phrase; none if both jobs write the same output."""
        values: list[tuple[str, Any, Any]] = [("kind", self.kind, earlier.kind)]
        if self.model != earlier.model:
            model, earlier_model = (f"{job.model_name} ({job.model[:12]})" for job in (self, earlier))
            values.append(("model", model, earlier_model))
        values += [(name, self.options.get(name), earlier.options.get(name)) for name in self.options | earlier.options]
        names = ("column", "outputs", "form", "version", "block_bytes", "input_form")
        values += [(name, getattr(self, name), getattr(earlier, name)) for name in names]
        differences = [
            f"{_short_text(name)}: {_short_text(value)}, was {_short_text(earlier_value)}"
            for name, value, earlier_value in values
            # Values are compared as JSON, in which a tuple is a list but True is not 1. Models may have equal texts.
            if name == "model" or json.dumps(value, sort_keys=True) != json.dumps(earlier_value, sort_keys=True)
        ]
        return differences + _differences_of_files(self.files, earlier.files)

    def files_with_new_time(self, earlier: "CorpusJob") -> list[int]:
        """Numbers of the files whose time has changed since an earlier job, which has no differences but times."""
        times = [(file["modified"], old_file["modified"]) for file, old_file in zip(self.files, earlier.files)]
        return [number for number, (time, old_time) in enumerate(times) if time != old_time != 0]


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


_FILE_CHECKS = {"url": is_text, "size": is_count, "modified": is_count}


def _are_files(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(file, dict)
        and set(file) == set(_FILE_CHECKS)
        and all(is_valid(file[name]) for name, is_valid in _FILE_CHECKS.items())
        for file in value
    )


_TYPE_CHECKS: dict[Any, Callable[[Any], bool]] = {
    str: is_text,
    int: is_count,
    list[str]: are_texts,
    dict[str, Any]: lambda value: isinstance(value, dict),
    list[dict[str, Any]]: _are_files,
}
_FIELD_CHECKS = {name: _TYPE_CHECKS[field_type] for name, field_type in CorpusJob.__annotations__.items()}
_FIELD_CHECKS |= {"kind": KINDS.__contains__, "form": FORMS.__contains__}


def _short_text(value: Any) -> str:
    text = value if isinstance(value, str) else "not given" if value is None else json.dumps(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}..."


def _differences_of_files(files: list[dict[str, Any]], earlier_files: list[dict[str, Any]]) -> list[str]:
    sizes, old_sizes = ({file["url"]: file["size"] for file in job_files} for job_files in (files, earlier_files))
    urls_of = {
        "new": [url for url in sizes if url not in old_sizes],
        "gone": [url for url in old_sizes if url not in sizes],
    }
    changes = [f"{change}: {_first_texts(urls)}" for change, urls in urls_of.items() if urls]
    if changes:
        return [f"input: {len(files)} file{'s'[: len(files) != 1]}, were {len(earlier_files)} ({'; '.join(changes)})"]
    changes = [f"{url}: {size} bytes, was {old_sizes[url]}" for url, size in sizes.items() if size != old_sizes[url]]
    if not changes and list(sizes) != list(old_sizes):
        return ["input: the same files in another order"]
    return changes if len(changes) <= _MOST_LISTED else [_first_texts(changes)]


def _first_texts(texts: list[str]) -> str:
    remainder = f" and {len(texts) - _MOST_LISTED} more" if len(texts) > _MOST_LISTED else ""
    return ", ".join(texts[:_MOST_LISTED]) + remainder
