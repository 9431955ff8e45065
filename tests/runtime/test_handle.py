"""Operations call kernels by name: each handle names one that is there, and none is without."""

import importlib
import pkgutil
from types import ModuleType

from fastattn import kernels
from fastattn.ops import cpu as operations
from fastattn.runtime.handle import Kernel


def below(package: ModuleType) -> list[ModuleType]:
    rooms = pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    return [importlib.import_module(room.name) for room in rooms]


def test_every_kernel_has_a_handle() -> None:
    handles = [value for room in below(operations) for value in vars(room).values() if isinstance(value, Kernel)]
    named = {f"{handle.__module__}.{handle.__name__}" for handle in handles}
    there = {
        f"{room.__name__}.{name}"
        for room in below(kernels)
        for name, value in vars(room).items()
        if isinstance(value, Kernel)
    }
    assert named == there and len(named) > 20
