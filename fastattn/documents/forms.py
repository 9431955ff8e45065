"""The forms of documents, which are the formats of their files, by the files' suffixes."""

import os
from pathlib import PurePath

# A form's name is the suffix of its files.
FORMS = ("txt", "html", "md", "srt", "po", "xliff", "docx", "odt", "epub", "csv", "tsv", "jsonl")
OTHER_SUFFIXES = {"text": "txt", "markdown": "md", "vtt": "srt", "pot": "po", "xlf": "xliff", "ndjson": "jsonl"}
OTHER_SUFFIXES |= dict.fromkeys(("htm", "xhtml"), "html")
# Translated on request: the comments of Word and OpenDocument texts, the title and the description of Markdown.
EXTRAS = ("comments", "front-matter")
TEXT_FORMS = ("txt", "html", "md", "srt", "po", "csv", "tsv", "jsonl")  # XML and archives name their encodings
FIELD_FORMS = ("csv", "tsv", "jsonl")


def form_of(path: str | os.PathLike[str]) -> str | None:
    """The form of a file by its name, or None."""
    suffix = PurePath(path).suffix.lower().removeprefix(".")
    form = OTHER_SUFFIXES.get(suffix, suffix)
    return form if form in FORMS else None
