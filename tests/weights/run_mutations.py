"""Damages files one after the other and puts each to use; a process of its own, since a crash is what it looks for.

    python -m tests.weights.run_mutations FIRST COUNT        seeds FIRST .. FIRST + COUNT - 1
    python -m tests.weights.run_mutations SEED 1 --keep DIR  one again, its files kept in DIR

A damaged file must load, and then work, or raise a FastattnError of one line, in SECONDS, and while it is loaded Python
and NumPy may hold at most GROWTH times the bytes of all its checkpoint's files (a package's as they unpack), plus FLOOR
(for objects that do not shrink with a file: tables of positions, Python's own). What lies outside Python's counting is
bounded by a limit on the process's memory. Every seed is announced before its turn: the last one printed is the one
that crashed.
"""

import argparse
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

GROWTH = 4
FLOOR = 1 << 20
SECONDS = 60
PROCESS_GROWTH = 1 << 30


class Fault(Exception):
    """What must not be."""


def say(text: str, end: str = "\n") -> None:
    sys.stdout.write(text + end)
    sys.stdout.flush()


def write(files: Files, path: Path) -> int:
    """The bytes written, or that those of a zip archive unpack to."""
    for name, content in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(content)
    return sum(
        len(content) if not name.endswith(".argosmodel") else unpacked(content) for name, content in files.items()
    )


def unpacked(data: bytes) -> int:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return max(len(data), sum(len(archive.read(entry)) for entry in archive.infolist()))
    except Exception:  # noqa: BLE001  whatever is wrong with it
        return len(data)


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
    """ "loaded", or the error's message; raises Fault for too much memory or a message of several lines."""
    most = GROWTH * size + FLOOR
    loaded, failure, peak = load(subject, path)
    if peak > most:  # a table of the interpreter's own, such as that of interned strings, may have grown meanwhile
        loaded, failure, peak = load(subject, path)
    if peak > most:
        raise Fault(f"{peak:,} bytes were allocated for {size:,} bytes of files")
    if not failure:
        try:
            # Weights of any size are sound data: what they overflow to is not looked at.
            with np.errstate(all="ignore"):
                subject.use(loaded)
        except FastattnError as error:
            failure = str(error) or repr(error)
    if len(failure.splitlines()) > 1:
        raise Fault(f"an error of several lines: {failure!r}")
    return failure or "loaded"


def check_sound(path: Path) -> None:
    """The examples themselves load and work; this also compiles and imports whatever is needed."""
    for name, subject in SUBJECTS.items():
        place = path / name
        outcome = attempt_sound(subject, place)
        if outcome != "loaded":
            raise Fault(f"{name} is not sound: {outcome}")


def attempt_sound(subject: Subject, place: Path) -> str:
    size = write(subject.files, place)
    try:
        subject.use(subject.load(place))  # compiles: not to be measured
        shutil.rmtree(place)
        write(subject.files, place)
        return attempt(subject, place, size)
    except FastattnError as error:
        return str(error)


def limit_memory() -> None:
    """Have the system refuse what would take much more memory than the process has now, whoever asks."""
    with contextlib.suppress(ImportError, OSError, ValueError):  # not Linux
        import resource

        pages = int(Path("/proc/self/statm").read_text().split()[5])
        most = pages * resource.getpagesize() + PROCESS_GROWTH
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("first", type=int)
    parser.add_argument("count", type=int)
    parser.add_argument("--keep", type=Path, metavar="DIR")
    options = parser.parse_args()
    faulthandler.enable()
    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", "the checkpoint's own settings")  # damage may well name some
    loaded = faults = 0
    with tempfile.TemporaryDirectory() as folder:
        check_sound(Path(folder))
        limit_memory()
        names = list(SUBJECTS)
        for seed in range(options.first, options.first + options.count):
            # Consecutive seeds go round all subjects.
            name = names[seed % len(names)]
            files = SUBJECTS[name].damaged(seed)
            if files != SUBJECTS[name].damaged(seed):
                raise Fault(f"seed {seed} gives {name} other damage when asked again")
            if options.keep:
                write(files, options.keep)
            place = Path(folder) / "damaged"
            place.mkdir()
            size = write(files, place)
            say(f"seed {seed}: {name}: ", end="")
            faulthandler.dump_traceback_later(SECONDS, exit=True)
            try:
                outcome = attempt(SUBJECTS[name], place, size)
                loaded += outcome == "loaded"
                say(ascii(outcome)[:200])
            except BaseException as error:  # whatever else comes is the fault that is looked for
                if isinstance(error, KeyboardInterrupt):
                    raise
                faults += 1
                say(f"FAULT {type(error).__name__}: {ascii(str(error))[:500]}")
                if not isinstance(error, Fault):
                    sys.excepthook(type(error), error, error.__traceback__)
            faulthandler.cancel_dump_traceback_later()
            shutil.rmtree(place)
    say(f"{options.count} damaged files, {loaded} loaded and worked, {faults} faults")
    return faults > 0


if __name__ == "__main__":
    sys.exit(main())
