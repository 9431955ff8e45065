"""One request in its own process: ``python -m bench.child REQUEST.json RESULT.json``.

The environment limits every library to the request's threads from the start, and memory is that of one part only.
"""

import json
import sys
from pathlib import Path

from bench.request import Request


def main(source: str, target: str) -> None:
    request = Request(**json.loads(Path(source).read_text(encoding="utf-8")))
    if request.part == "resources":
        from bench.resources import resources as run
    else:
        from bench import run_cases

        run = getattr(run_cases, request.part)
    Path(target).write_text(json.dumps(run(request)), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
