"""What several tests share: real checkpoints, through the product's own pull."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import HealthCheck, settings

from fastattn.cache_folder import cache_root
from fastattn.errors import DownloadError
from tests.left_in_cache import none_added

# As it was when the session began: tests that move the cache or reconfigure pip change nothing for real checkpoints,
# whose cache survives between runs.
ENVIRONMENT = {**os.environ, "FASTATTN_CACHE": str(cache_root().absolute())}

# Two processes of this suite compile side by side already; tests/runtime/test_ahead.py has the second one work.
os.environ.setdefault("FASTATTN_COMPILE_AHEAD", "0")

# No test asserts a speed, its drawing of examples included.
settings.register_profile("any speed", settings(), suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any speed")

# A shell's background job ignores SIGINT, and so would the processes that tests start to see them end by it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def _cache_without_the_tests_models() -> Iterator[None]:
    """Of two sessions that share a cache, who started them sees to it."""
    if "FASTATTN_TESTS_SHARE_A_CACHE" in os.environ:
        yield
    else:
        with none_added(Path(ENVIRONMENT["FASTATTN_CACHE"])):
            yield


@pytest.fixture(scope="session")
def pulled() -> Callable[[str], Path]:
    """A function from a catalog name to the pulled folder; the test that asks is skipped where it cannot be fetched."""
    from fastattn.weights.download.pull import pull  # tests of single rooms need no loaders

    known: dict[str, Path | str] = {}

    def folder(name: str) -> Path:
        if name not in known:
            with mock.patch.dict(os.environ, ENVIRONMENT, clear=True):
                try:
                    known[name] = pull(name)
                except DownloadError as error:
                    if "SHA-256" in str(error) or "unpack" in str(error):
                        raise  # a wrong file is a failure, not a missing network
                    known[name] = f"{name} cannot be had here: {error}"
        found = known[name]
        if isinstance(found, str):
            pytest.skip(found)
        return found

    return folder
