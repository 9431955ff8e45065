"""A clone's root: what is found there, and from elsewhere, however fastattn was installed.

The root's fastattn/ comes before what is installed for a process that starts there; weights/ and cli/ lie beside it.
"""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests import ROOT

if not (find_spec("pip") and find_spec("setuptools")):
    pytest.skip("pip and setuptools are not in this environment", allow_module_level=True)

ROOMS = ("fastattn", "weights", "cli", "bench")
FILES = ("setup.cfg", "setup.py", "pyproject.toml", "README.md", "LICENSE")
INSTALLS = {"pip install .": ["."], "pip install -e .": ["-e", "."], "not installed": []}
IMPORTS = """
from fastattn import Translator
import fastattn.cli.entry, fastattn.weights.download.pull
print(fastattn.__file__, fastattn.weights.__file__, fastattn.cli.__file__, sep="\\n")
"""


# To build and install it takes seconds: the suite looks at the clone alone.
PLACES = [name if name == "not installed" else pytest.param(name, marks=pytest.mark.slow) for name in INSTALLS]


@pytest.fixture(scope="module", params=PLACES)
def place(request, tmp_path_factory):
    """A clone and a fresh environment that has the suite's packages, save for fastattn."""
    folder = tmp_path_factory.mktemp("place")
    clone, environment = folder / "clone", folder / "venv"
    for name in ROOMS:
        shutil.copytree(ROOT / name, clone / name, ignore=shutil.ignore_patterns("__pycache__", "results"))
    for name in FILES:
        shutil.copy(ROOT / name, clone)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    programs = environment / ("Scripts" if os.name == "nt" else "bin")
    python = str(programs / "python")
    (site,) = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", folder=folder).split()
    # The .pth files of a folder that comes in by a .pth are not read: the suite's own editable fastattn stays out.
    Path(site, "packages.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    if INSTALLS[request.param]:
        options = ["--quiet", "--no-build-isolation", "--no-deps", "--no-index", "--disable-pip-version-check"]
        run(python, "-m", "pip", "install", *options, *INSTALLS[request.param], folder=clone)
    return SimpleNamespace(install=request.param, clone=clone, site=Path(site), python=python, programs=programs)


def run(*command, folder, fails=False):
    """What the command prints to stdout; to stderr, where it should fail."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run([*map(str, command)], cwd=folder, env=environment, capture_output=True, text=True)
    assert (done.returncode != 0) == fails, done.stderr
    return done.stderr if fails else done.stdout


def homes(place, folder):
    """The folder that fastattn came from, and those of its rooms."""
    engine, weights, cli = (Path(line).parent for line in run(place.python, "-c", IMPORTS, folder=folder).splitlines())
    assert engine.name == "fastattn" and (weights.name, cli.name) == ("weights", "cli")
    assert weights.parent == cli.parent
    return engine.parent, weights.parent


def test_the_clones_root_shows_the_clones_own_files(place):
    assert homes(place, place.clone) == (place.clone, place.clone)
    assert "kernels" in run(place.python, "-m", "bench", "--list", folder=place.clone)
    assert run(place.python, "-m", "fastattn.cli", "--version", folder=place.clone).startswith("fastattn ")


def test_elsewhere_shows_what_is_installed(place, tmp_path):
    if place.install == "not installed":
        assert "No module named 'fastattn'" in run(place.python, "-c", "import fastattn", folder=tmp_path, fails=True)
        return
    expected = place.clone if place.install == "pip install -e ." else place.site / "fastattn"
    engine, rooms = homes(place, tmp_path)
    assert rooms == expected and engine == (place.clone if expected == place.clone else place.site)
    version = run(place.python, "-m", "fastattn.cli", "--version", folder=tmp_path)
    for folder in (tmp_path, place.clone):  # the script's own folder comes first, wherever it is started
        assert run(place.programs / "fastattn", "--version", folder=folder) == version


def test_the_container_is_built_of_what_an_installation_takes():
    """Whose Python is one of setup.cfg's."""
    steps = (ROOT / "Containerfile").read_text(encoding="utf-8").replace("\\\n", " ").splitlines()
    copied = [line.split()[1:-1] for line in steps if line.startswith("COPY ") and "--from" not in line]
    assert sorted(sum(copied, [])) == sorted({*ROOMS, *FILES} - {"bench"})
    (version,) = {*re.findall(r"^FROM \S*/python:([\d.]+)-slim", "\n".join(steps), re.MULTILINE)}
    assert f"Python :: {version}\n" in (ROOT / "setup.cfg").read_text(encoding="utf-8")


@pytest.mark.slow
def test_an_sdist_holds_what_is_tracked(tmp_path):
    """Save for what tells a host of repositories what to do; `make test` works in it as in a clone."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git clone")
    tracked = {name for name in listed.stdout.split("\0") if name and not name.startswith(".ci/")}
    for name in tracked:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    run(sys.executable, "-c", "from setuptools import build_meta; build_meta.build_sdist('dist')", folder=tmp_path)
    (sdist,) = (tmp_path / "dist").iterdir()
    with tarfile.open(sdist) as archive:
        held = {member.name.partition("/")[2] for member in archive if member.isfile()}
    assert held - tracked == {"PKG-INFO"} | {name for name in held if name.startswith("fastattn.egg-info/")}
    assert tracked <= held
