"""What Hugging Face transformers computes: a case's folder as it saves one, and the rows and logits of its sentences."""

import json
import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from tests.architectures.cases import Case, make_ids, make_types
from tests.architectures.drawing import FROZEN, draw
from tests.architectures.folders import write_tokenizer
from tests.weights.containers.safetensors_writer import safetensors_bytes

os.environ.setdefault("HF_HUB_OFFLINE", "1")
CLASSES = {
    "encoder": "AutoModel",
    "sequence-classification": "AutoModelForSequenceClassification",
    "token-classification": "AutoModelForTokenClassification",
    "fill-mask": "AutoModelForMaskedLM",
}


def _class_of(case: Case) -> Any:
    import transformers

    if case.model_type == "t5" and case.task == "encoder":
        return transformers.T5EncoderModel
    return getattr(transformers, CLASSES[case.task])


def tensor_shapes(file: Path) -> dict[str, tuple[int, ...]]:
    """The names and shapes in a safetensors file."""
    data = file.read_bytes()
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    return {name: tuple(entry["shape"]) for name, entry in header.items() if name != "__metadata__"}


def save(case: Case, folder: Path) -> Path:
    """The folder as ``save_pretrained`` writes it, with drawn weights and a tiny tokenizer."""
    import transformers

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        config = transformers.AutoConfig.for_model(**case.config)
        kind = _class_of(case)
        model = kind(config) if kind.__name__ == "T5EncoderModel" else kind.from_config(config)
        model.save_pretrained(folder)
    file = folder / "model.safetensors"
    shapes = {name: shape for name, shape in tensor_shapes(file).items() if not name.endswith(FROZEN)}
    file.write_bytes(safetensors_bytes({name: draw(name, shape, case.seed) for name, shape in shapes.items()}))
    write_tokenizer(folder, case.model_type)
    return folder


def load(case: Case, folder: Path) -> Any:
    """The model in a folder, as everyone loads it, in float32 with the plain attention; each weight comes from there."""
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model, report = _class_of(case).from_pretrained(
            folder, attn_implementation="eager", dtype=torch.float32, output_loading_info=True
        )
    left = {kind: names for kind, names in report.items() if names}
    assert not left, left
    return model.eval()


def outputs(case: Case, model: Any) -> list[np.ndarray]:
    """For each sentence alone: last hidden states [T, D], or the head's logits [labels], [T, labels] or [T, V]."""
    import torch

    found = []
    types_B = make_types(case)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for b, ids in enumerate(make_ids(case)):
            given = {} if types_B is None else {"token_type_ids": torch.from_numpy(types_B[b].astype(np.int64))[None]}
            output = model(input_ids=torch.from_numpy(ids.astype(np.int64))[None], **given)
            found.append((output.last_hidden_state if case.task == "encoder" else output.logits)[0].numpy())
    return found
