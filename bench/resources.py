"""Start-up and memory of one engine in its own process: imports, loading, the first text, the others.

Every import is in a function, after its clock has started. One thread, so that no engine copies its weights.
"""

import importlib
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from bench.memory import extra_resident, resident
from bench.request import Request

HEAD_WIDTH = 64  # of the attention whose memory is measured

# The imports of an engine's user.
IMPORTS = {
    ("encode", "fastattn"): ("fastattn.encoders.encoder",),
    ("encode", "sentence-transformers"): ("sentence_transformers",),
    ("encode", "CTranslate2"): ("ctranslate2", "tokenizers"),
    ("encode", "ONNX Runtime"): ("onnxruntime", "tokenizers"),
    ("encode", "OpenVINO"): ("openvino", "tokenizers"),
    ("translate", "fastattn"): ("fastattn.translation.translator",),
    ("translate", "CTranslate2"): ("ctranslate2", "sentencepiece"),
}


def resources(request: Request) -> Any:
    """``request.item`` is "encode ENGINE", "translate ENGINE" or "attention ENGINE LENGTH"."""
    task, engine = request.item.split(" ", 1)
    if task == "attention":
        engine, length = engine.rsplit(" ", 1)
        return attention_memory(engine, int(length))
    return start(request, task, engine)


def start(request: Request, task: str, engine: str) -> Any:
    clock = time.perf_counter()
    try:
        for module in IMPORTS[task, engine]:
            importlib.import_module(module)
    except ImportError as error:
        return {"absent": f"not installed: {error.name}"}
    imported = time.perf_counter() - clock
    kernels = _count_compiled() if engine == "fastattn" else []
    from bench.encoders import ENCODERS, TRANSLATORS
    from bench.sentences import sentences

    make: Any
    options: tuple[int, ...]
    if task == "encode":
        texts = sentences("en", request.choose(256, 32, 2), request.corpora)
        folder, options = Path(request.encoder), ()
        make = partial(ENCODERS[engine].make, folder, 1, request.precision, Path(request.cache))
    else:
        texts = sentences("zh", request.choose(128, 4, 1), request.corpora)
        folder, options = Path(request.translator), (request.choose(4, 1, 1),)  # beam, or greedy
        make = partial(TRANSLATORS[engine].make, folder, 1, request.precision)
    if task == "encode" and engine in ("CTranslate2", "ONNX Runtime", "OpenVINO"):
        command = [sys.executable, "-m", "bench.convert", str(folder), request.cache, engine, request.precision]
        subprocess.run(command, check=True)
    clock = time.perf_counter()
    calls = make()
    loaded = time.perf_counter() - clock
    call = next(iter(calls.values()))
    clock = time.perf_counter()
    call(texts[:1], *options)
    first = time.perf_counter() - clock
    after_first = resident()
    compiled = len(kernels)
    call(texts, *options)
    return {
        "import": imported,
        "load": loaded,
        "first": first,
        "compiled": compiled,
        "after_first": after_first,
        "resident": resident(peak=True),
        "weights": _weight_bytes(folder) if engine == "fastattn" else None,
    }


def _count_compiled() -> list[str]:
    """A list to which the name of each kernel compiled from now on is appended."""
    from fastattn.runtime.compiling import on_compile

    names: list[str] = []
    on_compile(names.append)
    return names


def _weight_bytes(folder: Path) -> int:
    """The bytes of the model's weights in float32, tied ones once."""
    from fastattn.weights import read

    return sum({id(tensor): 4 * tensor.size for tensor in read(folder).tensors.values()}.values())


def attention_memory(engine: str, length: int) -> Any:
    """The process's growth during attention over ``length`` positions of one head, without the result."""
    small, large = (_attention_call(engine, size) for size in (64, length))
    if not callable(large):
        return {"absent": large}
    small()  # compiles the kernels, starts the threads
    extra = extra_resident(large)
    return {"length": length, "extra": None if extra is None else max(0, extra - length * HEAD_WIDTH * 4)}


def bytes_a_position() -> int:
    """Of the query, key, value and result whose attention is measured."""
    return 4 * HEAD_WIDTH * 4


def _attention_call(engine: str, length: int) -> Any:
    if engine == "fastattn":
        from bench.attention_cases import inputs, ours

        return ours(inputs((1, 1, length, HEAD_WIDTH)))
    from bench.kernel_cases import attention

    side = attention(1, 1, length, HEAD_WIDTH).sides[engine]
    return side.absent or next(iter(side.calls.values()))
