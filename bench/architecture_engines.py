"""Engines for any architecture: for each and each setting a function from texts to vectors, or from pairs of texts to
scores, tokenizing included.

PyTorch runs transformers' own model, as sentence-transformers does. It is exported for ONNX Runtime, which runs it as
it is and, where its transformer optimizer knows the model, optimized; and for OpenVINO. int8 is what each has for
transformers: dynamic with a scale a column for ONNX Runtime, NNCF with calibration for OpenVINO. fastembed runs ONNX
Runtime on such a file, so its figures are ONNX Runtime's.
"""

import contextlib
from collections.abc import Callable
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from bench.architectures import RERANKER, Architecture, make_texts, write
from bench.encoders import Encode, Engine, Run, Setting, Tokenizer, encode_batches, padding
from bench.request import silent

INPUTS = ("input_ids", "attention_mask")
CALIBRATION = 32  # texts
# The exporter that gives attention in the form that ONNX Runtime's optimizer knows, and the one for all else.
LEGACY, CURRENT = "traced", "exported"


class Subject:
    """An architecture's folder, and what is made of it for the engines; each once.

    batches  the sizes of batches to try
    """

    def __init__(self, architecture: Architecture, folder: Path, batches: tuple[int, ...]):
        self.architecture, self.folder, self.batches = architecture, folder, batches
        with silent():
            write(architecture, folder)
        self.tokenizer = Tokenizer(folder)
        self._files: dict[tuple[str, str], Path | Exception] = {}

    def module(self, attention: str) -> Any:
        """The model in PyTorch: (ids, mask) [B, T], int64 -> rows [B, T, D], or a reranker's scores [B, 1]."""
        if self.architecture.kind == "JinaBert":
            from bench.torch_encoders import JinaBert

            return JinaBert(self.architecture.config).load(self.folder).eval()
        from bench.torch_encoders import rows_module

        return rows_module(self.folder, attention, self.architecture.kind)

    def inputs(self, texts: list[str]) -> list[np.ndarray]:
        ids_BT = np.array([ids[0] for _, ids in self.tokenizer.batches(texts, 1)])
        return [ids_BT, np.ones_like(ids_BT)]

    def onnx(self, exporter: str, precision: str) -> Path:
        """An .onnx file; if it could not be made, the error, again and again."""
        key = exporter, precision
        if key not in self._files:
            try:
                with silent():
                    self._files[key] = self._make_onnx(exporter, precision)
            except Exception as error:  # noqa: BLE001  exporters raise anything
                self._files[key] = error
        found = self._files[key]
        if isinstance(found, Exception):
            raise found
        return found

    def _make_onnx(self, exporter: str, precision: str) -> Path:
        target = self.folder / f"{exporter}-{precision}.onnx"
        if precision == "int8":
            import shutil

            from bench.onnx_session import quantized

            shutil.copy(self.onnx(exporter, "float32"), target)
            quantized(target)
            return target
        import torch

        given = tuple(map(torch.from_numpy, self.inputs(make_texts(2, 32))))
        module, names = self.module("eager"), {"input_names": list(INPUTS), "output_names": ["rows"]}
        if exporter == LEGACY:
            axes = {name: {0: "B", 1: "T"} for name in INPUTS}
            torch.onnx.export(module, given, target, dynamo=False, opset_version=17, dynamic_axes=axes, **names)
        else:
            dims = {0: torch.export.Dim("B", min=1, max=1024), 1: torch.export.Dim("T", min=2, max=8192)}
            torch.onnx.export(
                module,
                given,
                target,
                dynamo=True,
                dynamic_shapes=(dims, dims),
                external_data=False,
                verbose=False,
                **names,
            )
        if exporter == LEGACY and self.architecture.optimizer:
            from onnxruntime.transformers.optimizer import optimize_model

            architecture = self.architecture
            sizes = {"num_heads": architecture.heads, "hidden_size": architecture.width}
            optimize_model(str(target), architecture.optimizer, **sizes).save_model_to_file(str(target))
        return target

    @cached_property
    def openvino(self) -> Any:
        """OpenVINO's model, from PyTorch or, what it cannot trace, from the .onnx file."""
        from bench.openvino_models import traced

        try:
            return traced(self.module("sdpa"), self.inputs(make_texts(2, 32)))
        except Exception:  # noqa: BLE001  whatever the tracer meets
            import openvino

            with silent():
                return openvino.convert_model(self.onnx(CURRENT, "float32"))

    @cached_property
    def openvino_int8(self) -> Any:
        from bench.openvino_models import rounded

        return rounded(self.openvino, [self.inputs([text]) for text in make_texts(CALIBRATION, 32)])


