"""What a type checker makes of the public names: right uses have their types, wrong ones are told of."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT

pytest.importorskip("mypy", reason="mypy comes with the check extra")


USES = """
from collections.abc import Iterator

import numpy as np
from fastattn import DecodingOptions, Encoder, ExecutionStats, Score, Step, TokenTranslation, Translation, Translator
from fastattn import errors, mechanisms
from fastattn.ops import cpu as operations, reference
from fastattn.ops.protocol import Ops
from typing_extensions import assert_type

translator = Translator("en-pt")
flag = bool(input())
assert_type(translator.translate("a"), str)
assert_type(translator.translate("a", beam_size=4, target_prefix="b"), str)
assert_type(translator.translate("a", details=True, num_hypotheses=2), Translation)
assert_type(translator.translate(["a", "b"], target_prefix=["c", None]), list[str])
assert_type(translator.translate(("a",), details=False), list[str])
assert_type(translator.translate(iter(["a"]), details=True), list[Translation])
translator.translate("a", details=flag)


async def translations() -> None:
    assert_type(await translator.translate_async("a", beam_size=4, caller="b"), str)
    assert_type(await translator.translate_async("a", details=True), Translation)
    assert_type(await translator.translate_async(["a"]), list[str])
    assert_type(await translator.translate_async(["a"], details=True, target_prefix=["b"]), list[Translation])
    await translator.translate_async("a", details=flag)
    (await translator.translate_async("a")).text  # wrong
    await translator.translate_async(3)  # wrong


assert_type(translator.translate_iter(["a"]), Iterator[str])
assert_type(translator.translate_iter(open("a.txt"), details=True, target_prefix=open("b.txt")), Iterator[Translation])
assert_type(translator.score("a", "b"), Score)
assert_type(translator.score(["a"], ["b"]), list[Score])
assert_type(translator.translate_tokens([["a"], ["b"]], [["c"], None]), list[TokenTranslation])
assert_type(translator.generate_tokens("a"), Iterator[Step])
assert_type(translator.generate_tokens(["a"], ["b"], sampling_topk=0), Iterator[Step])
assert_type(translator.translate_file("a.txt", "b.txt"), ExecutionStats)
assert_type(translator.precision, str)
assert_type(Encoder("minilm").precision, str)
assert_type(Encoder("minilm").encode("a", task="query"), np.ndarray)
assert_type(translator.default_options, DecodingOptions)
assert_type(DecodingOptions(beam_size=3).limit(5, 0), int)
assert_type(translator.translate("a", details=True).parts[0].log_probabilities, list[float])

array = np.zeros((1, 2, 3), np.float32)
assert_type(mechanisms.attend(array, array, array, score=mechanisms.Dot()), np.ndarray)
mechanisms.attend(array, array, array, return_weights=True)[1].mean()

namespace: Ops = operations
namespace = reference

mechanisms.attend(array, array, array, score="dot")  # wrong
namespace = errors  # wrong
translator.translate(3)  # wrong
translator.translate("a", target_prefix=3)  # wrong
translator.translate("a").text  # wrong
translator.translate(["a"]).strip()  # wrong
translator.translate_iter(3)  # wrong
translator.score(["a"], ["b"]).log_probs  # wrong
translator.translate("a", details=True).upper()  # wrong
DecodingOptions(beam=3)  # wrong
Encoder("minilm", device="cpu")
Encoder("minilm", device=0)  # wrong
Encoder("minilm").encode("a", normalise=True)  # wrong
translator.precision = "int8"  # wrong
"""


@pytest.mark.slow
def test_mypy_sees_what_a_reader_sees(tmp_path: Path) -> None:
    """The package is laid out as it is installed, in a copy: a clone's rooms lie elsewhere."""
    package = tmp_path / "path" / "fastattn"
    for source, target in (("fastattn", package), ("weights", package / "weights"), ("cli", package / "cli")):
        shutil.copytree(ROOT / source, target, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "uses.py").write_text(USES, encoding="utf-8")
    settings = "[mypy]\nignore_missing_imports = true\n[mypy-numba.*,llvmlite.*]\nfollow_imports = skip\n"
    (tmp_path / "mypy.ini").write_text(settings, encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "uses.py", "--no-color-output", "--no-error-summary"]
    environment = {**os.environ, "MYPYPATH": str(package.parent)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=500)
    assert done.stderr == ""
    told = {line.partition(": error: ")[0] for line in done.stdout.splitlines() if ": error: " in line}
    wrong = {f"uses.py:{n}" for n, line in enumerate(USES.splitlines(), start=1) if line.endswith("# wrong")}
    assert told == wrong, done.stdout
