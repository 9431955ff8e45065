"""Small recurrent models of random weights, by their sources' names, and the files that the sources write of them."""

import json
import struct
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from tests.text.spm_bytes import field, varint
from tests.weights.containers import pytorch_writer as pickles
from tests.weights.containers.pytorch_writer import pytorch_bytes
from tests.weights.containers.safetensors_writer import safetensors_bytes

Weights = dict[str, np.ndarray]
LETTERS = ["<pad>", "<sos>", "<eos>", *"abcdefg' "]
KANA = ["<pad>", "<sos>", "<eos>", *"アイウエオカキー"]
WORDS = ["<unk>", "<blank>", "<s>", "</s>", *(f"w{i}" for i in range(9))]
THAI = {
    "char_to_ix": {token: i for i, token in enumerate(["<PAD>", "<UNK>", "<start>", "<end>", *"กขคง"])},
    "target_char_to_ix": {token: i for i, token in enumerate(["<PAD>", "<start>", "<end>", *"kngao"])},
}


def shaped(shapes: Mapping[str, Sequence[int]], seed: int) -> Weights:
    random = np.random.default_rng(seed)
    return {name: random.uniform(-0.9, 0.9, shape).astype(np.float32) for name, shape in shapes.items()}


def rnn(
    prefix: str, gates: int, units: int, inputs: int, layers: int = 1, ends: Sequence[str] = ("",)
) -> dict[str, tuple[int, ...]]:
    """The shapes of torch.nn.LSTM's or GRU's tensors."""
    shapes: dict[str, tuple[int, ...]] = {}
    for layer in range(layers):
        width = units * len(ends) if layer else inputs
        for end in ends:
            shapes[f"{prefix}weight_ih_l{layer}{end}"] = (gates * units, width)
            shapes[f"{prefix}weight_hh_l{layer}{end}"] = (gates * units, units)
            shapes[f"{prefix}bias_ih_l{layer}{end}"] = shapes[f"{prefix}bias_hh_l{layer}{end}"] = (gates * units,)
    return shapes


BOTH = ("", "_reverse")


def e2k(seed: int = 1, units: int = 8) -> Weights:
    return shaped(
        {
            "e_emb.weight": (len(LETTERS), units),
            "k_emb.weight": (len(KANA), units),
            **rnn("encoder.", 3, units, units, ends=BOTH),
            "encoder_fc.0.weight": (units, 2 * units),
            "encoder_fc.0.bias": (units,),
            **rnn("pre_decoder.", 3, units, units),
            **rnn("post_decoder.", 3, units, 2 * units),
            "attn.in_proj_weight": (3 * units, units),
            "attn.in_proj_bias": (3 * units,),
            "attn.out_proj.weight": (units, units),
            "attn.out_proj.bias": (units,),
            "fc.weight": (len(KANA), units),
            "fc.bias": (len(KANA),),
        },
        seed,
    )


def e2k_bytes(weights: Weights, letters: Sequence[str] = LETTERS, **metadata: str) -> bytes:
    tables = {"in_table": "\0".join(letters), "out_table": "\0".join(KANA), "sos_idx": "1", "eos_idx": "2"}
    return safetensors_bytes(weights, tables | metadata)


def tutorial(attention: bool, seed: int = 2, units: int = 6) -> Weights:
    shapes: dict[str, tuple[int, ...]] = {
        "encoder.embedding.weight": (len(WORDS), units),
        **rnn("encoder.gru.", 3, units, units),
        "decoder.embedding.weight": (len(WORDS), units),
        **rnn("decoder.gru.", 3, units, units * (1 + attention)),
        "decoder.out.weight": (len(WORDS), units),
        "decoder.out.bias": (len(WORDS),),
    }
    for name, rows in (("Wa", units), ("Ua", units), ("Va", 1)) if attention else ():
        shapes |= {f"decoder.attention.{name}.weight": (rows, units), f"decoder.attention.{name}.bias": (rows,)}
    return shaped(shapes, seed)


TUTORIAL = b"""
[text]
bos_token = "<s>"
eos_token = "</s>"
decoder_start_token = "<s>"
"""


def tutorial_files(weights: Weights, attention: bool, apart: bool = False) -> dict[str, bytes]:
    """One state dict, or one of the encoder and one of the decoder."""
    words = "".join(f"{word}\n" for word in WORDS).encode()
    like = b'like = "pytorch-attention"' if attention else b'like = "pytorch-seq2seq"'
    files = {"fastattn.toml": like + TUTORIAL, "source.txt": words, "target.txt": words}
    if not apart:
        return files | {"model.pt": pytorch_bytes(weights)}
    for stack in ("encoder", "decoder"):
        own = {name.removeprefix(f"{stack}."): value for name, value in weights.items() if name.startswith(stack)}
        files[f"{stack}.pt"] = pytorch_bytes(own)
    return files


