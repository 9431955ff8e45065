"""The forms of documents, which are the formats of their files, by the files' suffixes."""

import os
from pathlib import PurePath

# A form's name is the suffix of its files.
FORMS = tuple(
    "txt html md rst tex rtf srt ass docx odt pptx xlsx epub pdf csv tsv jsonl po xliff json yaml properties strings "
    "xcstrings android".split()
)
OTHER_SUFFIXES = {"text": "txt", "markdown": "md", "vtt": "srt", "pot": "po", "xlf": "xliff", "ndjson": "jsonl"}
OTHER_SUFFIXES |= {"htm": "html", "xhtml": "html", "rest": "rst", "ssa": "ass", "arb": "json", "yml": "yaml"}
# Forms that hold settings as often as texts: of a folder they are translated only where --format says so.
NAMED_FORMS = ("json", "yaml", "properties")
# Translated on request: the comments of Word and OpenDocument texts, the title and the description of Markdown.
EXTRAS = ("comments", "front-matter")
# XML, RTF, properties and archives name their encodings, or have one of their own.
TEXT_FORMS = tuple("txt html md rst tex srt ass po csv tsv jsonl json yaml strings xcstrings".split())
FIELD_FORMS = ("csv", "tsv", "jsonl")


def form_of(path: str | os.PathLike[str]) -> str | None:
    """The form of a file by its name, or None."""
    if PurePath(path).name.lower() == "strings.xml":
        return "android"
    suffix = PurePath(path).suffix.lower().removeprefix(".")
    form = OTHER_SUFFIXES.get(suffix, suffix)
    return form if form in FORMS and form != "android" else None
