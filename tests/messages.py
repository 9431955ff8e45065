"""What errors say, word for word, in golden files: a test states an error's type and whom it names, no more.

`FASTATTN_WRITE_MESSAGES=1 make test ARGS=tests/ROOM` writes tests/goldens/messages/ROOM.json anew for the files that it
runs; what changed there is read before it is committed.
"""

import atexit
import contextlib
import json
import os
import re
import tempfile
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests import GOLDENS, ROOT

MESSAGES = GOLDENS / "messages"
WRITING = bool(os.environ.get("FASTATTN_WRITE_MESSAGES"))
# A folder of pytest's for one test, or of tempfile's.
TEMPORARY = re.compile(re.escape(tempfile.gettempdir()) + r"/(pytest-of-[^/]+/pytest-\d+/)?[^/\s'\":;,)]+")
seen: dict[str, list[str]] = {}


@contextlib.contextmanager
def refused(error: type[BaseException], *named: str, lines: int = 1) -> Iterator[pytest.ExceptionInfo]:
    """The block raises `error`, whose message has all that is `named` and is what the golden file has for this test.

    A test may refuse several times: its messages stand in their order. Paths within temporary folders begin with TMP.
    """
    with pytest.raises(error) as caught:
        yield caught
    message = str(caught.value)
    assert message.count("\n") < lines and [name for name in named if name not in message] == [], message
    check(message)


def check(message: str) -> None:
    """Compare a message with the next one that the golden file has for the running test."""
    test = os.environ["PYTEST_CURRENT_TEST"].rpartition(" ")[0]
    messages = seen.setdefault(test, [])
    messages.append(TEMPORARY.sub("TMP", message).replace(str(ROOT), "ROOT"))
    if not WRITING and os.name != "nt":
        expected = golden(room(test)).get(test, [])[: len(messages)]
        assert messages == expected, f"said {messages}, {room(test)}.json has {expected}"


def room(test: str) -> str:
    folder = Path(test.partition("::")[0]).parts[1]
    return folder.removesuffix(".py")


@cache
def golden(room: str) -> dict[str, list[str]]:
    path = MESSAGES / f"{room}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


@atexit.register
def write() -> None:
    """Replace the messages of all test files that refused something in this run."""
    if not WRITING:
        return
    files = Counter(test.partition("::")[0] for test in seen)
    for name in {room(test) for test in seen}:
        kept = {test: said for test, said in golden(name).items() if test.partition("::")[0] not in files}
        said = kept | {test: said for test, said in seen.items() if room(test) == name}
        MESSAGES.mkdir(exist_ok=True)
        text = json.dumps(dict(sorted(said.items())), indent=1, ensure_ascii=False)
        (MESSAGES / f"{name}.json").write_text(text + "\n", encoding="utf-8")
