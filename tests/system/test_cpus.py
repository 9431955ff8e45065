"""The CPUs that a process may really use, from files of the system that a test writes."""

import json
import os
import shutil
from pathlib import Path

import pytest

from fastattn.system.cpus import Cpus, usable_cpus
from tests.children import run_child

OTHERS = """22 27 0:21 / /proc rw,relatime shared:5 - proc proc rw
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
"""
GROUPS = "sys/fs/cgroup"
NONE = (8, None, "")
MAX = "max 100000\n"


def v2(group: str = "/", folder: str = f"/{GROUPS}") -> str:
    return f"30 23 0:26 {group} {folder} rw,nosuid shared:9 master:2 - cgroup2 cgroup2 rw,nsdelegate\n"


def v1(group: str = "/") -> str:
    mounts = ((group, "cpu,cpuacct"), ("/", "cpuset"))
    line = f"32 31 0:29 {{}} /{GROUPS}/{{}} rw,relatime - cgroup cgroup rw,{{}}\n"
    return "".join(line.format(group, controllers, controllers) for group, controllers in mounts)


@pytest.fixture(autouse=True)
def affinity(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight CPUs."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)), raising=False)


def write(root: Path, mounts: str, groups: str, files: dict[str, str]) -> None:
    """A tree with /proc/self of these mounts and groups, and files by path from the folder of groups."""
    shutil.rmtree(root, ignore_errors=True)
    given = {"proc/self/mountinfo": OTHERS + mounts, "proc/self/cgroup": groups}
    for path, text in (given | {f"{GROUPS}/{path}": text for path, text in files.items()}).items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(os.fsencode(text))


def found(root: Path) -> tuple[int, float | None, str]:
    """(threads, quota, the file it is from, from the folder of groups)."""
    cpus = usable_cpus(root)
    if cpus.quota is None:
        return cpus.threads, None, ""
    return cpus.threads, cpus.quota.cpus, cpus.quota.file.relative_to(root / GROUPS).as_posix()


QUOTAS = [
    ("400000 100000\n", 4, 4.0),
    ("150000 100000\n", 2, 1.5),  # rounded up
    ("1000 1000000\n", 1, 0.001),  # at least one
    ("6400000 100000\n", 8, 64.0),  # more than there are
    ("9223372036854775807 1\n", 8, 9223372036854775807.0),
]
NESTED = [
    ({"a/b/c": "500000 100000", "a/b": "300000 100000", "a": MAX}, 3, "a/b"),
    ({"a/b/c": MAX, "a/b": MAX, "a": "100000 50000"}, 2, "a"),
    ({".": "600000 100000"}, 6, "."),
    ({"a/b/c": "500000 100000", "a/b/d": "100000 100000", "e": "100000 100000"}, 5, "a/b/c"),  # others' groups
]


def test_the_strictest_of_nested_groups_of_version_2(tmp_path: Path) -> None:
    for limit, threads, quota in QUOTAS:
        write(tmp_path, v2(), "0::/a\n", {"a/cpu.max": limit})
        assert found(tmp_path) == (threads, quota, "a/cpu.max")
    for limits, threads, folder in NESTED:
        write(tmp_path, v2(), "0::/a/b/c\n", {f"{folder}/cpu.max": limit for folder, limit in limits.items()})
        assert found(tmp_path)[::2] == (threads, Path(folder, "cpu.max").as_posix())


NAMESPACES = [
    ("/", "/", 3),  # a namespace of its own
    ("/docker/x", "/docker/x", 3),  # the host's namespace, its group mounted
    ("/docker/x", "/docker/x/inner", 2),
    ("/docker/x", "/docker/xy/inner", 3),  # beside what is mounted
    ("/docker/x", "/", 3),
    ("/", "/../other", 3),
    ("/", "/gone/since", 3),
    ("/", "relative", 3),
]


def test_namespaces(tmp_path: Path) -> None:
    limits = {"cpu.max": "300000 100000", "inner/cpu.max": "200000 100000"}
    limits["../cpu.max"] = "100000 100000"  # above the mount: nobody's
    for mounted, group, threads in NAMESPACES:
        write(tmp_path, v2(mounted), f"0::{group}\n", limits)
        assert found(tmp_path)[0] == threads, (mounted, group)
    odd = v2(r"/g\040h", rf"/{GROUPS}/c\040" + "\udcff")
    write(tmp_path, odd, "0::/g h/a b\n", {"c \udcff/a b/cpu.max": "200000 100000"})
    assert found(tmp_path)[0] == 2


QUOTAS_1 = [
    ("/", "/", {".": ("150000", "100000")}, (2, 1.5, ".")),
    ("/", "/", {".": ("-1", "100000")}, NONE),
    ("/", "/a/b", {"a/b": ("-1", "100000"), "a": ("50000", "10000")}, (5, 5.0, "a")),
    ("/", "/a/b", {"a/b": ("40000", "10000"), "a": ("50000", "10000")}, (4, 4.0, "a/b")),
    ("/", "/a/b", {"a/b": ("40000", "0"), "a": ("0", "10000")}, NONE),
    ("/docker/x", "/docker/x", {".": ("250000", "100000")}, (3, 2.5, ".")),  # in a container, the path of the host
]


def test_version_1(tmp_path: Path) -> None:
    for mounted, group, quotas, (threads, quota, folder) in QUOTAS_1:
        files = {
            f"cpu,cpuacct/{path}/cpu.cfs_{name}_us": text + "\n"
            for path, texts in quotas.items()
            for name, text in zip(("quota", "period"), texts, strict=True)
        }
        write(tmp_path, v1(mounted), f"9:name=systemd:/a\n3:cpuset:/z\n2:cpu,cpuacct:{group}\n", files)
        file = Path("cpu,cpuacct", folder, "cpu.cfs_quota_us").as_posix() if folder else ""
        assert found(tmp_path) == (threads, quota, file)


def test_hybrid_mounts(tmp_path: Path) -> None:
    mounts = v1() + v2(folder=f"/{GROUPS}/unified")
    for old, new, threads in (("200000", MAX, 2), ("-1", MAX, 8), ("200000", "100000 100000", 1)):
        files = {"a/cpu.cfs_quota_us": old, "a/cpu.cfs_period_us": "100000"}
        files = {f"cpu,cpuacct/{path}": text for path, text in files.items()} | {"unified/b/cpu.max": new}
        write(tmp_path, mounts, "2:cpuacct,cpu:/a\n0::/b\n", files)
        assert found(tmp_path)[0] == threads


NO_LIMITS = ["", " ", "max", MAX, "200000", "200000 ", "200000 0", "0 100000", "-200000 100000", "2e5 1e5", "two one"]
NO_LIMITS += ["200000 100000 7 7", "200000\n100000\n", "2_0 1_0", "\u0662 1", "\0", "9" * 5000 + " 1"]
NO_LIMITS += ["1 " + "9" * 20, "\udcff\udcfe"]
HOSTILE = [
    ("", ""),
    ("", "0::/a\n"),
    (v2(), ""),
    (v2(), "\n:\n::\n0:\n0:cpu\n2:cpuset:/a\n1:cpu:/a\n\udcff"),
    (v2(), "0::/a\0b\n"),
    (v2(), "0::" + "/a" * 50_000),
    (v2(), "0::/" + "a" * 5000),
    (" - cgroup2\n - cgroup\n- cgroup cpu\n30 23 0:26 / - cgroup2 cgroup2 rw\n", "0::/a\n1:cpu:/a\n"),
    (v2("", ""), "0::/a\n"),
    (v2(r"\777\000\9", r"\000"), "0::/a\n"),
    ("\0" * 100_000, "\0" * 100_000),
]


def test_what_is_no_number_and_hostile_files_are_no_limit(tmp_path: Path) -> None:
    for limit in NO_LIMITS:
        write(tmp_path, v2(), "0::/a\n", {"a/cpu.max": limit})
        assert found(tmp_path) == NONE, limit
    for mounts, groups in HOSTILE:
        write(tmp_path, mounts, groups, {})
        assert found(tmp_path) == NONE, groups[:99]
    write(tmp_path, v2(), "0::/a/b\n", {"a/b/cpu.max/in a folder": ""})
    (tmp_path / GROUPS / "a/cpu.max").symlink_to("cpu.max")
    assert found(tmp_path) == NONE
    assert found(tmp_path / "nothing") == NONE


def test_a_system_without_affinity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert 1 <= usable_cpus().threads <= 8, "the real system"
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert usable_cpus(tmp_path) == Cpus(1, None)


CHILD = """
import json, os, sys
from pathlib import Path
import fastattn.system.cpus
from fastattn.system.cpus import Cpus, Quota

os.sched_getaffinity = lambda process: {0, 1, 2, 3}
fastattn.system.cpus.usable_cpus = lambda: Cpus(4, Quota(150_000, 100_000, Path("/sys/fs/cgroup/cpu.max")))
import fastattn
from fastattn.ops import cpu as operations
from fastattn.cli.inspect import machine_facts

facts = dict(machine_facts())
limits = []
for threading in ("pool", "numba"):
    fastattn.set_threading(threading)
    limits.append(operations.thread_limit())
    with fastattn.use_threads(64):
        limits.append(operations.current_threads())
json.dump([*limits, facts["quota"], facts["threads"]], sys.stdout)
"""


def test_threads_follow_the_quota_unless_numba_is_told_otherwise() -> None:
    for variable, count, told in ((None, 2, "2 by default"), ("3", 3, "3 by default, by NUMBA_NUM_THREADS")):
        expected = [count] * 4 + ["time of 1.5 CPUs, by /sys/fs/cgroup/cpu.max", told]
        assert json.loads(run_child(CHILD, NUMBA_NUM_THREADS=variable)) == expected
