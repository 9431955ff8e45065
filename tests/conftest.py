"""What several tests share: real checkpoints, through the product's own pull."""

import contextlib
import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import HealthCheck, settings

from fastattn.errors import DownloadError
from fastattn.system.atomic_files import make_folder
from fastattn.system.cache_folder import cache_root

# As it was when the session began: tests that move the cache or reconfigure pip change nothing for real checkpoints,
# whose cache survives between runs.
ENVIRONMENT = {**os.environ, "FASTATTN_CACHE": str(cache_root().absolute())}

# Two processes of this suite compile side by side already; tests/runtime/test_ahead.py has the second one work.
os.environ.setdefault("FASTATTN_COMPILE_AHEAD", "0")

# No test asserts a speed, its drawing of examples included; the suite as a whole draws the same ones each time.
settings.register_profile(
    "any speed", settings(derandomize=False, deadline=None), suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("many", settings.get_profile("any speed"), max_examples=10_000)  # minutes: by hand
settings.register_profile("same", settings.get_profile("any speed"), derandomize=True, database=None)
settings.load_profile("any speed")

# A shell's background job ignores SIGINT, one of nohup's SIGHUP. So would processes that tests start to see them end by
# it.
for name, handler in (("SIGINT", signal.default_int_handler), ("SIGHUP", signal.SIG_DFL)):
    number = getattr(signal, name, None)
    if number is not None and signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)


@pytest.fixture(scope="session", autouse=True)
def session_cache() -> Iterator[Path]:
    """A cache whose kernels and pulled checkpoints are the user's: packed weights, most of them of random models, and
    models that are shipped to a host go at the end. Each process of a run has its own.
    """
    theirs = Path(ENVIRONMENT["FASTATTN_CACHE"])
    if os.name == "nt":  # where few may make links
        yield theirs
        return
    with contextlib.suppress(OSError):
        make_folder(theirs / "kernels")
    with tempfile.TemporaryDirectory(prefix="fastattn-tests-", ignore_cleanup_errors=True) as folder:
        own = Path(folder)
        (own / "kernels").symlink_to(theirs / "kernels")
        (own / "checkpoints").mkdir()
        for checkpoint in theirs.glob("checkpoints/*/"):
            _link(checkpoint, own)
        with mock.patch.dict(os.environ, {"FASTATTN_CACHE": folder}):
            yield own


def _link(checkpoint: Path, cache: Path) -> None:
    with contextlib.suppress(FileExistsError):
        (cache / "checkpoints" / checkpoint.name).symlink_to(checkpoint)


@pytest.fixture(scope="session")
def pulled(session_cache: Path) -> Callable[[str], Path]:
    """A function from a catalog name to the pulled folder; the test that asks is skipped where it cannot be fetched."""
    from fastattn.weights.download.pull import pull  # tests of single rooms need no loaders

    known: dict[str, Path | str] = {}

    def folder(name: str) -> Path:
        if name not in known:
            with mock.patch.dict(os.environ, ENVIRONMENT, clear=True):
                try:
                    known[name] = checkpoint = pull(name)
                    _link(checkpoint, session_cache)
                except DownloadError as error:
                    if "SHA-256" in str(error) or "unpack" in str(error):
                        raise  # a wrong file is a failure, not a missing network
                    known[name] = f"{name} cannot be had here: {error}"
        found = known[name]
        if isinstance(found, str):
            pytest.skip(found)
        return found

    return folder
