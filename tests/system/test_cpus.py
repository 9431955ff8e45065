"""The CPUs that a process may really use, from files of the system that a test writes."""

import json
import os
from pathlib import Path

import pytest

from fastattn.system.cpus import Cpus, usable_cpus
from tests.children import run_child

OTHERS = """22 27 0:21 / /proc rw,relatime shared:5 - proc proc rw
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
"""
V2 = "30 23 0:26 {group} {folder} rw,nosuid shared:9 master:2 - cgroup2 cgroup2 rw,nsdelegate\n"
V1 = "32 31 0:29 {group} {folder} rw,relatime - cgroup cgroup rw,{controllers}\n"


def system(root: Path, mounts: str, groups: str, **files: str) -> Path:
    """A tree with /proc/self of these mounts and groups, and files by path from its root."""
    for path, text in {"proc/self/mountinfo": OTHERS + mounts, "proc/self/cgroup": groups, **files}.items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(os.fsencode(text))
    return root


def v2(root: Path, groups: str, mounted: str = "/", folder: str = "/sys/fs/cgroup", **files: str) -> Path:
    """A system of cgroup v2; files by path from the mount."""
    files = {folder[1:] + "/" + path: text for path, text in files.items()}
    return system(root, V2.format(group=mounted, folder=folder), groups, **files)


def v1(root: Path, groups: str, mounted: str = "/", **quotas: tuple[str, str]) -> Path:
    """A system of cgroup v1; (quota, period) by path from the mount, "." for the mount itself."""
    mounts = V1.format(group=mounted, folder="/sys/fs/cgroup/cpu,cpuacct", controllers="cpu,cpuacct")
    mounts += V1.format(group=mounted, folder="/sys/fs/cgroup/cpuset", controllers="cpuset")
    files = {
        f"sys/fs/cgroup/cpu,cpuacct/{path}/cpu.cfs_{name}_us": text + "\n"
        for path, texts in quotas.items()
        for name, text in zip(("quota", "period"), texts, strict=True)
    }
    return system(root, mounts, groups, **files)