def thai2rom(seed: int = 3, units: int = 4) -> Weights:
    """By PyTorch's names, before the export."""
    source, target = (len(THAI[name]) for name in ("char_to_ix", "target_char_to_ix"))
    return shaped(
        {
            "encoder.character_embedding.weight": (source, 5),
            **rnn("encoder.lstm.", 4, units, 5, ends=BOTH),
            "decoder.character_embedding.weight": (target, 3),
            **rnn("decoder.lstm.", 4, 2 * units, 2 * units + 3),
            "decoder.attn.attn.weight": (2 * units, 2 * units),
            "decoder.attn.attn.bias": (2 * units,),
            "decoder.linear.weight": (target, 2 * units),
            "decoder.linear.bias": (target,),
        },
        seed,
    )


def thai2rom_files(weights: Weights) -> dict[str, bytes]:
    tables = {name: dict(reversed(ids.items())) for name, ids in THAI.items()}  # ids need not be in order
    files = {"thai2rom_loader_onnx.json": json.dumps(tables).encode()}
    for stack, ends in (("encoder", BOTH), ("decoder", ("",))):
        own = {name.removeprefix(f"{stack}."): value for name, value in weights.items() if name.startswith(stack)}
        files[f"thai2rom_{stack}.onnx"] = onnx_bytes(own, ends, packed=stack == "decoder")
    return files


def pointer(seed: int = 5, units: int = 6, places: int = 12) -> Weights:
    shapes: dict[str, tuple[int, ...]] = {"decoder.attention.score.weight": (1, units)}
    for stack in ("encoder", "decoder"):
        for part, inputs in (("input", 2), ("state", units)):
            layer = f"{stack}.layers.0.{part}"
            shapes |= {f"{layer}.weight": (4 * units, inputs), f"{layer}.bias": (4 * units,)}
    for part, inputs in (("query", units), ("key", units + 2)):
        linear = f"decoder.attention.{part}"
        shapes |= {f"{linear}.weight": (units, inputs), f"{linear}.bias": (units,)}
    return shaped(shapes, seed) | {"decoder.projection.weight": np.eye(places, dtype=np.float32)}


def pointer_files(weights: Weights) -> dict[str, bytes]:
    return {"fastattn.toml": b'like = "pointer"', "model.pt": pytorch_bytes(weights)}


def initializer(name: str, value: np.ndarray, packed: bool = False) -> bytes:
    """A TensorProto; ``packed``: in float_data, with packed dims."""
    dims = field(1, b"".join(map(varint, value.shape))) if packed else b"".join(field(1, size) for size in value.shape)
    return dims + field(2, 1) + field(8, name) + field(4 if packed else 9, value.astype("<f4").tobytes())


def attribute(name: str, value: int | str) -> bytes:
    is_text = isinstance(value, str)
    return field(1, name) + field(4 if is_text else 3, value) + field(20, 3 if is_text else 2)


def lstm_node(
    ends: Sequence[str], units: int, inputs: Iterable[str] = ("238", "239", "237"), **more: int | str
) -> bytes:
    attributes: dict[str, int | str] = {"hidden_size": units} | (
        {"direction": "bidirectional"} if len(ends) > 1 else {}
    )
    names = b"".join(field(1, name) for name in ("x", *inputs))
    return names + field(4, "LSTM") + b"".join(field(5, attribute(*item)) for item in (attributes | more).items())


def onnx_lstm(weights: Weights, ends: Sequence[str]) -> Weights:
    """W, R and B as 238, 239 and 237: of each direction the gates input, output, forget, cell."""

    def gates(name: str) -> np.ndarray:
        i, f, c, o = np.split(weights[f"lstm.{name}"], 4)
        return np.concatenate([i, o, f, c])

    return {
        "238": np.stack([gates(f"weight_ih_l0{end}") for end in ends]),
        "239": np.stack([gates(f"weight_hh_l0{end}") for end in ends]),
        "237": np.stack([np.concatenate([gates(f"bias_ih_l0{end}"), gates(f"bias_hh_l0{end}")]) for end in ends]),
    }


def onnx_bytes(weights: Weights, ends: Sequence[str], packed: bool = False, node: bytes | None = None) -> bytes:
    """A model whose graph has an LSTM node and another, initialisers of float32 and one of int64."""
    units = weights["lstm.weight_hh_l0"].shape[1]
    others = {name: value for name, value in weights.items() if not name.startswith("lstm.")}
    tensors = [initializer(name, value, packed) for name, value in (others | onnx_lstm(weights, ends)).items()]
    constant = field(1, 1) + field(2, 7) + field(8, "193") + field(9, struct.pack("<q", 5))
    nodes = [field(4, "Softmax"), lstm_node(ends, units) if node is None else node]
    graph = [field(1, one) for one in nodes] + [field(5, one) for one in (*tensors, constant)] + [field(2, "graph")]
    return field(1, 6) + field(2, "pytorch") + field(7, b"".join(graph)) + field(8, field(2, 13))


