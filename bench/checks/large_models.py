"""Models that are large for their machine: what loading and converting one takes, and the projection onto its words."""

import json
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.checks import Data, Findings, check
from bench.checks.start import python
from bench.large_translator import write
from bench.memory import peak_of_command
from fastattn.system.cache_folder import cache_root

SHAPE = "NLLB-1.3B's shape, random weights, 5.5 GB of float32"
LOAD = """
import json, sys, time
start = time.perf_counter()
from fastattn import Translator
model = Translator(sys.argv[1], precision="int8", threads=2)
took = time.perf_counter() - start
print(json.dumps([took, model.translate("a b c", beam_size=1, max_decoding_length=8, min_decoding_length=8)]))
"""


@contextmanager
def _scratch() -> Iterator[tuple[Path, Path]]:
    """(the checkpoint's folder, an empty cache with the kernels of the machine's), deleted afterwards."""
    with tempfile.TemporaryDirectory(prefix="fastattn-large-") as name:
        folder, cache = Path(name), Path(name) / "cache"
        cache.mkdir()
        kernels = cache_root().absolute() / "kernels"
        kernels.mkdir(parents=True, exist_ok=True)
        (cache / "kernels").symlink_to(kernels, target_is_directory=True)
        yield write(folder / "large"), cache


@check(
    "large-load",
    f"{SHAPE}, in int8: the first load, which packs it, and a sentence in at most 1.2 x the packed weights' bytes at "
    "the peak; later loads in a second",
)
def load(findings: Findings, data: Data) -> None:
    with _scratch() as (folder, cache):
        environment = {**os.environ, "FASTATTN_CACHE": str(cache)}
        command = [sys.executable, "-c", LOAD, str(folder)]
        peak = peak_of_command(command, environment)
        (packed,) = (cache / "packed").glob("*.packed")
        size = packed.stat().st_size
        findings.at_most("first load:", peak / size, f"x {size / 1e6:.0f} MB", 1.2, f"{peak / 1e6:.0f} MB")
        found = [json.loads(python("-c", LOAD, str(folder), cache=cache)) for _ in range(5)]
        times = [took for took, _ in found][1:]  # the first of them writes what the others find
        findings.at_most("later:", statistics.median(times), "s", 1.0, f"{min(times):.2f} to {max(times):.2f} s")
        peak = peak_of_command(command, environment)
        findings.say(f"later peak {peak / 1e6:.0f} MB")


@check("large-convert", f"{SHAPE}: convert --precision int8 with at most its folder's bytes in memory at the peak")
def convert(findings: Findings, data: Data) -> None:
    with _scratch() as (folder, cache):
        out = folder.parent / "out"
        command = [sys.executable, "-m", "fastattn.cli", "convert", str(folder), str(out), "--precision", "int8"]
        peak = peak_of_command(command, {**os.environ, "FASTATTN_CACHE": str(cache)})
        size = (out / "model.safetensors").stat().st_size
        findings.at_most("peak", peak / size, f"x {size / 1e6:.0f} MB", 1.0, f"{peak / 1e6:.0f} MB")
        shutil.rmtree(out)