@pytest.fixture(autouse=True)
def affinity(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight CPUs."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)), raising=False)


def found(root: Path) -> tuple[int, float | None, str]:
    """(threads, quota, the file it is from, from the root)."""
    cpus = usable_cpus(root)
    if cpus.quota is None:
        return cpus.threads, None, ""
    return cpus.threads, cpus.quota.cpus, cpus.quota.file.relative_to(root).as_posix()


NONE = (8, None, "")
MAX = "max 100000\n"


QUOTAS = [
    ("400000 100000\n", 4, 4.0),
    ("150000 100000\n", 2, 1.5),  # rounded up
    ("100001 100000\n", 2, 1.00001),
    ("1000 1000000\n", 1, 0.001),  # at least one
    ("50000 50000", 1, 1.0),
    ("6400000 100000\n", 8, 64.0),  # more than there are
    ("9223372036854775807 1\n", 8, 9223372036854775807.0),
]


def test_a_quota_of_version_2(tmp_path: Path) -> None:
    for limit, threads, quota in QUOTAS:
        v2(tmp_path, "0::/a\n", **{"a/cpu.max": limit})
        assert found(tmp_path) == (threads, quota, "sys/fs/cgroup/a/cpu.max")


@pytest.mark.parametrize(
    ("limits", "threads", "file"),
    [
        ({"a/b/c": "500000 100000", "a/b": MAX, "a": MAX}, 5, "a/b/c"),
        ({"a/b/c": "500000 100000", "a/b": "300000 100000", "a": MAX}, 3, "a/b"),
        ({"a/b/c": MAX, "a/b": MAX, "a": "100000 50000"}, 2, "a"),
        ({".": "600000 100000"}, 6, "."),
        ({"a/b/c": "500000 100000", "a/b/d": "100000 100000", "e": "100000 100000"}, 5, "a/b/c"),  # others' groups
    ],
)
def test_the_strictest_of_nested_groups(tmp_path: Path, limits: dict[str, str], threads: int, file: str) -> None:
    v2(tmp_path, "0::/a/b/c\n", **{f"{folder}/cpu.max": limit for folder, limit in limits.items()})
    count, _, path = found(tmp_path)
    assert (count, path) == (threads, (Path("sys/fs/cgroup") / file / "cpu.max").as_posix())


NAMESPACES = [
    ("/", "/", 3),  # a namespace of its own
    ("/docker/x", "/docker/x", 3),  # the host's namespace, its group mounted
    ("/docker/x", "/docker/x/inner", 2),
    ("/docker/x", "/docker/xy/inner", 3),  # beside what is mounted
    ("/docker/x", "/", 3),
    ("/docker/x", "/..", 3),
    ("/", "/../other", 3),
    ("/", "/inner/../../inner", 3),
    ("/", "/gone/since", 3),
    ("/..", "/", 3),
    ("/", "relative", 3),
]


def test_namespaces(tmp_path: Path) -> None:
    limits = {"cpu.max": "300000 100000", "inner/cpu.max": "200000 100000"}
    for mounted, group, threads in NAMESPACES:
        v2(tmp_path, f"0::{group}\n", mounted, **limits)
        (tmp_path / "sys/fs/cpu.max").write_text("100000 100000")  # above the mount: nobody's
        assert found(tmp_path)[0] == threads, (mounted, group)


def test_a_folder_with_a_space_and_odd_bytes(tmp_path: Path) -> None:
    files = {"mnt/c \udcff/a b/cpu.max": "200000 100000"}
    mounts = V2.format(group=r"/g\040h", folder=r"/mnt/c\040" + "\udcff")
    system(tmp_path, mounts, "0::/g h/a b\n", **files)
    assert found(tmp_path)[0] == 2


@pytest.mark.parametrize(
    ("group", "quotas", "expected"),
    [
        ("/", {".": ("150000", "100000")}, (2, 1.5, ".")),
        ("/", {".": ("-1", "100000")}, NONE),
        ("/a/b", {"a/b": ("-1", "100000"), "a": ("50000", "10000")}, (5, 5.0, "a")),
        ("/a/b", {"a/b": ("40000", "10000"), "a": ("50000", "10000")}, (4, 4.0, "a/b")),
        ("/a/b", {"a/b": ("40000", "0"), "a": ("0", "10000")}, NONE),
    ],
)
def test_a_quota_of_version_1(
    tmp_path: Path, group: str, quotas: dict[str, tuple[str, str]], expected: tuple[int, float | None, str]
) -> None:
    v1(tmp_path, f"9:name=systemd:/a\n3:cpuset:/z\n2:cpu,cpuacct:{group}\n", **quotas)
    threads, quota, folder = expected
    file = (Path("sys/fs/cgroup/cpu,cpuacct") / folder / "cpu.cfs_quota_us").as_posix() if folder else ""
    assert found(tmp_path) == (threads, quota, file)


def test_version_1_in_a_container_that_sees_the_path_of_the_host(tmp_path: Path) -> None:
    v1(tmp_path, "2:cpuacct,cpu:/docker/x\n", mounted="/docker/x", **{".": ("250000", "100000")})
    assert found(tmp_path)[:2] == (3, 2.5)


@pytest.mark.parametrize(
    ("old", "new", "threads"), [("200000", MAX, 2), ("-1", MAX, 8), ("200000", "100000 100000", 1)]
)
def test_hybrid_mounts(tmp_path: Path, old: str, new: str, threads: int) -> None:
    mounts = V1.format(group="/", folder="/sys/fs/cgroup/cpu", controllers="cpu")
    mounts += V2.format(group="/", folder="/sys/fs/cgroup/unified")
    files = {"cpu/a/cpu.cfs_quota_us": old, "cpu/a/cpu.cfs_period_us": "100000", "unified/b/cpu.max": new}
    system(tmp_path, mounts, "2:cpu:/a\n0::/b\n", **{f"sys/fs/cgroup/{path}": text for path, text in files.items()})
    assert found(tmp_path)[0] == threads


NO_LIMITS = ["", " ", "max", MAX, "200000", "200000 ", "200000 0", "0 100000", "-200000 100000", "2e5 1e5", "two one"]
NO_LIMITS += ["200000 100000 7 7", "200000\n100000\n", "2_0 1_0", "\u0662 1", "\0", "9" * 5000 + " 1"]
NO_LIMITS += ["1 " + "9" * 20, "\udcff\udcfe"]
HOSTILE = [
    ("", ""),
    ("", "0::/a\n"),
    (V2.format(group="/", folder="/sys/fs/cgroup"), ""),
    (V2.format(group="/", folder="/sys/fs/cgroup"), "\n:\n::\n0:\n0:cpu\n2:cpuset:/a\n1:cpu:/a\n\udcff"),
    (V2.format(group="/", folder="/sys/fs/cgroup"), "0::/a\0b\n"),
    (V2.format(group="/", folder="/sys/fs/cgroup"), "0::" + "/a" * 50_000),
    (V2.format(group="/", folder="/sys/fs/cgroup"), "0::/" + "a" * 5000),
    (" - cgroup2\n - cgroup\n- cgroup cpu\n30 23 0:26 / - cgroup2 cgroup2 rw\n", "0::/a\n1:cpu:/a\n"),
    (V2.format(group="", folder=""), "0::/a\n"),
    (V2.format(group=r"\777\000\9", folder=r"\000"), "0::/a\n"),
    ("\0" * 100_000, "\0" * 100_000),
]


def test_what_is_no_number_and_hostile_files_are_no_limit(tmp_path: Path) -> None:
    for limit in NO_LIMITS:
        v2(tmp_path, "0::/a\n", **{"a/cpu.max": limit})
        assert found(tmp_path) == NONE, limit
    (tmp_path / "sys/fs/cgroup/a/cpu.max").unlink()
    for mounts, groups in HOSTILE:
        system(tmp_path, mounts, groups)
        assert found(tmp_path) == NONE, groups[:99]


def test_folders_and_loops_in_place_of_files(tmp_path: Path) -> None:
    v2(tmp_path, "0::/a/b\n", **{"a/b/x": ""})
    (tmp_path / "sys/fs/cgroup/a/b/cpu.max").mkdir()
    (tmp_path / "sys/fs/cgroup/a/cpu.max").symlink_to("cpu.max")
    assert found(tmp_path) == NONE
    (tmp_path / "proc/self/cgroup").unlink()
    assert found(tmp_path) == NONE
    assert found(tmp_path / "nothing") == NONE


def test_files_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    v2(tmp_path, "0::/a\n", **{"a/cpu.max": "200000 100000", "cpu.max": "300000 100000"})
    usual = Path.open

    def refused(path: Path, *arguments: str) -> object:
        if path.parts[-2:] == ("a", "cpu.max"):
            raise PermissionError(13, "no")
        return usual(path, *arguments)

    monkeypatch.setattr(Path, "open", refused)
    assert found(tmp_path)[0] == 3


def test_a_system_without_affinity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert usable_cpus(tmp_path) == Cpus(1, None)


def test_the_real_system() -> None:
    assert 1 <= usable_cpus().threads <= 8


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
    quota = "time of 1.5 CPUs, by /sys/fs/cgroup/cpu.max"
    assert json.loads(run_child(CHILD, NUMBA_NUM_THREADS=None)) == [2, 2, 2, 2, quota, "2 by default"]
    told = "3 by default, by NUMBA_NUM_THREADS"
    assert json.loads(run_child(CHILD, NUMBA_NUM_THREADS="3")) == [3, 3, 3, 3, quota, told]
