"""Writes Marian folders, .npz and .bin, and makes random little models to put in them."""

import io
import json
import re
import struct
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

Arrays = dict[str, np.ndarray]
TYPE_IDS = {"float32": 0x404, "float16": 0x402, "int8": 0x101, "int16": 0x102}
BROWSERMT, MARIAN = 0x4101, 0x10001  # how they number int8 matrices for intgemm

# What Marian writes of itself into every model, at the defaults that tests start from.
OPTIONS: dict[str, object] = {
    "type": "transformer", "version": "v1.11.0 f00d 2022-02-08", "dim-emb": 16, "dim-vocabs": [40, 40],
    "enc-depth": 2, "dec-depth": 2, "transformer-heads": 4, "transformer-dim-ffn": 24, "transformer-ffn-depth": 2,
    "transformer-ffn-activation": "swish", "transformer-decoder-autoreg": "self-attention", "dec-cell": "gru",
    "transformer-preprocess": "", "transformer-postprocess": "dan", "transformer-postprocess-emb": "d",
    "transformer-postprocess-top": "", "transformer-no-projection": False, "transformer-tied-layers": [],
    "transformer-guided-alignment-layer": "last", "transformer-train-position-embeddings": False,
    "transformer-dim-aan": 20, "transformer-aan-depth": 2, "transformer-aan-activation": "swish",
    "transformer-aan-nogate": False, "tied-embeddings": False, "tied-embeddings-src": False,
    "tied-embeddings-all": True, "right-left": False, "input-types": [], "layer-normalization": False, "skip": False,
    "dim-rnn": 1024, "enc-cell": "gru", "enc-type": "bidirectional", "lemma-dim-emb": 0, "ulr": False,
    "bert-type-vocab-size": 2, "output-omit-bias": False, "transformer-pool": False,
}  # fmt: skip


def yml_bytes(options: Mapping[str, object]) -> bytes:
    """A map of scalars and lists as Marian spells it."""
    lines = []
    for name, value in options.items():
        if isinstance(value, list) and value:
            lines += [f"{name}:", *(f"  - {_scalar(item)}" for item in value)]
        else:
            lines.append(f"{name}: {'[]' if value == [] else _scalar(value)}")
    return "\n".join(lines).encode()


