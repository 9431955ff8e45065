"""Runs the tests as other machines would: a line for each, and exit status 1 where any fails.

    python tests/clone/run_everywhere.py                            every machine, one after the other
    python tests/clone/run_everywhere.py avx2 german                these
    python tests/clone/run_everywhere.py avx2 -- tests/runtime  what follows -- goes to pytest

A machine is an environment, a command that changes what the process may do, another Python, or an emulated CPU.
Before the tests a probe, a Python expression, says whether the process is where it should be: a limit that does not
limit is a failure. What this system cannot be made into is skipped, with the reason. Each machine has a folder of its
own for its output and its cache; compiled kernels, kept by CPU and Python, and pulled checkpoints are shared.
"""

import argparse
import locale
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import llvmlite.binding as llvm
from arm_system import Unavailable, arm_system

from fastattn.system.cache_folder import cache_root

ROOT = Path(__file__).resolve().parents[2]
USUAL = ROOT / "build" / "everywhere"
# Run by an interpreter that then becomes the tests': argument 1 and those after it are their command.
ONE_CPU = "import os, sys; os.sched_setaffinity(0, [min(os.sched_getaffinity(0))]); os.execv(sys.argv[1], sys.argv[1:])"
LOOPBACK = """
import fcntl, os, socket, struct, sys
up, SIOCSIFFLAGS = 1, 0x8914
fcntl.ioctl(socket.socket(), SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", up))  # the tests' own servers
os.execv(sys.argv[1], sys.argv[1:])
"""


@dataclass
class Machine:
    """Where the tests run.

    probe        a Python expression, true there; it may use os, sys, locale, socket, operations and TARGET.
    environment  variables to set, or with None to remove.
    prefix       a command that runs the command which follows it.
    checkpoints  whether pulled checkpoints are there.
    tests        what is run where nothing is asked for; none: all.
    """

    probe: str
    environment: dict[str, str | None] = field(default_factory=dict)
    prefix: list[str] = field(default_factory=list)
    python: str = sys.executable
    checkpoints: bool = True
    tests: list[str] = field(default_factory=list)


def one_cpu(folder: Path) -> Machine:
    if not hasattr(os, "sched_setaffinity"):
        raise Unavailable("this system does not tie a process to a CPU")
    return Machine("operations.thread_limit() == 1", prefix=[sys.executable, "-c", ONE_CPU])


def threads(count: int) -> Machine:
    return Machine(f"operations.thread_limit() == {count}", {"NUMBA_NUM_THREADS": str(count)})


def x86(target: str, cpu: str, features: str) -> Machine:
    if platform.machine() not in ("x86_64", "AMD64"):
        raise Unavailable(f"the instructions are those of x86-64; this is {platform.machine()}")
    return Machine(f"TARGET.name == {target!r}", {"NUMBA_CPU_NAME": cpu, "NUMBA_CPU_FEATURES": features})


def avx_vnni(folder: Path) -> Machine:
    if not llvm.get_host_cpu_features().get("avxvnni"):
        raise Unavailable("this CPU has no AVX-VNNI")
    place = x86("avx2", "alderlake", f"{AVX2},+avxvnni")
    place.probe += " and TARGET.int8 == 'vnni'"
    return place


