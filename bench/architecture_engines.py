"""Engines for any architecture: for each and each setting a function from texts to vectors, tokenizing included.

PyTorch runs transformers' own model, as sentence-transformers does. It is exported for ONNX Runtime, which runs it as
it is and, where its transformer optimizer knows the model, optimized; and for OpenVINO. int8 is what each has for
transformers: dynamic with a scale a column for ONNX Runtime, NNCF with calibration for OpenVINO. fastembed runs ONNX
Runtime on such a file, so its figures are ONNX Runtime's.
"""

import contextlib
import io
import logging
import warnings
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from bench.architectures import Architecture, make_texts, write
from bench.encoders import Encode, Engine, Setting, Tokenizer, encode_batches

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
        with _silent():
            write(architecture, folder)
        self.tokenizer = Tokenizer(folder)
        self._files: dict[tuple[str, str], Path | Exception] = {}

    def module(self, attention: str) -> Any:
        """The model in PyTorch: (ids, mask) [B, T], int64 -> rows [B, T, D]."""
        import torch

        if self.architecture.kind == "JinaBert":
            from bench.torch_jina import JinaBert

            return JinaBert(self.architecture.config).load(self.folder).eval()
        import transformers

        kind = getattr(transformers, self.architecture.kind)
        with _silent():
            model = kind.from_pretrained(self.folder, dtype=torch.float32, attn_implementation=attention).eval()
        model.config.use_cache = False

        class Rows(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.model = model

            def forward(self, input_ids: Any, attention_mask: Any) -> Any:
                return self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state

        return Rows().eval()

    def inputs(self, texts: list[str]) -> list[np.ndarray]:
        """Ids and mask of texts of one length."""
        ids_BT = np.array([ids[0] for _, ids in self.tokenizer.batches(texts, 1)])
        return [ids_BT, np.ones_like(ids_BT)]

    def onnx(self, exporter: str, precision: str) -> Path:
        """An .onnx file; if it could not be made, the error, again and again."""
        key = exporter, precision
        if key not in self._files:
            try:
                with _silent():
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
        import openvino
        import torch

        with _silent():
            try:
                given = tuple(map(torch.from_numpy, self.inputs(make_texts(2, 32))))
                return openvino.convert_model(self.module("sdpa"), example_input=given)
            except Exception:  # noqa: BLE001  whatever the tracer meets
                return openvino.convert_model(self.onnx(CURRENT, "float32"))

    @cached_property
    def openvino_int8(self) -> Any:
        import nncf

        texts = make_texts(CALIBRATION, 32)
        dataset = nncf.Dataset([self.inputs([text]) for text in texts])
        with _silent():
            return nncf.quantize(self.openvino, dataset, model_type=nncf.ModelType.TRANSFORMER)


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Without the warnings and progress that exporters print."""
    logging.disable(logging.WARNING)
    try:
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stderr(io.StringIO()),
            contextlib.redirect_stdout(io.StringIO()),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logging.NOTSET)


def _encodes(
    subject: Subject, run: Callable[[np.ndarray, np.ndarray], np.ndarray], how: str = ""
) -> dict[Setting, Encode]:
    """``run``: (ids, mask) [B, T], int64 -> rows [B, T, D]."""

    def padded(ids: list[list[int]]) -> np.ndarray:
        ids_BT = np.zeros((len(ids), max(map(len, ids))), np.int64)
        mask_BT = np.zeros_like(ids_BT)
        for b, row in enumerate(ids):
            ids_BT[b, : len(row)], mask_BT[b, : len(row)] = row, 1
        return run(ids_BT, mask_BT)

    tokenizer, width = subject.tokenizer, subject.architecture.width
    return {Setting(size, how): encode_batches(tokenizer, size, width, padded) for size in subject.batches}


def ours(subject: Subject, threads: int, precision: str) -> dict[Setting, Encode]:
    from fastattn import Encoder

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
            rows_BTD: np.ndarray = runner.run(None, {value.name: given[value.name] for value in runner.get_inputs()})[0]
            return rows_BTD

        optimized = exporter == LEGACY and subject.architecture.optimizer
        found |= _encodes(subject, run, f"{exporter}, optimized" if optimized else exporter)
    if not found and error is not None:
        raise error
    return found


def openvino(subject: Subject, threads: int, precision: str) -> dict[Setting, Encode]:
    import openvino

    settings = {"INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1}
    if precision == "float32":
        settings["INFERENCE_PRECISION_HINT"] = "f32"  # else it may be bfloat16, as beside int8
    model = openvino.compile_model(
        subject.openvino if precision == "float32" else subject.openvino_int8, "CPU", settings
    )
    request = model.create_infer_request()

    def run(ids_BT: np.ndarray, mask_BT: np.ndarray) -> np.ndarray:
        given = [ids_BT, mask_BT][: len(model.inputs)]
        return np.array(request.infer(given)[0])

    return _encodes(subject, run)


BOTH = ("float32", "int8")
ENGINES: dict[str, Engine[Callable[[Subject, int, str], dict[Setting, Encode]]]] = {
    "fastattn": Engine(ours, (), BOTH),
    "PyTorch": Engine(pytorch, ("torch", "transformers"), ("float32",)),
    "ONNX Runtime": Engine(onnx_runtime, ("torch", "transformers", "onnxscript", "onnxruntime"), BOTH),
    "OpenVINO": Engine(openvino, ("torch", "transformers", "openvino", "nncf"), BOTH),
}
