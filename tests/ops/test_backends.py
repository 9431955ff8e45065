"""Every public class and function that computes takes its operations from the namespace of its ``device`` alone."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import fastattn
from fastattn.errors import InputError
from fastattn.ops import BACKENDS, backend
from fastattn.runtime.handle import Kernel
from tests.children import run_child
from tests.ops import toy_backend
from tests.ops.computed import COMPUTED, FUNCTIONS, MODELS, agree


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The toy backend as device "toy"; no kernel can be called."""
    monkeypatch.setitem(BACKENDS, "toy", toy_backend.__name__)

    def refuse(kernel: Kernel, *_: Any) -> None:
        raise AssertionError(f"{kernel} was called past the operations")

    monkeypatch.setattr(Kernel, "__call__", refuse)
    toy_backend.calls.clear()
    yield toy_backend
    fastattn.ops._backends.pop("toy", None)


def through_both(call: Callable[..., Any], toy: ModuleType, patch: pytest.MonkeyPatch) -> None:
    """The toy backend gives what the CPU does, and is called."""
    got = call(device="toy")
    assert sum(toy.calls.values()) > 0
    patch.undo()
    agree(got, call(device="cpu"))


@pytest.mark.parametrize("name", [*COMPUTED, *(pytest.param(name, marks=pytest.mark.slow) for name in FUNCTIONS)])
def test_arrays_on_another_device(name: str, toy: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    through_both((COMPUTED | FUNCTIONS)[name], toy, monkeypatch)


@pytest.mark.parametrize("name", MODELS)
def test_models_on_another_device(name: str, tmp_path: Any, toy: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    write, use = MODELS[name]
    folder = write(tmp_path / "model")

    def call(device: str) -> Any:
        with getattr(fastattn, name)(folder, "float32", threads=1, device=device) as made:
            return use(made)

    through_both(call, toy, monkeypatch)


def test_a_device_that_is_not_there() -> None:
    for device in ("gpu", "cpu:0", "", None, 0, ["cpu"]):
        models = [partial(getattr(fastattn, name), "nowhere") for name in MODELS]
        for call in (backend, *COMPUTED.values(), *FUNCTIONS.values(), *models):
            with pytest.raises(InputError) as raised:
                call(device=device)
            assert str(raised.value) == f"expected device 'cpu' or 'cuda' or 'auto', got {device!r}"


UNASKED = """
import sys
from pathlib import Path

asked = []

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.startswith(("numba_cuda", "numba.cuda")):
            asked.append(name)
            raise ImportError(name)

sys.meta_path.insert(0, Refuse())
import fastattn
from fastattn.ops import backend
from tests.ops.computed import COMPUTED, MODELS

folder = Path(sys.argv[1])
for name in ("Translator", "Encoder"):
    write, use = MODELS[name]
    for device in ({}, {"device": "cpu"}):
        with getattr(fastattn, name)(write(folder / name), "float32", threads=1, **device) as made:
            use(made)
COMPUTED["plain"](device="cpu")
print(asked)
print(backend("auto") is backend("cpu"), asked)
"""


def test_a_cards_package_is_imported_where_it_is_asked_for_alone(tmp_path: Path) -> None:
    assert run_child(UNASKED, str(tmp_path)).splitlines() == ["[]", "True ['numba_cuda']"]
