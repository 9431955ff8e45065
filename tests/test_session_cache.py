"""The suite leaves a user's cache as it found it, but for kernels and pulled checkpoints; each session has its own."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from fastattn.loading.model_cache import PackedWeights
from fastattn.runtime.handle import cache_folder
from fastattn.system.cache_folder import cache_root
from fastattn.weights.download import resolve
from tests.conftest import ENVIRONMENT


@pytest.mark.skipif(os.name == "nt", reason="links")
def test_packed_weights_are_this_session_s(pulled: Callable[[str], Path], tmp_path: Path) -> None:
    theirs = Path(ENVIRONMENT["FASTATTN_CACHE"])
    (tmp_path / "weights").write_bytes(b"")
    assert not PackedWeights([tmp_path / "weights"], "float32").path.is_relative_to(theirs)
    assert (cache_root() / "kernels").samefile(theirs / "kernels")
    assert cache_folder.__wrapped__().resolve().is_relative_to(theirs.resolve())
    found = pulled("minilm")
    assert found.parent == theirs / "checkpoints" and resolve("minilm").samefile(found)
