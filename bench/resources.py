"""Start-up and memory of one engine in its own process: imports, loading, the first text, further texts.

``python -m bench.resources REQUEST.json RESULT.json`` answers any request: the environment limits every library to its
threads from the start.

Functions import libraries after their clock has started. One thread, so that no engine copies its weights.
"""

import importlib
import json
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from bench.memory import extra_resident, resident
from bench.request import Request

HEAD_WIDTH = 64  # width of the head whose attention is measured

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


def main(source: str, target: str) -> None:
    """Answer one request in this process, so that its memory is that of one part only."""
    request = Request(**json.loads(Path(source).read_text(encoding="utf-8")))
    if request.part == "resources":
        run = resources
    else:
        from bench import run_cases

        run = getattr(run_cases, request.part)
    Path(target).write_text(json.dumps(run(request)), encoding="utf-8")


def resources(request: Request) -> Any:
    """``request.item`` is "encode ENGINE", "translate ENGINE" or "attention ENGINE LENGTH"."""
    task, engine = request.item.split(" ", 1)
    return _attention_memory(*engine.rsplit(" ", 1)) if task == "attention" else start(request, task, engine)


def start(request: Request, task: str, engine: str) -> Any:
    clock = time.perf_counter()
    try:
        for module in IMPORTS[task, engine]:
            importlib.import_module(module)
    except ImportError as error:
        return {"absent": f"not installed: {error.name}"}
    imported = time.perf_counter() - clock
    kernels: list[str] = []  # names of those that are compiled
    if engine == "fastattn":
        from fastattn.runtime.compiling import on_compile
        from fastattn.weights import read

        on_compile(kernels.append)
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
        "weights": None if engine != "fastattn" else _bytes(read(folder)),
    }


def _attention_memory(engine: str, positions: str) -> Any:
    """By how much the process grows during attention over ``length`` positions of one head, without the result."""
    length = int(positions)
    small, large = (_attention_call(engine, size) for size in (64, length))
    if not callable(large):
        return {"absent": large}
    small()  # compiles the kernels, starts the threads
    extra = extra_resident(large)
    return {"length": length, "extra": None if extra is None else max(0, extra - length * HEAD_WIDTH * 4)}


def _bytes(checkpoint: Any) -> int:
    """Bytes of the weights in float32; tied weights count once."""
    return sum({id(tensor): 4 * tensor.size for tensor in checkpoint.tensors.values()}.values())


def bytes_a_position() -> int:
    """Bytes of query, key, value and result for a position of the measured attention."""
    return 4 * HEAD_WIDTH * 4


def _attention_call(engine: str, length: int) -> Any:
    if engine == "fastattn":
        import numpy as np

        from fastattn import attention

        rng = np.random.default_rng(0)
        arrays = [rng.standard_normal((1, 1, length, HEAD_WIDTH), np.float32) for _ in range(3)]
        return partial(attention, *arrays, layout="BHTK")
    from bench.kernel_cases import attention as case

    side = case(1, 1, length, HEAD_WIDTH).sides[engine]
    return side.absent or next(iter(side.calls.values()))


if __name__ == "__main__":
    main(*sys.argv[1:])
