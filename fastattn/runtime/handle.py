"""How operations call kernels: by name, so that nothing of a kernel is imported before it is needed."""

import importlib
from typing import Any

from fastattn.lazy import lazy


class Kernel:
    """A kernel of ``fastattn.kernels``, called with its arguments; see ``fastattn.runtime.jit.kernel``.

    module, name  where it is defined: the module below fastattn.kernels, the function
    """

    def __init__(self, module: str, name: str):
        self.module, self.name = module, name

    def __call__(self, *arguments: Any) -> None:
        self.compiled(*arguments)

    @lazy
    def compiled(self) -> Any:
        return getattr(importlib.import_module(f"fastattn.kernels.{self.module}"), self.name)
