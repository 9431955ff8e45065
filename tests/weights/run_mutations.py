"""Damages files one after the other and puts each to use; a process of its own, since a crash is what it looks for.

    python -m tests.weights.run_mutations FIRST COUNT   seeds FIRST .. FIRST + COUNT - 1
    python -m tests.weights.run_mutations SEED 1 DIR    one again, its files kept in DIR

A damaged file must load, and then work, or raise a FastattnError of one line, in SECONDS, and while it is loaded Python
and NumPy may hold at most GROWTH times the bytes of all its checkpoint's files (a package's as they unpack), plus FLOOR
(for objects that do not shrink with a file: tables of positions, Python's own). What lies outside Python's counting is
bounded by a limit on the process's memory. Every seed is announced before its turn: the last one printed is the one
that crashed.
"""

import contextlib
import faulthandler
import gc
import io
import shutil
import sys
import tempfile
import tracemalloc
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from fastattn.errors import FastattnError
from tests.weights.mutation_subjects import SUBJECTS, Subject
from tests.weights.mutators import Files
from tests.weights.run_hostile import limit_memory

GROWTH = 4
FLOOR = 1 << 20
SECONDS = 60
PROCESS_GROWTH = 1 << 30


def say(text: str, end: str = "\n") -> None:
    sys.stdout.write(text + end)
    sys.stdout.flush()


def write(files: Files, path: Path) -> int:
    """The bytes written, or that those of a zip archive unpack to."""
    size = 0
    for name, content in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(content)
        unpacked = 0
        with contextlib.suppress(Exception), zipfile.ZipFile(io.BytesIO(content)) as archive:
            unpacked = sum(len(archive.read(entry)) for entry in archive.infolist())
        size += max(len(content), unpacked * name.endswith(".argosmodel"))
    return size


def load(subject: Subject, path: Path) -> tuple[Any, str, int]:
    """What was loaded, the error's message or "", and the most bytes that Python and NumPy held meanwhile."""
    loaded, failure = None, ""
    gc.collect(0)
    tracemalloc.start()
    try:
        loaded = subject.load(path)
    except FastattnError as error:
        failure = str(error) or repr(error)
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    return loaded, failure, peak


def attempt(subject: Subject, path: Path, size: int) -> str:
    """ "loaded", or the error's message; raises AssertionError for too much memory or a message of several lines."""
    for _ in range(2):  # a table of the interpreter's own, such as that of interned strings, may grow the first time
        loaded, failure, peak = load(subject, path)
        if peak <= GROWTH * size + FLOOR:
            break
    else:
        raise AssertionError(f"{peak:,} bytes were allocated for {size:,} bytes of files")
    if not failure:
        try:
            # Weights of any size are sound data: what they overflow to is not looked at.
            with np.errstate(all="ignore"):
                subject.use(loaded)
        except FastattnError as error:
            failure = str(error) or repr(error)
    assert len(failure.splitlines()) <= 1, f"an error of several lines: {failure!r}"
    return failure or "loaded"


def check_sound(folder: Path) -> None:
    """The examples themselves load and work; this also compiles and imports whatever is needed."""
    for name, subject in SUBJECTS.items():
        write(subject.files, folder / name)
        subject.use(subject.load(folder / name))  # not to be measured
        shutil.rmtree(folder / name)
        size = write(subject.files, folder / name)
        outcome = attempt(subject, folder / name, size)
        assert outcome == "loaded", f"{name} is not sound: {outcome}"


def main() -> int:
    first, count = map(int, sys.argv[1:3])
    faulthandler.enable()
    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", "the checkpoint's own settings")  # damage may well name some
    loaded = faults = 0
    with tempfile.TemporaryDirectory() as folder:
        check_sound(Path(folder))
        limit_memory(PROCESS_GROWTH)
        for seed in range(first, first + count):
            # Consecutive seeds go round all subjects.
            name, subject = list(SUBJECTS.items())[seed % len(SUBJECTS)]
            files = subject.damaged(seed)
            assert files == subject.damaged(seed), f"seed {seed} gives {name} other damage when asked again"
            for kept in map(Path, sys.argv[3:]):
                write(files, kept)
            place = Path(folder) / "damaged"
            place.mkdir()
            size = write(files, place)
            say(f"seed {seed}: {name}: ", end="")
            faulthandler.dump_traceback_later(SECONDS, exit=True)
            try:
                outcome = attempt(subject, place, size)
                loaded += outcome == "loaded"
                say(ascii(outcome)[:200])
            except BaseException as error:  # whatever else comes is the fault that is looked for
                if isinstance(error, KeyboardInterrupt):
                    raise
                faults += 1
                say(f"FAULT {type(error).__name__}: {ascii(str(error))[:500]}")
                sys.excepthook(type(error), error, error.__traceback__)
            faulthandler.cancel_dump_traceback_later()
            shutil.rmtree(place)
    say(f"{count} damaged files, {loaded} loaded and worked, {faults} faults")
    return faults > 0


if __name__ == "__main__":
    sys.exit(main())
