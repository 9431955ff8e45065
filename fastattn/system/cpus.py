"""How many CPUs this process may use: the CPUs that it may run on, or fewer where a control group limits their time.

A container has a quota of CPU time, not fewer CPUs. Once the quota is spent, the system stops all threads until the
next period, so that more threads than the quota allows are slower than as many as it allows.

The files are those of Linux: proc(5) and cgroups(7); cpu.max is in the kernel's admin-guide/cgroup-v2, the two files of
version 1 in scheduler/sched-bwc.
"""

import functools
import math
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_PATH_BYTES = 4096  # Linux has no longer path
_MOST_BYTES = 1 << 20  # read of a file
_ESCAPED = re.compile(rb"\\([0-7]{3})")  # a byte in a path of mountinfo


class Quota(NamedTuple):
    """The CPU time in microseconds that a control group may use in each period, and the file that says so."""

    microseconds: int
    period: int
    file: Path

    @property
    def cpus(self) -> float:
        return self.microseconds / self.period


class Cpus(NamedTuple):
    """affinity: the number of CPUs that this process may run on; quota: the strictest of its groups, None for none."""

    affinity: int
    quota: Quota | None

    @property
    def threads(self) -> int:
        """How many threads can run at once: the quota is rounded up."""
        return self.affinity if self.quota is None else max(1, min(self.affinity, math.ceil(self.quota.cpus)))


@functools.cache
def default_threads() -> int:
    """How many threads this process may use: NUMBA_NUM_THREADS, by default one for each usable CPU. Read once."""
    setting = os.environ.get("NUMBA_NUM_THREADS")
    return usable_cpus().threads if setting is None else int(setting)


def can_start_python() -> bool:
    """Whether sys.executable is Python, not a frozen or embedding program, which would run itself once more."""
    return not getattr(sys, "frozen", False) and Path(sys.executable or "").stem.startswith("python")


def usable_cpus(root: Path = Path("/")) -> Cpus:
    """The CPUs of this process, by the system's files below ``root``. A file that cannot be read sets no limit."""
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return Cpus(affinity, min(_quotas(root), key=lambda quota: quota.cpus, default=None))


def _quotas(root: Path) -> Iterator[Quota]:
    """Yield the limits of the process's own groups and of all above them."""
    mounts = _mounts(_read(root / "proc/self/mountinfo"))
    for version, path in _groups(_read(root / "proc/self/cgroup")):
        for folder in _folders([mount for mount in mounts if mount.version == version], path):
            below = root.joinpath(*folder.parts[1:])
            if version == 2:  # "max" or microseconds, then the period
                file = below / "cpu.max"
                limit, _, period = _read(file).strip().partition(b" ")
            else:  # microseconds, -1 for no limit
                file = below / "cpu.cfs_quota_us"
                limit, period = _read(file).strip(), _read(below / "cpu.cfs_period_us").strip()
            # Numbers above 0, of digits that 64 bits may have.
            if all(text.isdigit() and len(text) < 20 and int(text) for text in (limit, period)):
                yield Quota(int(limit), int(period), file)


class _Mount(NamedTuple):
    """A mounted hierarchy: the group that is mounted, as this process sees it, and the folder where it is."""

    version: int
    group: Path
    folder: Path


def _mounts(mountinfo: bytes) -> list[_Mount]:
    """The mounted hierarchies that may have quotas."""
    mounts = []
    for line in mountinfo.splitlines():
        fields, _, kind = line.partition(b" - cgroup")
        names, version = fields.split(b" "), 2 if kind.startswith(b"2 ") else 1
        if len(names) >= 5 and (version == 2 or b"cpu" in kind.rpartition(b" ")[2].split(b",")):
            paths = (_ESCAPED.sub(lambda escape: bytes([int(escape[1], 8) & 255]), name) for name in names[3:5])
            mounts.append(_Mount(version, *map(_path, paths)))
    return mounts


def _groups(cgroup: bytes) -> Iterator[tuple[int, Path]]:
    """Yield (version, path of the process's group) for each hierarchy that may have quotas."""
    for line in cgroup.splitlines():
        number, controllers, path = (line.split(b":", 2) + [b"", b""])[:3]
        if number == b"0" and not controllers:
            yield 2, _path(path)
        elif b"cpu" in controllers.split(b","):
            yield 1, _path(path)


def _folders(mounts: list[_Mount], group: Path) -> list[Path]:
    """The mounted folders of a group and of the groups above it.

    The path of a group of another namespace is not below the mount: then the mount itself is the nearest known folder.
    """
    for mount in mounts:
        if ".." not in group.parts and group.is_relative_to(mount.group):
            below = mount.folder / group.relative_to(mount.group)
            return [below, *list(below.parents)[: len(below.parts) - len(mount.folder.parts)]]
    return [mount.folder for mount in mounts[:1]]


def _path(text: bytes) -> Path:
    return Path(os.fsdecode(text[:_PATH_BYTES]))


def _read(file: Path) -> bytes:
    """The beginning of a file; b"" for none that can be read."""
    try:
        with file.open("rb") as stream:
            return stream.read(_MOST_BYTES)
    except (OSError, ValueError):  # a name may hold a zero byte
        return b""
