"""What a process imports whose kernels, packed weights and checkpoint others have left in the cache."""

import subprocess
import sys
from pathlib import Path

import pytest

from fastattn.encoders.encoder import Encoder
from fastattn.loading import model_cache
from fastattn.translation.translator import Translator
from tests.encoders.classifiers import write_classifier

RUN = """
import sys
from fastattn.cli import main
sys.argv = ["fastattn", *sys.argv[1:]]
try:
    main()
finally:
    print(*sys.modules, file=sys.stderr)
"""
# With all that is in them.
UNUSED = {
    "numba",
    "huggingface_hub",
    "numpy.ma",
    "numpy.random",
    "numpy.testing",
    "numpy.polynomial",
    "numpy.fft",
    "asyncio",
    "multiprocessing",
    "subprocess",
    "socket",
    "selectors",
    "ssl",
    "http",
    "fastattn.loading.balance",
    "fastattn.array_attention",
    "fastattn.mechanisms",
    "fastattn.plot",
    "fastattn.ops.reference",
    "fastattn.spec.tensors",
    "fastattn.verification",
    "fastattn.weights.containers",
    "fastattn.weights.ctranslate2",
    "fastattn.weights.download.hub",
    "fastattn.weights.download.package_index",
    "fastattn.weights.huggingface",
    "fastattn.weights.marian",
    "fastattn.weights.native",
    "fastattn.weights.tensor_mapping",
    *(f"fastattn.cli.{name}" for name in ("cache", "convert", "inspect", "pull", "search", "verify", "warmup")),
}


def imported(*arguments: str) -> set[str]:
    """The modules of a process that runs a command, with the packages that they are in."""
    done = subprocess.run([sys.executable, "-c", RUN, *arguments], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout, done.stderr
    found = done.stderr.splitlines()[-1].split()
    return {".".join(parts[: n + 1]) for parts in (name.split(".") for name in found) for n in range(len(parts))}


def test_a_warm_translation_imports_no_more_than_it_uses(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_cache, "SETTLED", -1_000_000_000)
    for _ in range(2):
        Translator(model, threads=1).translate("▁w3 ▁w4")
    command = ("translate", "-m", model, "-t", "1", "▁w3 ▁w4")
    found = imported(*command)
    assert {"numpy", "fastattn.translation.translator"} <= found
    assert found & (UNUSED | {"fastattn.encoders.encoder", "fastattn.cli.encode", "tokenizers"}) == set()


def test_warm_vectors_import_no_more_than_they_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_cache, "SETTLED", -1_000_000_000)
    model = str(write_classifier(tmp_path / "model"))
    for _ in range(2):
        Encoder(model, threads=1).encode("w5 w7")
    command = ("encode", "-m", model, "-t", "1", "w5 w7")
    found = imported(*command)
    assert {"numpy", "fastattn.encoders.encoder"} <= found
    others = {"fastattn.translation.translator", "fastattn.decoding", "fastattn.cli.translate", "sentencepiece"}
    assert found & (UNUSED | others) == set()
