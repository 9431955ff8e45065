"""Write gguf.npz: blocks of each type of GGUF and what the gguf package makes of them, and a file that it writes.

python -m tests.goldens.make_gguf       in an environment with the gguf package
"""

import tempfile
from pathlib import Path

import gguf
import numpy as np

from tests import GOLDENS

FINITE = {"Q4_K": (144, (0, 2)), "Q5_K": (176, (0, 2)), "Q6_K": (210, (208,))}  # bytes of a block, its float16 scales
TYPES = ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", *FINITE)


def blocks(name: str, generator: np.random.Generator) -> np.ndarray:
    """Two rows: quantized by the package, or of random bytes where it cannot quantize."""
    if name not in FINITE:
        values = generator.standard_normal((2, 64)).astype(np.float32)
        return gguf.quants.quantize(values, gguf.GGMLQuantizationType[name]).view(np.uint8)
    size, halves = FINITE[name]
    data = generator.integers(0, 256, (2, size), dtype=np.uint8)
    for at in halves:
        data[:, at : at + 2] = generator.standard_normal((2, 1)).astype(np.float16).view(np.uint8)
    return data


def file(data: np.ndarray) -> np.ndarray:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "written.gguf"
        writer = gguf.GGUFWriter(path, "llama")
        writer.add_custom_alignment(64)
        writer.add_string("a.text", "naïve 明天")
        writer.add_array("a.list", ["one", "", "three"])
        writer.add_array("some.numbers", [1.5, -2.0])
        writer.add_bool("a.truth", True)
        writer.add_uint64("a.count", 1 << 40)
        writer.add_tensor("floats", np.arange(6, dtype=np.float32).reshape(2, 3))
        writer.add_tensor("blocks", data, raw_dtype=gguf.GGMLQuantizationType.Q4_1)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return np.fromfile(path, np.uint8)


def main() -> None:
    generator, arrays = np.random.default_rng(31), {}
    for name in TYPES:
        arrays[f"{name} blocks"] = blocks(name, generator)
        arrays[f"{name} numbers"] = gguf.quants.dequantize(
            arrays[f"{name} blocks"], gguf.GGMLQuantizationType[name]
        ).astype(np.float32)
    arrays["written"] = file(arrays["Q4_1 blocks"])
    np.savez_compressed(GOLDENS / "gguf.npz", **arrays)


if __name__ == "__main__":
    main()
