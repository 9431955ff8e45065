"""Options of ``fastattn translate`` for what is known of translations: terms, memories, a cache."""

import hashlib
import os
from typing import Any

from fastattn._version import VERSION
from fastattn.cli.options import declare

NAMES = ("glossary", "keep", "guard", "memory", "cache")


known_options = declare("""
--glossary FILE: Terms and their translations, two columns with a tab between them, or TBX: they come out as it says.
--keep PATTERN ...: What this regular expression finds stays as it is. May be given several times.
--guard: Decode loops and what has run away again, without repetitions, and say so.
--memory FILE: A translation memory (TMX, or two columns with a tab): texts that it has get its translations; --json
    shows what is like them.
--cache FILE: Take from FILE what was translated before, and keep there what is new.
""")


def known(
    translator: Any, paths: list[str], how: dict[str, Any], given: dict[str, Any], languages: tuple[str, str]
) -> Any:
    """The translator with what the options name around it.

    paths, how  of its models: their folders and options, which tell cached translations from others
    languages   from which and to which it translates, "" where nothing tells
    """
    if not any(given[name] for name in NAMES):
        return translator
    from fastattn.translation.glossary import GlossaryTranslator
    from fastattn.translation.guarded import GuardedTranslator
    from fastattn.translation.memory import CachedTranslator, MemoryTranslator
    from fastattn.translation.term_files import read_glossary, read_memory

    if given["glossary"] or given["keep"]:
        terms = read_glossary(given["glossary"], *languages) if given["glossary"] else {}
        translator = GlossaryTranslator(translator, terms, given["keep"])
    if given["guard"]:
        translator = GuardedTranslator(translator)
    if given["memory"]:
        translator = MemoryTranslator(translator, read_memory(given["memory"], *languages))
    if given["cache"]:
        model = [VERSION, *map(_contents, paths), file_contents(given), given["keep"], given["guard"], how]
        translator = CachedTranslator(translator, given["cache"], repr(model))
    return translator


def file_contents(given: dict[str, Any]) -> list[Any]:
    """What tells the files that options name, where they are there, from what they were before."""
    paths = (given["glossary"], given["memory"])
    return [path and os.path.isfile(path) and _contents(path) for path in paths]


def _contents(path: str) -> str:
    """What tells a file or a folder from another, and from what it was before: names, sizes and times."""
    found = hashlib.sha256()
    for root, folders, files in os.walk(path) if os.path.isdir(path) else [(os.path.dirname(path), [], [path])]:
        folders.sort()
        for name in sorted(files):
            status = os.stat(os.path.join(root, name))
            found.update(f"{name} {status.st_size} {status.st_mtime_ns}\n".encode("utf-8", "surrogateescape"))
    return found.hexdigest()
