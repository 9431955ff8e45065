"""Which form of document a file has, by its name."""

import os
from pathlib import PurePath

# A form's name is the end of its files' names.
FORMS = ("txt", "html", "md", "srt", "po", "xliff", "docx", "odt", "epub", "csv", "tsv", "jsonl")
OTHER_NAMES = {"text": "txt", "markdown": "md", "vtt": "srt", "pot": "po", "xlf": "xliff", "ndjson": "jsonl"}
OTHER_NAMES |= dict.fromkeys(("htm", "xhtml"), "html")
# What is translated where it is asked for: remarks of a Word or OpenDocument text, title and description of Markdown.
EXTRAS = ("comments", "front-matter")
TEXT_FORMS = ("txt", "html", "md", "srt", "po", "csv", "tsv", "jsonl")  # XML and archives say their encodings
WITH_FIELDS = ("csv", "tsv", "jsonl")


def form_of(path: str | os.PathLike[str]) -> str | None:
    """The form that a file's name tells, or None."""
    suffix = PurePath(path).suffix.lower().removeprefix(".")
    form = OTHER_NAMES.get(suffix, suffix)
    return form if form in FORMS else None
