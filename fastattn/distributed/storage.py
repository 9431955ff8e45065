"""Where a job's files lie: local folders and object stores, through pyarrow."""

from typing import Any


def filesystem(url: str) -> tuple[Any, str]:
    """(pyarrow's file system, path in it) of a local path, a relative one too, or of a URL."""
    from pyarrow import fs

    if "://" not in url:
        return fs.LocalFileSystem(), url
    found: tuple[Any, str] = fs.FileSystem.from_uri(url)
    return found
