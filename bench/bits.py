"""Compares the bits of what two commits compute, result by result.

    python -m bench.bits BEFORE [AFTER] [--only TEXT]

Each commit (AFTER: by default the one that is checked out) is laid out as if installed, and computes the results of
bits_child.py in a process of its own: attention, mechanisms, caches, vectors, translations, generation, small models of
every architecture, pictures, documents, answers of the server. The names of results that differ are printed, and of
those that only one commit has; the exit status is 1 if there are any.
"""

import argparse
import hashlib
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

from bench.commits import installed
from bench.server import running
from tests.architectures.cases import GOLDEN_CASES
from tests.architectures.decoders import GOLDEN_DECODERS
from tests.architectures.goldens import write_golden
from tests.images.cases import CASES, write_golden_images

CHILD = Path(__file__).with_name("bits_child.py")


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.bits", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("before", metavar="BEFORE")
    parser.add_argument("after", nargs="?", default="HEAD", metavar="AFTER")
    parser.add_argument("--only", default="", metavar="TEXT", help="results whose name contains it")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        models = write_models(Path(folder))
        before, after = (digests(installed(commit), models, options.only) for commit in (options.before, options.after))
    different = [name for name in before if name in after and before[name] != after[name]]
    for name in different:
        print(f"differs: {name}: {before[name]} -> {after[name]}")
    for name in sorted(before.keys() ^ after.keys()):
        print(f"only {'before' if name in before else 'after'}: {name}")
    print(f"{len(before.keys() & after.keys())} results, {len(different)} differ")
    return int(bool(different) or before.keys() != after.keys())


def write_models(folder: Path) -> list[tuple[str, str, str]]:
    """(name, task, folder) of small models with drawn weights, of every architecture."""
    models = []
    for case in (*GOLDEN_CASES, *GOLDEN_DECODERS, *CASES):
        path = folder / str(len(models))
        path.mkdir()
        task = getattr(case, "task", "images")
        write_golden_images(case, path) if task == "images" else write_golden(case, path)
        models.append((f"{case.name}, {task}", task, str(path)))
    return models


def digests(tree: Path, models: list[tuple[str, str, str]], only: str) -> dict[str, str]:
    """{result's name: digest} of the commit whose tree lies in the folder."""
    command = [sys.executable, str(CHILD), str(tree), only]
    done = subprocess.run(command, input=json.dumps(models), stdout=subprocess.PIPE, text=True, cwd=tree)
    if done.returncode != 0:
        sys.exit(f"the process of {tree.name} ended with status {done.returncode}")
    results = dict(line.split("\t") for line in done.stdout.splitlines())
    return results | (answers(tree) if only in "answers of the server" else {})


REQUESTS: list[tuple[str, dict[str, Any]]] = [
    ("/translate", {"q": "The house is old.", "source": "en", "target": "pt", "alternatives": 2}),
    ("/translate", {"q": ["Good morning.", "It rains."], "source": "en", "target": "pt"}),
    ("/v2/translate", {"text": ["The house is old."], "target_lang": "PT"}),
    ("/v1/embeddings", {"model": "minilm", "input": ["a cat", "two dogs"], "encoding_format": "base64"}),
    ("/embed", {"inputs": ["a cat", "two dogs"]}),
    ("/tokenize", {"inputs": "two cats"}),
    ("/v1/chat/completions", {"model": "smollm2", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 8}),
    ("/detect", {"q": "The house is old."}),
]


def answers(tree: Path) -> dict[str, str]:
    """Digests of the commit's server's answers, without times and identifiers."""
    start = f"import runpy, sys; sys.path.insert(0, {str(tree)!r}); runpy.run_module('fastattn', run_name='__main__')"
    models = [part for name in ("en-pt", "minilm", "smollm2") for part in ("-m", name)]
    results = {}
    with running([sys.executable, "-c", start, "serve", "--port", "{port}", *models]) as server:
        for number, (path, body) in enumerate(REQUESTS):
            try:
                answer = server.ask(path, body)
            except HTTPError as error:
                answer = error.read()
            answer = re.sub(rb'"(id|created)": ?("[^"]*"|\d+)', rb'"\1": 0', answer)
            results[f"answers of the server, {number}, {path}"] = hashlib.sha256(answer).hexdigest()[:16]
    return results


if __name__ == "__main__":
    sys.exit(main())
