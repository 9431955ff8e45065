"""A system of aarch64 to run Python in on another CPU: Debian's packages in a folder, and processes that qemu emulates.

Nothing is installed: apt, with lists and caches of its own, downloads packages of this Debian for arm64, which are
unpacked; pip takes the wheels of fastattn's requirements. Root is not needed.
"""

import configparser
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

PACKAGES = ["python3", "libstdc++6", "libgomp1"]


class Unavailable(Exception):
    """Why this system cannot be such a machine."""


@dataclass
class System:
    """A folder's system: the emulator, the Python for it, and the folder of Python's packages."""

    emulator: list[str]
    python: str
    site: str


def arm_system(folder: Path, root: Path) -> System:
    """The system in a folder, made there if it is not whole; ``root`` is the clone, whose requirements it has."""
    whole = folder / "whole"
    if not whole.exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        _unpack(folder, "arm64", PACKAGES)
        _install_wheels(folder, _python(folder), _wheels(root / "setup.cfg"))
        if not shutil.which("qemu-aarch64"):
            _unpack(folder, _output(["dpkg", "--print-architecture"]).strip(), ["qemu-user-static"], alone=True)
        whole.touch()
    emulator = shutil.which("qemu-aarch64") or str(folder / "root" / "usr" / "bin" / "qemu-aarch64-static")
    return System([emulator, "-L", str(folder / "root")], str(_python(folder)), str(folder / "site"))


def _unpack(folder: Path, architecture: str, packages: list[str], alone: bool = False) -> None:
    """Packages of an architecture, with all that they need or ``alone``, unpacked in the folder's ``root``."""
    place = folder / f"apt-{architecture}"
    for part in ("lists/partial", "cache/archives/partial"):
        (place / part).mkdir(parents=True)
    (place / "status").touch()
    settings = (
        f"APT::Architecture={architecture} APT::Architectures={architecture} APT::Install-Recommends=false "
        f"APT::Sandbox::User= Acquire::Languages=none Debug::NoLocking=true"
    ).split() + [f"Dir::State::Lists={place}/lists", f"Dir::State::status={place}/status", f"Dir::Cache={place}/cache"]
    apt = ["apt-get", "-qq", *(f"-o{setting}" for setting in settings)]
    archives = place / "cache" / "archives"
    _output([*apt, "update"])
    _output([*apt, "download", *packages] if alone else [*apt, "-y", "--download-only", "install", *packages], archives)
    for package in archives.glob("*.deb"):
        _output(["dpkg-deb", "-x", str(package), str(folder / "root")])


def _python(folder: Path) -> Path:
    return (folder / "root" / "usr" / "bin" / "python3").resolve()


def _wheels(configuration: Path) -> list[str]:
    """What fastattn and its tests require."""
    settings = configparser.ConfigParser()
    settings.read(configuration, encoding="utf-8")
    return f"{settings['options']['install_requires']}\n{settings['options.extras_require']['test']}".split()


def _install_wheels(folder: Path, python: Path, requirements: list[str]) -> None:
    """Wheels for a Python of this system's C library, which is that of the same Debian."""
    version = re.fullmatch(r"python(3)\.(\d+)", python.name)
    assert version
    newest = int(platform.libc_ver()[1].split(".")[1])
    tags = [f"manylinux_2_{minor}_aarch64" for minor in range(17, newest + 1)] + ["manylinux2014_aarch64"]
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    pip += ["--target", str(folder / "site"), "--only-binary=:all:", "--implementation", "cp"]
    pip += ["--python-version", ".".join(version.groups()), *(f"--platform={tag}" for tag in tags)]
    _output([*pip, *requirements])


def _output(command: Sequence[str], folder: Path | None = None) -> str:
    """What a command prints; Unavailable where it cannot be run or fails."""
    try:
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True)
    except FileNotFoundError:
        raise Unavailable(f"there is no {command[0]} here, whose packages the emulated system is made of") from None
    except subprocess.CalledProcessError as error:
        said = error.stderr.strip().splitlines() or ["it failed"]
        raise Unavailable(f"{Path(command[0]).name}: {said[-1]}") from None
    return done.stdout
