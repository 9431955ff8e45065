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
    for source in (Path(__file__), *sorted(Path(__file__).parent.glob("onnx_*.py"))):
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
    """int8 is ONNX Runtime's own dynamic quantization: int8 weights with a scale for each column, attention's too."""
    from bench.onnx_kernels import bert_model

    target.write_bytes(bert_model(folder))
    if precision == "int8":
        from onnx import TensorProto
        from onnxruntime.quantization import QuantType, quantize_dynamic

        quantize_dynamic(
            target, target, op_types_to_quantize=["MatMul", "Attention"], per_channel=True,
            weight_type=QuantType.QInt8,
            # its shape inference does not know the fused operators' types
            extra_options={"DefaultTensorType": TensorProto.FLOAT},
        )  # fmt: skip


def _openvino(folder: Path, target: Path, precision: str) -> None:
    """The model of transformers; int8 by NNCF, calibrated with some of the built-in sentences, one by one."""
    import numpy as np
    import openvino
    import torch
    import transformers

    from bench.encoders import Tokenizer
    from bench.request import silent
    from bench.sentences import sentences

    class Rows(torch.nn.Module):
        def __init__(self, model: torch.nn.Module):
            super().__init__()
            self.model = model

        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
            return self.model(input_ids=input_ids, attention_mask=attention_mask)[0]

    batches = Tokenizer(folder).batches(sentences("en", CALIBRATION, None), 1)
    samples = [[np.array(ids), np.ones((1, len(ids[0])), np.int64)] for _, ids in batches]
    with silent():
        model = transformers.AutoModel.from_pretrained(folder, dtype=torch.float32, attn_implementation="sdpa")
        example = tuple(map(torch.from_numpy, samples[0]))  # batch and length may differ later
        exported = openvino.convert_model(Rows(model).eval(), example_input=example)
        if precision == "int8":
            import nncf

            kind, dataset = nncf.ModelType.TRANSFORMER, nncf.Dataset(samples)
            exported = nncf.quantize(exported, dataset, model_type=kind, subset_size=len(samples))
    target.mkdir()
    openvino.save_model(exported, target / "model.xml", compress_to_fp16=False)


CALIBRATION = 200  # sentences
ENGINES = {
    "CTranslate2": ("-ctranslate2", _ctranslate2),
    "ONNX Runtime": (".onnx", _onnx),
    "OpenVINO": ("-openvino", _openvino),
}

if __name__ == "__main__":
    converted(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:])
