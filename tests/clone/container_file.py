"""Reads a Containerfile and follows its steps in folders that stand for the images, for a test without an engine."""

import json
import shlex
import shutil
import string
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

# What the base image sets.
BASE_ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}


@dataclass
class Image:
    """A root folder, and what a container that is started from it is like."""

    root: Path
    environment: dict[str, str] = field(default_factory=lambda: dict(BASE_ENVIRONMENT))
    user: str = "0:0"
    entrypoint: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)
    volumes: list[str] = field(default_factory=list)


def instructions(text: str) -> Iterator[tuple[str, str]]:
    """(name in capitals, the rest) of every instruction; lines that end in a backslash go on."""
    kept = "".join(line + "\n" for line in text.splitlines() if not line.lstrip().startswith("#"))
    for line in kept.replace("\\\n", " ").splitlines():
        if line.strip():
            name, _, rest = line.strip().partition(" ")
            yield name.upper(), rest.strip()


def base_images(text: str) -> set[str]:
    """The images that the file starts from."""
    return {rest.split()[0] for name, rest in instructions(text) if name == "FROM"}


def build(text: str, context: Path, base: Path, folder: Path, extra: Mapping[str, str]) -> Image:
    """The last stage's image, all stages starting from a copy of ``base``.

    extra  variables that RUN's commands have beside the image's, as an engine's --build-arg for a proxy would be.
    Raises ValueError for an instruction or a form of one that is not known here.
    """
    stages: dict[str, Image] = {}
    image = None
    for name, rest in instructions(text):
        if name == "FROM":
            label = rest.split()[2] if len(rest.split()) == 3 else str(len(stages))
            image = stages[label] = Image(folder / label)
            subprocess.run(["cp", "-a", "--reflink=auto", base, image.root], check=True)
        elif image is None:
            raise ValueError(f"{name} before FROM")
        elif name == "COPY":
            _copy(rest, context, stages, image.root)
        elif name == "RUN":
            _run(rest, image, extra)
        elif name == "ENV":
            for part in shlex.split(rest):
                key, _, value = part.partition("=")
                image.environment[key] = string.Template(value).substitute(image.environment)
        elif name in ("ENTRYPOINT", "CMD"):
            setattr(image, "entrypoint" if name == "ENTRYPOINT" else "command", json.loads(rest))
        elif name == "USER":
            image.user = rest
        elif name == "VOLUME":
            image.volumes.append(rest)
        else:
            raise ValueError(f"an instruction that is not known here: {name} {rest}")
    if image is None:
        raise ValueError("expected a FROM")
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
    (volume,) = image.volumes
    own = ["unshare", "--mount", "--pid", "--fork", "sh", "-c", _START, "start", str(image.root), str(cache), volume]
    command = [*own, user or image.user, "host" if network else "none", *(arguments or image.command)]
    environment = dict(extra) | image.environment
    return subprocess.run(command, env=environment, cwd="/", capture_output=True, encoding="utf-8")
