"""The CPU of this machine in LLVM's names. The cache folder keeps them: LLVM takes 60 ms to load for them."""

import contextlib
import functools
import hashlib
import os
import re
from pathlib import Path
from typing import NamedTuple

import llvmlite

from fastattn.system.atomic_files import make_folder, open_trusted, write_whole
from fastattn.system.cache_folder import A_DAY, cache_root, mark_used

# What Linux says of a CPU that its kind and its features depend on, on x86-64 and on Arm.
_FIELD = re.compile(
    rb"(?:vendor_id|cpu family|model|model name|stepping|flags|Features|CPU [a-z]+)[ \t]*: [^\n]+\n", re.ASCII
)
_DESCRIPTION = "/proc/cpuinfo"  # the same lines for each core
_FIRST_CORES_BYTES = 8192


class HostCPU(NamedTuple):
    """A CPU. ``features`` are LLVM's, separated by commas, each behind "+", or "-" for what the CPU lacks."""

    triple: str
    name: str
    features: str


@functools.cache
def host() -> HostCPU:
    """This machine's CPU, from the cache folder where Linux describes the CPU, else from LLVM."""
    path = _path()
    if path is None:
        return _ask()
    with contextlib.suppress(OSError, ValueError):
        with open_trusted(path, 1) as stream:
            digest, _, text = stream.readall().decode("ascii").partition("\n")
        if digest == hashlib.sha256(text.encode()).hexdigest():
            mark_used(path, A_DAY)
            triple, name, features = text.split("\n")
            return HostCPU(triple, name, features)
    answer = _ask()
    with contextlib.suppress(OSError):
        make_folder(path.parent)
        data = "\n".join(answer).encode("ascii")
        write_whole(path, lambda stream: stream.write(hashlib.sha256(data).hexdigest().encode() + b"\n" + data))
    return answer


def _ask() -> HostCPU:
    import llvmlite.binding as llvm

    return HostCPU(llvm.get_default_triple(), llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten())


def _path() -> Path | None:
    """The file of this CPU and this build of LLVM; None where the system does not describe the CPU."""
    with contextlib.suppress(OSError):
        with open(_DESCRIPTION, "rb", buffering=0) as stream:
            fields = sorted(set(_FIELD.findall(stream.read(_FIRST_CORES_BYTES))))
        if fields and os.uname().machine in ("x86_64", "aarch64"):
            build = repr((os.uname().machine, llvmlite.__version__, llvmlite.__file__)).encode()
            digest = hashlib.sha256(b"".join([build, *fields])).hexdigest()
            return cache_root() / "kernels" / f"{digest[:24]}.cpu"
    return None
