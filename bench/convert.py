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
    ending, convert = ENGINES[engine]
    digest = hashlib.sha256(str(folder.absolute()).encode())
    for source in sorted(Path(__file__).parent.glob("o*_*.py")):
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
    from bench.onnx_kernels import bert_model

    target.write_bytes(bert_model(folder))
    if precision == "int8":
        from bench.onnx_session import quantized

        quantized(target)


def _openvino(folder: Path, target: Path, precision: str) -> None:
    """The model of transformers; in int8 calibrated with some of the built-in sentences, one by one."""
    import numpy as np
    import openvino

    from bench.encoders import Tokenizer
    from bench.openvino_models import rounded, traced
    from bench.sentences import sentences
    from bench.torch_encoders import rows_module

    batches = Tokenizer(folder).batches(sentences("en", CALIBRATION, None), 1)
    samples = [[np.array(ids), np.ones((1, len(ids[0])), np.int64)] for _, ids in batches]
    model = traced(rows_module(folder, "sdpa"), samples[0])
    if precision == "int8":
        model = rounded(model, samples)
    target.mkdir()
    openvino.save_model(model, target / "model.xml", compress_to_fp16=False)


CALIBRATION = 200  # sentences
ENGINES = {
    "CTranslate2": ("-ctranslate2", _ctranslate2),
    "ONNX Runtime": (".onnx", _onnx),
    "OpenVINO": ("-openvino", _openvino),
}

if __name__ == "__main__":
    converted(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:])
