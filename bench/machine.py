"""The environment of the measurements: commit, CPU, features, versions."""

import importlib.metadata
import os
import platform
import re
import subprocess
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np

from bench.measure import last_cache_bytes
from fastattn.simd.target import TARGET, compiled_features, compiled_name
from fastattn.system.cpus import usable_cpus

ROOT = Path(__file__).resolve().parent.parent
LIBRARIES = (
    "fastattn",
    "numpy",
    "numba",
    "llvmlite",
    "tokenizers",
    "torch",
    "ctranslate2",
    "onnxruntime",
    "onnx",
    "sentence-transformers",
    "transformers",
    "sentencepiece",
)


def processors() -> int:
    return usable_cpus().threads


def describe() -> dict[str, Any]:
    commit = _git("rev-parse", "HEAD")
    return {
        "commit": commit or "unknown",
        "changed": bool(commit and _git("status", "--porcelain", "--untracked-files=no")),
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "machine": {
            "cpu": _cpu(),
            "compiled_for": compiled_name(),
            "tile": TARGET.name,
            "features": sorted(compiled_features()),
            "processors": processors(),
            "last_cache": last_cache_bytes(),
            "memory": _memory(),
            "system": f"{platform.system()} {platform.release()}",
        },
        "versions": {
            "Python": platform.python_version(),
            "BLAS": "{name} {version}".format(**np.show_config(mode="dicts")["Build Dependencies"]["blas"]),
            **{name: _version(name) for name in LIBRARIES},
        },
    }


def conditions(threads: int) -> str:
    """Two lines of the documents: the machine, the threads, NumPy."""
    about = describe()
    machine, versions = about["machine"], about["versions"]
    return (
        f"{machine['cpu']} ({machine['compiled_for']}, {machine['tile']} tiles), {threads} of {processors()} cores,\n"
        f"numpy {versions['numpy']} with {versions['BLAS']}; "
    )


def _git(*arguments: str) -> str:
    try:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()


def _cpu() -> str:
    try:
        match = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        match = None
    return match[1] if match else platform.processor() or platform.machine()


def _memory() -> int:
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return 0


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