def _scalar(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else '""' if value == "" else str(value)


def settings(options: Mapping[str, object]) -> np.ndarray:
    """special:model.yml as an array."""
    return np.frombuffer(yml_bytes(options) + b"\0", np.int8)


def npz_bytes(arrays: Mapping[str, np.ndarray], method: int = zipfile.ZIP_STORED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, array in arrays.items():
            member = io.BytesIO()
            np.lib.format.write_array(member, array, allow_pickle=False)
            archive.writestr(zipfile.ZipInfo(name + ".npy", (1980, 1, 1, 0, 0, 0)), member.getvalue(), method)
    return buffer.getvalue()


def bin_bytes(arrays: Mapping[str, np.ndarray], intgemm: int = 0, version: int = 1) -> bytes:
    """A .bin; ``intgemm`` numbers the type of matrices that become int8, as the converter of that number would."""
    headers, shapes, bodies = [], [], []
    for name, array in arrays.items():
        body, kind = array.tobytes(), TYPE_IDS[array.dtype.name]
        if intgemm and is_quantized(name, intgemm):
            values, scale = quantize(array)
            transposed = intgemm == MARIAN or "Wemb" not in name
            body, kind = (values.T if transposed else values).tobytes() + struct.pack("<f", scale), intgemm
        bodies.append(body + bytes(-len(body) % 256))
        headers.append(struct.pack("<4Q", len(name) + 1, kind, array.ndim, len(bodies[-1])))
        shapes.append(struct.pack(f"<{array.ndim}i", *array.shape))
    start = struct.pack("<2Q", version, len(arrays)) + b"".join(headers)
    start += b"".join(name.encode() + b"\0" for name in arrays) + b"".join(shapes)
    padding = 256 - (len(start) + 8) % 256
    return start + struct.pack("<Q", padding) + bytes(padding) + b"".join(bodies)


def is_quantized(name: str, intgemm: int) -> bool:
    """By the ends of names, as the converters do."""
    return bool(re.search("_W.?$", name)) or (intgemm == BROWSERMT and "Wemb" in name)


def quantize(array: np.ndarray) -> tuple[np.ndarray, np.float32]:
    """(int8 values, what they were multiplied by)."""
    scale = np.float32(127) / np.float32(np.abs(array).max())
    return np.rint(array * scale).astype(np.int8), scale


def with_alphas(arrays: Mapping[str, np.ndarray], intgemm: int = BROWSERMT) -> Arrays:
    """The same with scales of inputs beside what bin_bytes quantizes, one for all that meet the same inputs."""
    found = {name for name in arrays if is_quantized(name, intgemm)}
    alphas = {}
    for number, name in enumerate(sorted(found)):
        place = re.sub("_W[qkvf]?$", "", name) if not name.endswith("context_Wq") else name
        alphas[name + "_QuantMultA"] = np.full((1, 1), 8 + (sum(place.encode()) + number * (name == place)) % 9)
    alphas["none_QuantMultA"] = np.full((1, 1), 9.5)
    return dict(arrays) | {name: value.astype(np.float32) for name, value in alphas.items()}


def vocabulary(size: int = 40) -> list[str]:
    return (["</s>", "<unk>"] + [f"▁w{i}" for i in range(size)])[:size]


def vocabulary_bytes(tokens: Sequence[str]) -> bytes:
    """A vocab.yml."""
    return "".join(f"{token}: {i}\n" for i, token in enumerate(tokens)).encode()


def vocabulary_json(tokens: Sequence[str]) -> bytes:
    """The same as JSON, which has a way to write every token."""
    return json.dumps({token: i for i, token in enumerate(tokens)}).encode()


def files(
    arrays: Mapping[str, np.ndarray], options: Mapping[str, object], model: str = "model.npz", **config: object
) -> dict[str, bytes]:
    """A folder's files: the model (a .bin with ``intgemm``), vocab.yml, config.yml."""
    intgemm = config.pop("intgemm", 0)
    assert isinstance(intgemm, int)
    stored = dict(arrays) | {"special:model.yml": settings(options)}
    lines = {"relative-paths": True, "models": [model], "vocabs": ["vocab.yml", "vocab.yml"]} | config
    return {
        model: npz_bytes(stored) if model.endswith(".npz") else bin_bytes(stored, intgemm),
        "vocab.yml": vocabulary_bytes(vocabulary()),
        "config.yml": yml_bytes({name.replace("_", "-"): value for name, value in lines.items()}),
    }


def write(path: Path, contents: Mapping[str, bytes]) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        (path / name).write_bytes(content)
    return path


def random_model(seed: int = 0, size: int = 40, **changes: object) -> tuple[Arrays, dict[str, object]]:
    """(arrays, options) with random float32 values; ``changes`` to OPTIONS, with _ for -."""
    options = OPTIONS | {name.replace("_", "-"): value for name, value in changes.items()}
    rng = np.random.default_rng(seed)
    arrays: Arrays = {}
    width, inner = int(str(options["dim-emb"])), int(str(options["transformer-dim-ffn"]))
    decoder_inner = int(str(options.get("transformer-decoder-dim-ffn", 0))) or inner
    kind = "rms" if "r" in f"{options['transformer-preprocess']}{options['transformer-postprocess']}" else "ln"
    before = bool(options["transformer-preprocess"])
    projected = not options["transformer-no-projection"]

    def matrix(name: str, inputs: int, outputs: int) -> None:
        arrays[name] = rng.normal(0, inputs**-0.5, (inputs, outputs)).astype(np.float32)

    def vector(name: str, length: int, middle: float = 0.0) -> None:
        arrays[name] = (middle + 0.1 * rng.normal(size=(1, length))).astype(np.float32)

    def linear(name: str, end: str, inputs: int, outputs: int) -> None:
        matrix(f"{name}_W{end}", inputs, outputs)
        vector(f"{name}_b{end}", outputs)

    def norm(name: str, end: str = "") -> None:
        vector(f"{name}_{kind}_scale{end}", width, 1.0)
        if kind == "ln":
            vector(f"{name}_ln_bias{end}", width)

    def attention(name: str) -> None:
        for end in "qkvo" if projected else "qkv":
            linear(name, end, width, width)
        norm(f"{name}_Wo", "_pre" if before else "")

    def autoregression(layer: str) -> None:
        match options["transformer-decoder-autoreg"]:
            case "rnn":
                matrix(f"{layer}_rnn_W", width, width)
                linear(f"{layer}_rnn", "f", width, width)
                norm(f"{layer}_rnn" if before else f"{layer}_rnn_ffn", "_pre" if before else "")
            case "average-attention":
                average = int(str(options["transformer-dim-aan"]))
                if options["transformer-aan-depth"] == 2:
                    linear(f"{layer}_aan", "1", width, average)
                    if average != width:
                        linear(f"{layer}_aan", "2", average, width)
                for end in "" if options["transformer-aan-nogate"] else "if":
                    linear(f"{layer}_aan", end, width, width)
                norm(f"{layer}_aan_ffn", "_pre" if before else "")
            case _:
                attention(f"{layer}_self")

    tied = options["tied-embeddings-all"] or options["tied-embeddings-src"]
    for name in ["Wemb"] if tied else ["encoder_Wemb", "decoder_Wemb"]:
        arrays[name] = rng.normal(0, 2 * width**-0.5, (size, width)).astype(np.float32)
    if options["transformer-train-position-embeddings"]:
        arrays["Wpos"] = rng.normal(0, 1, (30, width)).astype(np.float32)
    tied_layers = options["transformer-tied-layers"]
    assert isinstance(tied_layers, list)
    decoder_layers = sorted(set(tied_layers)) or range(1, int(str(options["dec-depth"])) + 1)
    for stack, layers in (("encoder", range(1, int(str(options["enc-depth"])) + 1)), ("decoder", decoder_layers)):
        for number in layers:
            layer = f"{stack}_l{number}"
            if stack == "decoder":
                autoregression(layer)
                attention(f"{layer}_context")
            else:
                attention(f"{layer}_self")
            linear(f"{layer}_ffn", "1", width, inner if stack == "encoder" else decoder_inner)
            linear(f"{layer}_ffn", "2", inner if stack == "encoder" else decoder_inner, width)
            norm(f"{layer}_ffn_ffn", "_pre" if before else "")
        if set(str(options["transformer-postprocess-emb"])) & set("nr"):
            norm(f"{stack}_emb", "_pre")
        if options["transformer-postprocess-top"]:
            norm(f"{stack}_top")
    if not options["tied-embeddings-all"] and not options["tied-embeddings"]:
        arrays["decoder_ff_logit_out_Wt"] = rng.normal(0, 2 * width**-0.5, (size, width)).astype(np.float32)
    if not options["output-omit-bias"]:
        vector("decoder_ff_logit_out_b", size)
        arrays["decoder_ff_logit_out_b"][0, 0] += 1.5  # so that translations end
    return arrays, options
