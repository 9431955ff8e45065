"""The Containerfile's own steps, followed in a chroot of Debian's packages, where no container engine runs.

Debian's release stands in for the image of Python: both have the same Python on the same Debian, and `python3`. Folders
stand for the images.
"""

import json
import os
import re
import shlex
import shutil
import string
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests import ROOT

TEXT = (ROOT / "Containerfile").read_text(encoding="utf-8")
RELEASES = {"3.13": "trixie"}  # Python -> Debian's release that has it
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
# What the base image sets.
BASE_ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}


@dataclass
class Image:
    """A root folder, and what a container that is started from it is like."""

    root: Path
    environment: dict[str, str] = field(default_factory=lambda: dict(BASE_ENVIRONMENT))
    user: str = "0:0"
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    volume: str = ""


def instructions(text: str) -> Iterator[tuple[str, str]]:
    """(name in capitals, the rest) of every instruction; lines that end in a backslash go on."""
    kept = "".join(line + "\n" for line in text.splitlines() if not line.lstrip().startswith("#"))
    for line in kept.replace("\\\n", " ").splitlines():
        if line.strip():
            name, _, rest = line.strip().partition(" ")
            yield name.upper(), rest.strip()


def build(text: str, context: Path, base: Path, folder: Path, extra: Mapping[str, str]) -> Image:
    """The last stage's image, all stages starting from a copy of ``base``; RUN's commands have ``extra`` variables."""
    stages: dict[str, Image] = {}
    for name, rest in instructions(text):
        if name == "FROM":
            label = rest.split()[2] if len(rest.split()) == 3 else str(len(stages))
            image = stages[label] = Image(folder / label)
            subprocess.run(["cp", "-a", "--reflink=auto", base, image.root], check=True)
        elif name == "COPY":
            _copy(rest, context, stages, image.root)
        elif name == "RUN":
            _run(rest, image, extra)
        elif name == "ENV":
            for part in shlex.split(rest):
                key, _, value = part.partition("=")
                image.environment[key] = string.Template(value).substitute(image.environment)
        elif name == "ENTRYPOINT":
            image.entrypoint = json.loads(rest)
        elif name == "CMD":
            image.command = json.loads(rest)
        elif name == "USER":
            image.user = rest
        elif name == "VOLUME":
            image.volume = rest
        else:
            raise ValueError(f"an instruction that is not known here: {name} {rest}")
    return image


def _copy(rest: str, context: Path, stages: Mapping[str, Image], root: Path) -> None:
    words = rest.split()
    place = context
    if words[0].startswith("--from="):
        place = stages[words.pop(0).removeprefix("--from=")].root
    *sources, target = words
    into = root / target.lstrip("/")
    for source in sources:
        found = place / source.lstrip("/")
        if found.is_dir():  # its contents, and the target is a folder
            shutil.copytree(found, into, symlinks=True, dirs_exist_ok=True)
        else:
            destination = into / found.name if target.endswith("/") else into
            destination.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(found, destination)


def _run(command: str, image: Image, extra: Mapping[str, str]) -> None:
    if image.user != "0:0" or command.startswith(("--", "[")):
        raise ValueError(f"a RUN that is not known here: {command}")
    environment = dict(extra) | image.environment
    inside = ["unshare", "--mount", "--pid", "--fork", f"--mount-proc={image.root}/proc", "chroot", str(image.root)]
    subprocess.run([*inside, "/bin/sh", "-c", command], check=True, env=environment, cwd="/")


# The shell's words for what an engine does of: --read-only --tmpfs /tmp --user --cap-drop=ALL --security-opt
# no-new-privileges, a volume, --network=none.
_START = """
set -e
root=$1 cache=$2 volume=$3 user=$4 network=$5; shift 5
mount --make-rprivate /
mount --bind "$root" "$root"
mount --bind "$cache" "$root$volume"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
mount -t proc proc "$root/proc"
mount -o remount,bind,ro "$root"
[ "$network" = none ] && network="unshare --net" || network=
exec $network chroot "$root" setpriv --reuid "${user%:*}" --regid "${user#*:}" --clear-groups --no-new-privs \
    --bounding-set=-all --inh-caps=-all "$@"
"""


