"""A little BERT in a folder, and a weight changed on its way here."""

import json
from pathlib import Path
from typing import Any

import pytest

from fastattn.spec.quantized import as_float32
from fastattn.weights.huggingface import encoders
from tests.architectures.cases import GOLDEN_CASES
from tests.architectures.drawing import draw_all
from tests.architectures.folders import write_folder
from tests.architectures.goldens import read_goldens
from tests.weights.containers.safetensors_writer import write_json

# Words of its tokenizer, an unknown one, one text beyond its 40 positions.
TEXTS = ("w5 w7 w11 hello w9", "w6", " ".join(f"w{i}" for i in range(5, 60)))
LAYERS = 3


def write_bert(folder: Path) -> Path:
    (case,) = (case for case in GOLDEN_CASES if case.name == "bert-0")
    shapes, _ = read_goldens(case)
    folder.mkdir()
    write_folder(folder, case.config, draw_all(shapes, case.seed))
    write_json(folder / "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "[PAD]"})
    return folder


def damage(monkeypatch: pytest.MonkeyPatch, folder: Path, name: str) -> None:
    """From now on the tensor of that name is another one once it is read: one number of it.

    The folder's files change too, so that no packed weights of the undamaged model are found.
    """
    config = json.loads((folder / "config.json").read_text())
    write_json(folder / "config.json", config | {"_name_or_path": name})
    make_tensors = encoders.make_tensors

    def damaged(*arguments: Any) -> Any:
        tensors = dict(make_tensors(*arguments))
        tensors[name] = as_float32(tensors[name]).copy()
        tensors[name].flat[3] += 4.0
        return tensors

    monkeypatch.setattr(encoders, "make_tensors", damaged)
