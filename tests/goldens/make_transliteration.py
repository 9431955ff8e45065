"""Writes transliteration.json: what e2k's own program makes of English words, and thai2rom's ONNX files of Thai ones.

python -m tests.goldens.make_transliteration E2K THAI2ROM, the folders of e2k's package and of the catalog's thai2rom.
"""

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from bench.onnx_thai2rom import Thai2Rom
from tests.goldens.writing import write_json

WORDS = [
    "hello", "Machine", "it's", "katakana", "x", "new york", "Straße!", "42", "translation", "aaaaaaaaaaaaaaaaaaaaaaaa",
]  # fmt: skip
THAI = ["สวัสดี", "แมว", "กรุงเทพ", "มหาวิทยาลัย", "ภาษาไทย", "น้ำ", "ก", "!", "xyz", "ประเทศไทย 2567"]


def e2k(folder: Path) -> Callable[[str], str]:
    """Its own program, by the file that has it: NumPy alone."""
    spec = importlib.util.spec_from_file_location("e2k_inference", folder / "inference.py")
    assert spec is not None and spec.loader is not None
    program: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    return program.C2K(path=str(folder / "models" / "model-c2k.safetensors"))


if __name__ == "__main__":
    programs = {"e2k": (e2k(Path(sys.argv[1])), WORDS), "thai2rom": (Thai2Rom(Path(sys.argv[2])), THAI)}
    made = f"e2k 0.8.1, numpy {np.__version__}, onnxruntime {onnxruntime.__version__}, pythainlp 5.4.0"
    answers = {name: [[text, program(text)] for text in texts] for name, (program, texts) in programs.items()}
    write_json("transliteration", {"versions": made, **answers}, indent=1, ensure_ascii=False)