def start(
    image: Image, cache: Path, arguments: list[str], extra: Mapping[str, str], network: bool = True, user: str = ""
) -> subprocess.CompletedProcess:
    """What ``run --read-only --tmpfs /tmp --cap-drop=ALL -v cache:VOLUME`` does of an image, on its one volume."""
    start = ["sh", "-c", _START, "start", str(image.root), str(cache), image.volume]
    own = ["unshare", "--mount", "--pid", "--fork", *start]
    command = [*own, user or image.user, "host" if network else "none", *(arguments or image.command)]
    environment = dict(extra) | image.environment
    return subprocess.run(command, env=environment, cwd="/", capture_output=True, encoding="utf-8")


def test_the_steps_are_read():
    steps = list(instructions(TEXT))
    assert [name for name, _ in steps].count("FROM") == 2
    runs = [" ".join(rest.split()) for name, rest in steps if name == "RUN"]
    assert runs[-1].startswith("useradd ") and runs[-1].endswith(" && mkdir --mode=1777 /cache")
    assert steps[-2] == ("ENTRYPOINT", '["fastattn"]')
    for name, rest in steps:  # what it copies is there
        if name == "COPY" and not rest.startswith("--from"):
            assert all((ROOT / source).exists() for source in rest.split()[:-1])


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A root folder with the Python that the Containerfile starts from, and this machine's way to the network."""
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("a chroot takes root on Linux")
    missing = [name for name in ("debootstrap", "unshare", "chroot", "setpriv") if shutil.which(name) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} not here")
    (version,) = {*re.findall(r"(?m)^FROM \S*/python:(\d+\.\d+)-slim", TEXT)}
    folder = tmp_path_factory.mktemp("base") / "root"
    packages = "python3,python3-venv,python3-pip,ca-certificates"
    made = subprocess.run(
        ["debootstrap", "--variant=minbase", f"--include={packages}", RELEASES[version], folder],
        capture_output=True,
        text=True,
    )
    if made.returncode:
        pytest.skip(f"debootstrap: {(made.stdout + made.stderr).strip().splitlines()[-1]}")
    found = subprocess.run(["chroot", folder, "python3", "--version"], capture_output=True, text=True, check=True)
    assert found.stdout.startswith(f"Python {version}.")
    for file in ("/etc/resolv.conf", CERTIFICATES):
        if os.path.exists(file):
            shutil.copyfile(file, folder / file.lstrip("/"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def network():
    """Variables by which programs in the chroot reach the package index as those outside do."""
    names = ("PIP_INDEX_URL", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy")
    kept = {name: os.environ[name] for name in names if name in os.environ}
    return kept | {"PIP_CERT": CERTIFICATES, "SSL_CERT_FILE": CERTIFICATES, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}


@pytest.fixture(scope="module")
def image(base, network, tmp_path_factory):
    folder = tmp_path_factory.mktemp("stages")
    yield build(TEXT, ROOT, base, folder, network)
    shutil.rmtree(folder)


@pytest.fixture
def cache(image, tmp_path):
    """A new volume, which begins as the image's own folder: its mode and owner."""
    folder = tmp_path / "cache"
    folder.mkdir()
    folder.chmod((image.root / image.volume.lstrip("/")).stat().st_mode)
    return folder


@pytest.mark.slow
def test_an_unprivileged_user_translates_on_a_read_only_root(image, cache, network):
    script = "id -u; grep CapBnd /proc/self/status; touch /tmp/x /cache/x && touch /opt/x || true"
    seen = start(image, cache, ["sh", "-c", script], network)
    assert seen.stdout.split() == ["10001", "CapBnd:", "0" * 16] and seen.stderr.count("\n") == 1
    assert "/opt/x': Read-only file system" in seen.stderr
    assert start(image, cache, [*image.entrypoint, *image.command], network).stdout.startswith("Usage: fastattn")
    first = start(image, cache, [*image.entrypoint, "translate", "Hello world"], network)
    if first.returncode == 4:
        pytest.skip(f"the model cannot be had here: {first.stderr.strip()}")
    assert first.stdout == "Olá, mundo!\n", first.stderr
    assert {"checkpoints", "kernels", "packed"} <= {path.name for path in cache.iterdir()}
    again = start(image, cache, [*image.entrypoint, "translate", "Hello world"], {}, network=False)
    assert (again.stdout, again.stderr) == ("Olá, mundo!\n", "")  # nothing was fetched or compiled again
    other = start(image, cache, [*image.entrypoint, "translate", "Hello world"], {}, network=False, user="4321:4321")
    # Code is believed of its own user alone: another one compiles, and says that the volume is not his.
    assert other.stdout == "Olá, mundo!\n" and "cannot keep kernels" in other.stderr