def arm(folder: Path, int8: str, cpu: str, emulated: str) -> Machine:
    """Kernels compiled for LLVM's ``cpu``, run by qemu's ``emulated`` one, which tells no program what it is.

    Tests are those of compiled code alone, and none that starts another Python, which would not be emulated.
    """
    system = arm_system(folder.parent / "aarch64", ROOT)
    variables = {
        "NUMBA_CPU_NAME": cpu,
        "NUMBA_CPU_FEATURES": "+neon",
        "PYTHONPATH": os.pathsep.join((system.site, str(ROOT))),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    probe = f"(TARGET.name, TARGET.int8) == ('neon', {int8!r})"
    prefix = [*system.emulator, "-cpu", emulated]
    return Machine(probe, variables, prefix, system.python, tests=["tests/simd", "tests/kernels"])


def no_network(folder: Path) -> Machine:
    for user in ([], ["--map-root-user"]):
        prefix = ["unshare", *user, "--net", sys.executable, "-c", LOOPBACK]
        if works([*prefix, shutil.which("true") or "true"]):
            return Machine("socket.if_nameindex() == [(1, 'lo')]", prefix=prefix, checkpoints=False)
    nowhere = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9")
    local = {"no_proxy": "localhost,127.0.0.1,::1", "PIP_NO_INDEX": "1", "HF_HUB_OFFLINE": "1"}
    return Machine("os.environ['PIP_NO_INDEX']", {**nowhere, **local}, checkpoints=False)


def read_only_home(folder: Path) -> Machine:
    if not hasattr(os, "geteuid"):
        raise Unavailable("this system's folders have no modes")
    home = folder / "home"
    home.mkdir(exist_ok=True)
    home.chmod(0o555)
    prefix = [] if os.geteuid() else ["unshare", "--user", "--map-user=1000", "--map-group=1000"]
    if prefix and not works([*prefix, "true"]):
        raise Unavailable("root may write anywhere, and here cannot become another user")
    away = dict.fromkeys(("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"), None)
    probe = "os.geteuid() and not os.access(os.path.expanduser('~'), os.W_OK)"
    return Machine(probe, {"HOME": str(home), **away}, prefix)


def german(folder: Path) -> Machine:
    before = locale.setlocale(locale.LC_ALL)
    try:
        locale.setlocale(locale.LC_ALL, "de_DE.UTF-8")
    except locale.Error:
        raise Unavailable("there is no locale de_DE.UTF-8; localedef -i de_DE -f UTF-8 de_DE.UTF-8 makes it") from None
    finally:
        locale.setlocale(locale.LC_ALL, before)
    probe = "locale.setlocale(locale.LC_ALL, '') and locale.localeconv()['decimal_point'] == ','"
    return Machine(probe, {"LANG": "de_DE.UTF-8", "LC_ALL": "de_DE.UTF-8", "LANGUAGE": "de"})


def c_locale(folder: Path) -> Machine:
    ascii_only = {"LANG": "C", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": None}
    return Machine("locale.getpreferredencoding(False) in ('ANSI_X3.4-1968', 'US-ASCII')", ascii_only)


def installed(folder: Path, choose: Callable) -> Machine:
    """fastattn and what its tests need in a virtual environment of one of the Pythons at hand."""
    root = os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv"
    found = [sys.executable, *map(str, Path(root).glob("versions/3.*/bin/python3"))]
    found += [path for minor in range(10, 30) if (path := shutil.which(f"python3.{minor}"))]
    versions: dict[tuple[int, ...], str] = {}
    for path in found:
        done = subprocess.run([path, "-c", "import sys; print(*sys.version_info[:2])"], capture_output=True, text=True)
        version = tuple(map(int, done.stdout.split()))
        if done.returncode == 0 and version >= (3, 10):
            versions.setdefault(version, path)
    wanted = choose(versions)
    python = folder / "venv" / ("Scripts" if os.name == "nt" else "bin") / "python"
    if not works([str(python), "-c", f"import sys; assert sys.version_info[:2] == {wanted}"]):
        subprocess.run([versions[wanted], "-m", "venv", "--clear", folder / "venv"], check=True)
    pip = [python, "-m", "pip", "install", "--quiet", "--quiet", "--disable-pip-version-check", "-e", f"{ROOT}[test]"]
    subprocess.run(pip, check=True)
    return Machine(f"sys.version_info[:2] == {wanted}", python=str(python))


AVX2 = "+avx2,+fma,+avx,+f16c,+bmi,+bmi2,+lzcnt,+popcnt,+movbe,+sse4.2,+sse4.1,+ssse3,+sse3"
SSE = "+sse,+sse2,+cx8,+mmx,+fxsr,+64bit"
# Name -> (what it is, the machine of its own folder).
MACHINES: dict[str, tuple[str, Callable[[Path], Machine]]] = {
    "one-cpu": ("The process may run on one CPU.", one_cpu),
    "one-thread": ("NUMBA_NUM_THREADS is 1.", lambda folder: threads(1)),
    "many-threads": ("NUMBA_NUM_THREADS is 64, whatever there are.", lambda folder: threads(64)),
    "avx2": ("An x86-64 CPU without AVX-512.", lambda folder: x86("avx2", "haswell", AVX2)),
    "avx-vnni": ("One whose 256-bit vectors have dot products of int8.", avx_vnni),
    "sse": ("The oldest x86-64 CPU.", lambda folder: x86("sse", "x86-64", SSE)),
    "neon": ("The oldest aarch64 CPU, emulated.", partial(arm, int8="smlal", cpu="cortex-a57", emulated="cortex-a57")),
    "neon-dot": (
        "An aarch64 CPU with dot products of int8, emulated.",
        partial(arm, int8="sdot", cpu="neoverse-n1", emulated="neoverse-n1"),
    ),
    "neon-matrix": (
        "An aarch64 CPU with matrix products of int8 and of bfloat16, emulated.",
        partial(arm, int8="smmla", cpu="neoverse-v1", emulated="max"),
    ),
    "no-network": ("No network, and no checkpoint pulled before.", no_network),
    "read-only-home": ("A user who is not root and whose home cannot be written.", read_only_home),
    "german": ("The locale de_DE.UTF-8.", german),
    "c-locale": ("The locale C without Python's own UTF-8: names are ASCII unless the code says more.", c_locale),
    "oldest-python": ("The oldest Python at hand that fastattn runs on.", partial(installed, choose=min)),
    "newest-python": ("The newest Python at hand.", partial(installed, choose=max)),
}


def works(command: list[str]) -> bool:
    try:
        return subprocess.run(command, capture_output=True).returncode == 0
    except OSError:
        return False


def make_cache(folder: Path, checkpoints: bool) -> Path:
    """An empty cache but for what is shared."""
    cache = folder / "cache"
    shutil.rmtree(cache, ignore_errors=True)
    cache.mkdir()
    shared = {"kernels": folder.parent / "kernels"}
    if checkpoints:
        shared["checkpoints"] = cache_root().absolute() / "checkpoints"
    for name, target in shared.items():
        target.mkdir(parents=True, exist_ok=True)
        (cache / name).symlink_to(target, target_is_directory=True)
    return cache


def run(name: str, folder: Path, arguments: list[str]) -> tuple[str, str]:
    """("PASS", "FAIL" or "SKIP", what there is to say)."""
    folder.mkdir(parents=True, exist_ok=True)
    output = folder / "output.txt"
    start = time.monotonic()
    try:
        place = MACHINES[name][1](folder)
    except Unavailable as reason:
        return "SKIP", str(reason)
    except (OSError, subprocess.CalledProcessError) as error:
        return "FAIL", f"cannot be set up: {error}"
    environment = {**os.environ, **place.environment, "FASTATTN_CACHE": str(make_cache(folder, place.checkpoints))}
    given = {name: value for name, value in environment.items() if value is not None}
    probe = "import locale, os, socket, sys; from fastattn.ops import cpu as operations; "
    probe += "from fastattn.simd.target import TARGET; "
    probe += f"assert {place.probe}"
    tests = ["-m", "pytest", "--color=no", "-p", "no:cacheprovider", *(arguments or place.tests)]
    with output.open("w", encoding="utf-8") as file:
        for command in (["-c", probe], tests):
            whole = [*place.prefix, place.python, *command]
            done = subprocess.run(whole, cwd=ROOT, env=given, stdout=file, stderr=subprocess.STDOUT)
            if done.returncode:
                break
    lines = output.read_text(encoding="utf-8", errors="replace").splitlines()
    counts = re.sub(r" in [\d.]+s.*|[=]", "", lines[-1]).strip() if lines else "no output"
    said = f"{counts}, {time.monotonic() - start:.0f} s"
    return ("FAIL", f"{said}; see {output}") if done.returncode else ("PASS", said)


def main() -> int:
    given = sys.argv[1:]
    end = given.index("--") if "--" in given else len(given)
    machines = "\n".join(f"  {name:16}{about}" for name, (about, _) in MACHINES.items())
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=f"machines:\n{machines}", formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--folder", type=Path, default=USUAL, help="for caches and output (default: build/everywhere)")
    options = parser.parse_args(given[:end])
    unknown = [name for name in options.names if name not in MACHINES]
    if unknown:
        parser.error(f"no machine {unknown[0]!r}; there are {', '.join(MACHINES)}")
    failed = False
    for name in options.names or MACHINES:
        verdict, said = run(name, options.folder.absolute() / name, given[end + 1 :])
        failed |= verdict == "FAIL"
        sys.stdout.write(f"{verdict} {name:16}{said}\n")
        sys.stdout.flush()
    return failed


if __name__ == "__main__":
    sys.exit(main())
