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
UNUSED = """
    numba huggingface_hub numpy.ma numpy.random numpy.testing numpy.polynomial numpy.fft
    asyncio multiprocessing subprocess socket selectors ssl http
    fastattn.loading.balance fastattn.array_attention fastattn.mechanisms fastattn.plot fastattn.ops.reference
    fastattn.spec.tensors fastattn.verification fastattn.weights.containers fastattn.weights.ctranslate2
    fastattn.weights.download.hub fastattn.weights.download.package_index fastattn.weights.huggingface
    fastattn.weights.marian fastattn.weights.native fastattn.weights.tensor_mapping
    fastattn.cli.cache fastattn.cli.convert fastattn.cli.inspect fastattn.cli.pull fastattn.cli.search
    fastattn.cli.verify fastattn.cli.warmup
"""


def imported(*arguments: str) -> set[str]:
    """The modules of a process that runs a command, with the packages that they are in."""
    done = subprocess.run([sys.executable, "-c", RUN, *arguments], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout, done.stderr
    found = done.stderr.splitlines()[-1].split()
    return {".".join(parts[: n + 1]) for parts in (name.split(".") for name in found) for n in range(len(parts))}


@pytest.mark.parametrize(
    "command, used, unused",
    [
        ("translate", "fastattn.translation.translator", "fastattn.encoders.encoder fastattn.cli.encode tokenizers"),
        (
            "encode",
            "fastattn.encoders.encoder",
            "fastattn.translation.translator fastattn.decoding fastattn.cli.translate sentencepiece",
        ),
    ],
    ids=["translate", "encode"],
)
def test_a_warm_start_imports_no_more_than_it_uses(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, used: str, unused: str
) -> None:
    monkeypatch.setattr(model_cache, "SETTLED_NS", -1_000_000_000)
    text, name = "▁w3 ▁w4", model if command == "translate" else str(write_classifier(tmp_path / "model"))
    for _ in range(2):
        if command == "translate":
            Translator(name, threads=1).translate(text)
        else:
            Encoder(name, threads=1).encode(text)
    found = imported(command, "-m", name, "-t", "1", text)
    assert {"numpy", used} <= found
    assert found & {*UNUSED.split(), *unused.split()} == set()
