"""The Containerfile's own steps, followed in a chroot of Debian's packages, where no container engine runs.

Debian's release stands in for the image of Python: both have the same Python on the same Debian, and `python3`.
"""

import os
import re
import shutil
import subprocess
import sys

import pytest

from tests import ROOT
from tests.clone.container_file import base_images, build, instructions, start

TEXT = (ROOT / "Containerfile").read_text(encoding="utf-8")
RELEASES = {"3.13": "trixie"}  # Python -> Debian's release that has it
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"


def test_the_steps_are_read():
    steps = list(instructions(TEXT))
    assert [name for name, _ in steps].count("FROM") == 2
    runs = [" ".join(rest.split()) for name, rest in steps if name == "RUN"]
    assert runs[-1].startswith("useradd ") and runs[-1].endswith(" && mkdir --mode=1777 /cache")
    assert steps[-2] == ("ENTRYPOINT", '["fastattn"]')
    for name, rest in steps:  # what it copies is there
        if name == "COPY" and not rest.startswith("--from"):
            assert all((ROOT / source).exists() for source in rest.split()[:-1])


def test_the_comments_runs_are_as_strict_as_the_tests():
    """Each run that the file tells of has what ``start`` does."""
    comment = "".join(line[1:] + "\n" for line in TEXT.splitlines() if line.startswith("#")).replace("\\\n", " ")
    runs = [line for line in comment.splitlines() if line.strip().startswith("podman run")]
    assert len(runs) == 3
    for line in runs:
        for option in (
            "--read-only",
            "--tmpfs /tmp",
            "--user 10001:10001",
            "--cap-drop=ALL",
            "-v fastattn-cache:/cache",
        ):
            assert option in line


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A root folder with the Python that the Containerfile starts from, and this machine's way to the network."""
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("a chroot takes root on Linux")
    missing = [name for name in ("debootstrap", "unshare", "chroot", "setpriv") if shutil.which(name) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} not here")
    (image,) = base_images(TEXT)
    version = re.fullmatch(r".*/python:(\d+\.\d+)-slim", image).group(1)
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
    (volume,) = image.volumes
    inside = image.root / volume.lstrip("/")
    folder = tmp_path / "cache"
    folder.mkdir()
    folder.chmod(inside.stat().st_mode)
    return folder


@pytest.mark.slow
def test_an_unprivileged_user_translates_on_a_read_only_root(image, cache, network):
    script = "id -u; grep CapBnd /proc/self/status; touch /tmp/x /cache/x && touch /opt/x || true"
    seen = start(image, cache, ["sh", "-c", script], network)
    assert seen.stdout.split() == ["10001", "CapBnd:", "0" * 16] and seen.stderr.count("\n") == 1
    assert "/opt/x': Read-only file system" in seen.stderr
    assert start(image, cache, image.entrypoint + image.command, network).stdout.startswith("Usage: fastattn")
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
