"""How many CPUs this process may use: the CPUs that it may run on, or fewer where a control group limits CPU time.

A container has a quota of CPU time, not fewer CPUs. Once the quota is spent, the system stops all threads until the
next period, so that more threads than the quota allows take longer than exactly as many as it allows.

proc(5) and cgroups(7) describe the files of Linux that are read here; cpu.max is described in the kernel's
admin-guide/cgroup-v2, the two files of version 1 in scheduler/sched-bwc.
"""

import functools
import math
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_MAX_PATH_BYTES = 4096  # Linux has no longer path
_MAX_FILE_BYTES = 1 << 20  # how much of a file is read
_ESCAPE = re.compile(rb"\\([0-7]{3})")  # of a byte in a path of mountinfo


class Quota(NamedTuple):
    """The CPU time in microseconds that a control group may use in each period, and the file with that limit."""

    microseconds: int
    period: int
    file: Path

    @property
    def cpus(self) -> float:
        return self.microseconds / self.period


class Cpus(NamedTuple):
    """``affinity``: how many CPUs this process may run on; ``quota``: the strictest of its groups, None without any."""

    affinity: int
    quota: Quota | None

    @property
    def threads(self) -> int:
        """How many threads can run at once: the quota is rounded up."""
        return self.affinity if self.quota is None else max(1, min(self.affinity, math.ceil(self.quota.cpus)))


@functools.cache
def default_threads() -> int:
    """How many threads this process may use: NUMBA_NUM_THREADS, else one for each usable CPU. Read once."""
    setting = os.environ.get("NUMBA_NUM_THREADS")
    return usable_cpus().threads if setting is None else int(setting)


def can_start_python() -> bool:
    """Whether sys.executable is Python: a frozen or embedding program would start itself once more."""
    return not getattr(sys, "frozen", False) and Path(sys.executable or "").stem.startswith("python")


def usable_cpus(root: Path = Path("/")) -> Cpus:
    """The CPUs of this process, by the system's files below ``root``; a file that cannot be read sets no limit."""
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return Cpus(affinity, min(_quotas(root), key=lambda quota: quota.cpus, default=None))


def _quotas(root: Path) -> Iterator[Quota]:
    """Yield the quotas of the process's own groups and of all groups above them."""
    mounts = _mounts(_read(root / "proc/self/mountinfo"))
    for version, path in _groups(_read(root / "proc/self/cgroup")):
        for folder in _folders([mount for mount in mounts if mount.version == version], path):
            group_folder = root.joinpath(*folder.parts[1:])
            if version == 2:  # "max" or microseconds, then the period
                file = group_folder / "cpu.max"
                limit, _, period = _read(file).strip().partition(b" ")
            else:  # microseconds, -1 for no limit
                file = group_folder / "cpu.cfs_quota_us"
                limit, period = _read(file).strip(), _read(group_folder / "cpu.cfs_period_us").strip()
            # Both are numbers above 0 that fit in 64 bits.
            if all(text.isdigit() and len(text) < 20 and int(text) for text in (limit, period)):
                yield Quota(int(limit), int(period), file)


class _Mount(NamedTuple):
    """A mounted hierarchy of groups: its version, the group at its top as this process sees it, and its folder."""

    version: int
    group: Path
    folder: Path


def _mounts(mountinfo: bytes) -> list[_Mount]:
    """The mounted hierarchies that may have quotas."""
    mounts = []
    for line in mountinfo.splitlines():
        mount, _, hierarchy = line.partition(b" - cgroup")
        fields, version = mount.split(b" "), 2 if hierarchy.startswith(b"2 ") else 1
        if len(fields) >= 5 and (version == 2 or b"cpu" in hierarchy.rpartition(b" ")[2].split(b",")):
            paths = (_ESCAPE.sub(lambda escape: bytes([int(escape[1], 8) & 255]), name) for name in fields[3:5])
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

    A group of another namespace has no path below a mount: then the first mount is the nearest folder.
    """
    for mount in mounts:
        if ".." not in group.parts and group.is_relative_to(mount.group):
            folder = mount.folder / group.relative_to(mount.group)
            return [folder, *list(folder.parents)[: len(folder.parts) - len(mount.folder.parts)]]
    return [mount.folder for mount in mounts[:1]]


def _path(text: bytes) -> Path:
    return Path(os.fsdecode(text[:_MAX_PATH_BYTES]))


def _read(file: Path) -> bytes:
    """The beginning of a file; b"" if it cannot be read."""
    try:
        with file.open("rb") as stream:
            return stream.read(_MAX_FILE_BYTES)
    except (OSError, ValueError):  # a name may hold a zero byte
        return b""
