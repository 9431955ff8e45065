"""Copies of a sentence encoder in the peers' formats, made once in a folder.

    python -m bench.convert FOLDER CACHE ENGINE PRECISION

Run as a separate process if memory or loading is measured.
"""

import hashlib
import os
import shutil
import sys
from pathlib import Path


def converted(folder: Path, cache: Path, engine: str, precision: str) -> Path:
    """The copy of the checkpoint in ``folder`` for "CTranslate2" (by its own converter) or "ONNX Runtime"."""
    ending, convert = ENGINES[engine]
    digest = hashlib.sha256(str(folder.absolute()).encode())
    for source in sorted(Path(__file__).parent.glob("onnx_*.py")):
        digest.update(source.read_bytes())
    target = cache / f"{folder.name}-{digest.hexdigest()[:8]}-{precision}{ending}"
    if not target.exists():
        partial = target.with_name(f"{os.getpid()}-{target.name}")
        convert(folder, partial, precision)
        partial.rename(target)
    return target


def _ctranslate2(folder: Path, target: Path, precision: str) -> None:
    from ctranslate2.converters import TransformersConverter

    shutil.rmtree(target, ignore_errors=True)
    TransformersConverter(str(folder)).convert(str(target), quantization=precision)


def _onnx(folder: Path, target: Path, precision: str) -> None:
    from bench.onnx_bert import bert_model

    target.write_bytes(bert_model(folder))
    if precision == "int8":
        from bench.onnx_session import quantized

        quantized(target)


ENGINES = {"CTranslate2": ("-ctranslate2", _ctranslate2), "ONNX Runtime": (".onnx", _onnx)}

if __name__ == "__main__":
    converted(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:])
