"""Where fastattn keeps what it can make or fetch again: compiled kernels, packed weights and pulled checkpoints."""

import os
import sys
from pathlib import Path


def cache_root() -> Path:
    """FASTATTN_CACHE, else ``fastattn`` in the platform's folder for caches. The folder may not exist yet."""
    chosen = os.environ.get("FASTATTN_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "fastattn"
