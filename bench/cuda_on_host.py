"""The operations of device "cuda" with arrays of the host, as the table of cases has them: sent, and fetched back."""

from typing import Any

import numpy as np

from fastattn.ops import cuda
from fastattn.ops.cuda.card import download, upload


def __getattr__(name: str) -> Any:
    operation = getattr(cuda, name)

    def call(*arguments: Any, **options: Any) -> Any:
        written: list[tuple[np.ndarray, Any]] = []

        def sent(value: Any) -> Any:
            if isinstance(value, np.ndarray) and value.dtype in (np.float32, np.uint16) and value.ndim > 1:
                written.append((value, upload(value)))
                return written[-1][1]
            return [sent(part) for part in value] if type(value) is list else value

        result = operation(*map(sent, arguments), **{key: sent(value) for key, value in options.items()})
        for host, card in written:
            host[...] = download(card)
        return download(result) if hasattr(result, "copy_to_host") else result

    return call