def opennmt(cell: str, score: str, feeds: bool, both: bool, seed: int = 4, units: int = 6, layers: int = 2) -> Weights:
    gates, ends = {"LSTM": 4, "GRU": 3}[cell], BOTH if both else ("",)
    embedding = "embeddings.make_embedding.emb_luts.0.weight"
    shapes: dict[str, tuple[int, ...]] = {
        f"encoder.{embedding}": (len(WORDS), 5),
        **rnn("encoder.rnn.", gates, units // len(ends), 5, layers, ends),
        f"decoder.{embedding}": (len(WORDS), 4),
    }
    if feeds:
        for layer in range(layers):
            width = units if layer else 4 + units
            for kind, columns in (("ih", width), ("hh", units)):
                shapes[f"decoder.rnn.layers.{layer}.weight_{kind}"] = (gates * units, columns)
                shapes[f"decoder.rnn.layers.{layer}.bias_{kind}"] = (gates * units,)
    else:
        shapes |= rnn("decoder.rnn.", gates, units, 4, layers)
    if score == "general":
        shapes["decoder.attn.linear_in.weight"] = (units, units)
    elif score == "mlp":
        shapes |= {f"decoder.attn.{name}.weight": (units, units) for name in ("linear_context", "linear_query")}
        shapes |= {"decoder.attn.linear_query.bias": (units,), "decoder.attn.v.weight": (1, units)}
        shapes["decoder.attn.linear_out.bias"] = (units,)
    if score != "none":
        shapes["decoder.attn.linear_out.weight"] = (units, 2 * units)
    return shaped(shapes | {"generator.weight": (len(WORDS), units), "generator.bias": (len(WORDS),)}, seed)


def opennmt_options(cell: str, score: str, feeds: bool, both: bool) -> dict[str, object]:
    return {
        "model_type": "text", "model_task": "seq2seq", "encoder_type": "brnn" if both else "rnn", "decoder_type": "rnn",
        "rnn_type": cell, "global_attention": score, "input_feed": int(feeds), "dec_layers": 2, "dropout": [0.3],
        "learning_rate": 1.0, "context_gate": None, "bridge": False,
    }  # fmt: skip


def plain(value: object) -> bytes:
    """The opcodes of plain data."""
    match value:
        case None:
            return b"N"
        case bool():
            return b"\x88" if value else b"\x89"
        case int():
            return pickles.integer(value)
        case float():
            return b"G" + struct.pack(">d", value)
        case str():
            return pickles.text(value)
        case list():
            return b"](" + b"".join(map(plain, value)) + b"e"
        case dict():
            return b"}(" + b"".join(plain(key) + plain(item) for key, item in value.items()) + b"u"
    raise TypeError(type(value))


def opennmt_bytes(weights: Weights, options: Mapping[str, object], vocab: object = None, more: bytes = b"") -> bytes:
    """A checkpoint as torch.save writes it; ``more`` are further entries of it."""
    storages: dict[str, memoryview] = {}
    parts: dict[str, dict[str, bytes]] = {"model": {}, "generator": {}}
    for name, value in weights.items():
        key = str(len(storages))
        storages[key] = value.reshape(-1).view(np.uint8).data
        part = "generator" if name.startswith("generator.") else "model"
        stored = pickles.tensor(pickles.storage("float32", key, value.size), value.shape)
        parts[part][name.removeprefix("generator.")] = stored
    namespace = pickles.name("argparse", "Namespace") + b")\x81" + plain(dict(options)) + b"b"
    tables = (
        {"src": WORDS, "tgt": WORDS, "data_task": "seq2seq", "decoder_start_token": "<s>"} if vocab is None else vocab
    )
    entries = {name: pickles.dict_of(items) for name, items in parts.items()}
    entries |= {"vocab": plain(tables), "opt": namespace}
    body = b"}(" + b"".join(pickles.text(name) + value for name, value in entries.items()) + more + b"u"
    optimizer = pickles.text("optim") + plain({"training_step": 7, "optimizer": {"state": {0: {"step": 3}}}})
    return pickles.zip_bytes(pickles.pickled(body[:-1] + optimizer + b"u"), storages)


def opennmt_files(cell: str, score: str, feeds: bool, both: bool) -> dict[str, bytes]:
    weights, options = opennmt(cell, score, feeds, both), opennmt_options(cell, score, feeds, both)
    return {"model_step_7.pt": opennmt_bytes(weights, options)}
