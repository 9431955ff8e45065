"""pip's configuration, read without pip: indexes, directories, certificates and proxy.

Later sources win, as in pip: the sections [global] of all files, then their sections [download], then PIP_* variables.
Files come in the order global, user, site (of the virtual environment) and PIP_CONFIG_FILE, which replaces the user's
files where it exists. Empty values do not count.
https://pip.pypa.io/en/stable/topics/configuration/
"""

import configparser
import importlib.util
import locale
import os
import re
import sys
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from fastattn.errors import DownloadError

_SECTIONS = ("global", "download")
# Another name that pip accepts for an option, in files and variables -> the option.
_ALIASES = {"pypi-url": "index-url", "default-timeout": "timeout"}
_TRUE, _FALSE = ("y", "yes", "t", "true", "on", "1"), ("n", "no", "f", "false", "off", "0")


@dataclass(frozen=True)
class PipSettings:
    """pip's options about where packages are."""

    index_url: str | None = None  # None: not configured, and pip's default is not found
    extra_index_urls: tuple[str, ...] = ()
    find_links: tuple[str, ...] = ()
    no_index: bool = False
    trusted_hosts: tuple[str, ...] = ()
    cert: str | None = None
    client_cert: str | None = None
    proxy: str | None = None
    timeout: float = 15.0  # seconds of each wait on the network


def read_settings() -> PipSettings:
    """The settings that pip would use in this process; DownloadError for a file that cannot be read or a bad value."""
    options = _options()
    value = options.get("no-index", "no")
    if value.lower() not in _TRUE + _FALSE:
        raise DownloadError(f"pip's option no-index should be yes or no, is {value!r}")
    no_index = value.lower() in _TRUE
    cert, client_cert = (path and os.path.expanduser(path) for path in map(options.get, ("cert", "client-cert")))
    return PipSettings(
        index_url=options.get("index-url") or (None if no_index else _default_index()),
        extra_index_urls=tuple(options.get("extra-index-url", "").split()),
        find_links=tuple(options.get("find-links", "").split()),
        no_index=no_index,
        trusted_hosts=tuple(options.get("trusted-host", "").split()),
        cert=cert,
        client_cert=client_cert,
        proxy=options.get("proxy"),
        timeout=_seconds(options.get("timeout", "15")),
    )


def configuration_files() -> list[Path]:
    """pip's configuration files, weakest first, whether they exist or not."""
    config_file = os.environ.get("PIP_CONFIG_FILE")
    if config_file == os.devnull:  # pip then reads no files at all
        return []
    basename = "pip.ini" if sys.platform == "win32" else "pip.conf"
    files = [folder / basename for folder in _global_folders()]
    if not (config_file and os.path.exists(config_file)):
        files += [folder / basename for folder in _user_folders()]
    files.append(Path(sys.prefix) / basename)
    return files + ([Path(config_file)] if config_file else [])


def _global_folders() -> list[Path]:
    if sys.platform == "win32":
        return [Path(os.environ.get("PROGRAMDATA") or r"C:\ProgramData") / "pip"]
    if sys.platform == "darwin":
        return [Path("/Library/Application Support/pip")]
    folders = (os.environ.get("XDG_CONFIG_DIRS", "").strip() or "/etc/xdg").split(os.pathsep)
    return [Path(os.path.expanduser(folder)) / "pip" for folder in folders] + [Path("/etc")]


def _user_folders() -> list[Path]:
    home = Path(os.path.expanduser("~"))
    if not home.is_absolute():  # no home folder is known
        return []
    if sys.platform == "win32":
        return [home / "pip", Path(os.environ.get("APPDATA") or home / "AppData" / "Roaming") / "pip"]
    if sys.platform == "darwin":
        application = home / "Library" / "Application Support" / "pip"
        return [home / ".pip", application if application.is_dir() else home / ".config" / "pip"]
    base = os.environ.get("XDG_CONFIG_HOME", "").strip()
    return [home / ".pip", (Path(os.path.expanduser(base)) if base else home / ".config") / "pip"]


def _options() -> dict[str, str]:
    """{option: value}. Within a section the last file wins; [download] wins over [global], PIP_* over both."""
    by_section: dict[str, dict[str, str]] = {section: {} for section in _SECTIONS}
    for file in configuration_files():
        parser = _parse(file)
        for section in _SECTIONS:
            if parser.has_section(section):
                by_section[section].update((_normalize(name), value or "") for name, value in parser.items(section))
    variables = {_normalize(name[4:]): value for name, value in os.environ.items() if name.startswith("PIP_")}
    merged: dict[str, str] = {}
    for options in (*by_section.values(), variables):
        merged.update((_ALIASES.get(name, name), value.strip()) for name, value in options.items() if value.strip())
    return merged


def _normalize(name: str) -> str:
    return name.lower().replace("_", "-").removeprefix("--")


def _parse(file: Path) -> configparser.RawConfigParser:
    parser = configparser.RawConfigParser()
    try:
        parser.read(file, encoding=locale.getpreferredencoding(False))
    except (configparser.Error, UnicodeDecodeError, OSError) as error:
        raise DownloadError(f"pip's configuration file {file} cannot be read: {' '.join(str(error).split())}") from None
    return parser


def _seconds(value: str) -> float:
    try:
        seconds = float(value)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds < 1e6:  # also false for nan
        raise DownloadError(f"pip's option timeout should be a number of seconds above 0, is {value!r}")
    return seconds


def _default_index() -> str | None:
    """The index that pip uses by default, from the source of the installed pip, or of the pip in ensurepip's wheel.

    The text is searched, not run: importing pip changes the process's logging.
    """
    for text in _index_module_texts():
        match = re.search(r"^PyPI = PackageIndex\(\s*[\"'](https://[^\"'\s]+)[\"']", text, re.MULTILINE)
        if match:
            return match[1].rstrip("/") + "/simple"
    return None


def _index_module_texts() -> Iterator[str]:
    for folder in _package_folders("pip"):
        file = folder / "_internal" / "models" / "index.py"
        if file.is_file():
            yield file.read_text(encoding="utf-8")
    for folder in _package_folders("ensurepip"):
        for wheel in sorted(folder.glob("_bundled/pip-*.whl")):
            with suppress(OSError, KeyError, zipfile.BadZipFile), zipfile.ZipFile(wheel) as archive:
                yield archive.read("pip/_internal/models/index.py").decode("utf-8")


def _package_folders(name: str) -> list[Path]:
    package = importlib.util.find_spec(name)
    return list(map(Path, (package.submodule_search_locations if package else None) or ()))
