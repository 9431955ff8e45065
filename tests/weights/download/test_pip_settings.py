"""pip's configuration read without pip, held to pip's own word where pip is installed."""

import json
import os
import subprocess
import sys

import pytest

from fastattn.errors import DownloadError
from fastattn.weights.download import pip_settings
from fastattn.weights.download.pip_settings import PipSettings, configuration_files, read_settings
from tests.messages import refused

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the folders below are those of Linux")


@pytest.fixture(autouse=True)
def machine(tmp_path, monkeypatch):
    """A home, a system and a virtual environment of our own; returns a function that writes a level's pip.conf."""
    for name in list(os.environ):
        if name.startswith(("PIP_", "XDG_")):
            monkeypatch.delenv(name)
    home, system = tmp_path / "home", tmp_path / "system" / "pip"
    folders = {"global": system, "legacy": home / ".pip", "user": home / ".config" / "pip"}
    folders |= {"site": tmp_path / "venv", "named": tmp_path}
    monkeypatch.setenv("XDG_CONFIG_DIRS", str(tmp_path / "system"))
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "venv"))
    # the machine's own /etc/pip.conf stays out of it
    monkeypatch.setattr(pip_settings, "_global_folders", lambda: [system])
    monkeypatch.setattr(pip_settings, "_default_index", lambda: "https://default.invalid/simple")

    def write(level, text):
        folders[level].mkdir(parents=True, exist_ok=True)
        file = folders[level] / "pip.conf"
        file.write_text(text)
        return file

    return write


OPTIONS = {
    "index-url": "https://a.invalid/simple", "extra_index_url": "\n    https://b.invalid\n    https://c.invalid/s%20x",
    "find-links": "/wheels ./more", "trusted-host": "a.invalid b.invalid:8080", "cert": "~/ca.pem",
    "client-cert": "/client.pem", "proxy": "http://proxy.invalid:3128", "timeout": "2.5",
}  # fmt: skip


def test_every_option(machine):
    assert read_settings() == PipSettings(index_url="https://default.invalid/simple")
    machine("user", "\n".join(["[global]", *(f"{name} = {value}" for name, value in OPTIONS.items())]))
    assert read_settings() == PipSettings(
        index_url="https://a.invalid/simple", extra_index_urls=("https://b.invalid", "https://c.invalid/s%20x"),
        find_links=("/wheels", "./more"), trusted_hosts=("a.invalid", "b.invalid:8080"),
        cert=os.path.expanduser("~/ca.pem"), client_cert="/client.pem", proxy="http://proxy.invalid:3128", timeout=2.5,
    )  # fmt: skip


def test_later_levels_win_and_a_named_file_replaces_the_users(machine, monkeypatch):
    for level in ("global", "legacy", "user", "site"):
        machine(level, f"[global]\nindex-url = https://{level}.invalid\n")
        assert read_settings().index_url == f"https://{level}.invalid"
    machine("user", "[global]\ntimeout = 3\n")
    machine("site", "[global]\nproxy = http://site.invalid\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(machine("named", "[global]\nindex-url = https://named.invalid\n")))
    assert read_settings() == PipSettings(index_url="https://named.invalid", proxy="http://site.invalid")
    monkeypatch.setenv("PIP_INDEX_URL", "https://variable.invalid")
    assert read_settings().index_url == "https://variable.invalid"


def test_the_section_of_the_download_command_wins_and_the_null_device_means_no_files(machine, monkeypatch):
    machine("global", "[download]\ntimeout = 4\n[install]\nproxy = http://not.invalid\n")
    machine("site", "[global]\ntimeout = 3\n")
    assert (read_settings().timeout, read_settings().proxy) == (4.0, None)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    assert (configuration_files(), read_settings().timeout) == ([], 15.0)


def test_empty_values_do_not_count_and_a_variable_replaces_a_list(machine, monkeypatch):
    lists = "find-links = /wheels\nextra-index-url = https://a.invalid https://b.invalid\n"
    machine("global", f"[global]\n{lists}proxy = http://old.invalid\n")
    machine("user", "[global]\nproxy =\n")
    monkeypatch.setenv("PIP_FIND_LINKS", "")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "https://c.invalid")
    found = read_settings()
    assert (found.find_links, found.extra_index_urls, found.proxy) == (("/wheels",), ("https://c.invalid",), None)


def test_other_spellings_and_none(monkeypatch):
    monkeypatch.setenv("PIP_DEFAULT_TIMEOUT", "7")
    monkeypatch.setenv("PIP_PYPI_URL", "https://a.invalid")
    assert (read_settings().timeout, read_settings().index_url) == (7.0, "https://a.invalid")
    monkeypatch.delenv("PIP_PYPI_URL")
    monkeypatch.setattr(pip_settings, "_default_index", lambda: pytest.fail("asked"))
    monkeypatch.setenv("PIP_NO_INDEX", "yes")
    assert read_settings() == PipSettings(no_index=True, timeout=7.0)


def test_bad_values_and_malformed_files_are_named(machine, monkeypatch):
    for name, value in (("NO_INDEX", "perhaps"), ("TIMEOUT", "soon"), ("TIMEOUT", "0"), ("TIMEOUT", "nan")):
        with monkeypatch.context() as patched, refused(DownloadError, value):
            patched.setenv(f"PIP_{name}", value)
            read_settings()
    for text in ("index-url = https://a.invalid\n", "[global]\nx = 1\nx = 2\n"):
        with pytest.raises(DownloadError, match=f"^[^\\n]*{machine('user', text)} cannot be read[^\\n]*$"):
            read_settings()


_ASK_PIP = """
import json
from pip._internal.configuration import Configuration, kinds
from pip._internal.models.index import PyPI
c = Configuration(isolated=False)
c.load()
files = dict(c.iter_config_files())
order = [kinds.GLOBAL, kinds.USER, kinds.SITE, kinds.ENV]
print(json.dumps([PyPI.simple_url, [file for kind in order for file in files.get(kind, [])]]))
"""


def test_pip_agrees(monkeypatch):
    monkeypatch.undo()  # the machine as it is
    asked = subprocess.run([sys.executable, "-c", _ASK_PIP], capture_output=True, text=True)
    if asked.returncode:
        pytest.skip(f"pip does not say: {asked.stderr.strip()[-200:]}")
    default, files = json.loads(asked.stdout)
    assert pip_settings._default_index() == default
    assert [str(file) for file in configuration_files()] == files


def test_without_pip_the_default_comes_from_the_wheel_that_python_carries(monkeypatch):
    monkeypatch.undo()
    with_pip = pip_settings._default_index()
    util, find_spec = pip_settings.importlib.util, pip_settings.importlib.util.find_spec
    monkeypatch.setattr(util, "find_spec", lambda name: None if name == "pip" else find_spec(name))
    without = pip_settings._default_index()
    if without is None:
        pytest.skip("this Python carries no wheel of pip")
    assert without.startswith("https://") and without.endswith("/simple")
    assert with_pip in (None, without)
