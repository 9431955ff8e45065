"""Writes transliteration.json: what e2k's own program makes of English words, and thai2rom's ONNX files of Thai ones.

Run in an environment with onnxruntime, where FOLDERs are e2k's package and the catalog's thai2rom:
python -m tests.goldens.make_transliteration E2K THAI2ROM
"""

import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from bench.onnx_thai2rom import Thai2Rom

WORDS = [
    "hello",
    "Machine",
    "it's",
    "katakana",
    "x",
    "new york",
    "Straße!",
    "42",
    "translation",
    "aaaaaaaaaaaaaaaaaaaaaaaa",
]
THAI = ["สวัสดี", "แมว", "กรุงเทพ", "มหาวิทยาลัย", "ภาษาไทย", "น้ำ", "ก", "!", "xyz", "ประเทศไทย 2567"]


def e2k(folder: Path) -> Callable[[str], str]:
    """Its own program, by the file that has it: NumPy alone."""
    spec = importlib.util.spec_from_file_location("e2k_inference", folder / "inference.py")
    assert spec is not None and spec.loader is not None
    program: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    translate: Callable[[str], str] = program.C2K(path=str(folder / "models" / "model-c2k.safetensors"))
    return translate


def main() -> None:
    programs = {"e2k": (e2k(Path(sys.argv[1])), WORDS), "thai2rom": (Thai2Rom(Path(sys.argv[2])), THAI)}
    document = {
        "versions": f"e2k 0.8.1, numpy {np.__version__}, onnxruntime {onnxruntime.__version__}, pythainlp 5.4.0",
        **{name: [[text, program(text)] for text in texts] for name, (program, texts) in programs.items()},
    }
    text = json.dumps(document, indent=1, ensure_ascii=False)
    Path(__file__).with_name("transliteration.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