def _encodes(subject: Subject, run: Run, how: str = "") -> dict[Setting, Encode]:
    """``run``: (ids, mask) [B, T], int64 -> what ``Subject.module`` gives."""

    padded = padding(run)
    if subject.architecture.kind == RERANKER:
        return {Setting(size, how): _scores(subject, padded, size) for size in subject.batches}
    tokenizer, width = subject.tokenizer, subject.architecture.width
    return {Setting(size, how): encode_batches(tokenizer, size, width, padded) for size in subject.batches}


def _scores(subject: Subject, run: Callable[[list[list[int]]], np.ndarray], size: int) -> Callable[[Any], np.ndarray]:
    """From pairs of texts to scores [B]; they are given in order of length, or are all of one."""

    def score(pairs: list[tuple[str, str]]) -> np.ndarray:
        ids = [encoding.ids for encoding in subject.tokenizer.library.encode_batch(pairs)]
        return np.concatenate([run(ids[start : start + size])[:, 0] for start in range(0, len(ids), size)])

    return score


def ours(subject: Subject, threads: int, precision: str) -> dict[Setting, Encode]:
    from fastattn import CrossEncoder, Encoder

    if subject.architecture.kind == RERANKER:
        return {Setting(): partial(CrossEncoder(subject.folder, precision, threads).predict, activation_fn="none")}
    return {Setting(): Encoder(subject.folder, precision, threads).encode}


def pytorch(subject: Subject, threads: int, precision: str) -> dict[Setting, Encode]:
    import torch

    def encodes(attention: str) -> dict[Setting, Encode]:
        module = subject.module(attention)

        def run(ids_BT: np.ndarray, mask_BT: np.ndarray) -> np.ndarray:
            with torch.inference_mode():
                rows_BTD: np.ndarray = module(torch.from_numpy(ids_BT), torch.from_numpy(mask_BT)).numpy()
            return rows_BTD

        return _encodes(subject, run, attention)

    attentions = ("sdpa",) if subject.architecture.kind == "JinaBert" else ("sdpa", "eager")
    found: dict[Setting, Encode] = {}
    for attention in attentions:
        with contextlib.suppress(ValueError):  # transformers has no such attention for this model
            found |= encodes(attention)
    return found


def onnx_runtime(subject: Subject, threads: int, precision: str) -> dict[Setting, Encode]:
    from bench.onnx_session import session

    found: dict[Setting, Encode] = {}
    error: Exception | None = None
    for exporter in (CURRENT, LEGACY):
        try:
            runner = session(str(subject.onnx(exporter, precision)), threads)
        except Exception as failure:  # noqa: BLE001  one of the two is enough
            error = failure
            continue

        def run(ids_BT: np.ndarray, mask_BT: np.ndarray, runner: Any = runner) -> np.ndarray:
            given = {"input_ids": ids_BT, "attention_mask": mask_BT}
            return runner.run(None, {value.name: given[value.name] for value in runner.get_inputs()})[0]

        optimized = exporter == LEGACY and subject.architecture.optimizer
        found |= _encodes(subject, run, f"{exporter}, optimized" if optimized else exporter)
    if not found and error is not None:
        raise error
    return found


def openvino(subject: Subject, threads: int, precision: str) -> dict[Setting, Encode]:
    from bench.openvino_models import runner

    model = subject.openvino if precision == "float32" else subject.openvino_int8
    return _encodes(subject, runner(model, threads, precision))


BOTH = ("float32", "int8")
ENGINES: dict[str, Engine[Callable[[Subject, int, str], dict[Setting, Encode]]]] = {
    "fastattn": Engine(ours, (), BOTH),
    "PyTorch": Engine(pytorch, ("torch", "transformers"), ("float32",)),
    "ONNX Runtime": Engine(onnx_runtime, ("torch", "transformers", "onnxscript", "onnxruntime"), BOTH),
    "OpenVINO": Engine(openvino, ("torch", "transformers", "openvino", "nncf"), BOTH),
}
