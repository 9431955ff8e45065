"""Little files that ask for much memory or time."""

import io
import json
import random
import struct
import zipfile

from tests.text.spm_bytes import PLAIN, charsmap, field, piece
from tests.weights.containers import pytorch_writer as torch
from tests.weights.gguf import models, writer

ORDERED_DICT = torch.name("collections", "OrderedDict")


def memorised(value: bytes, number: int) -> bytes:
    return value + b"q" + bytes([number])


def pickle_of_shared_list(pairs: int, times: int) -> bytes:
    """A list of pairs that is given once, and made into a dict again and again."""
    items = b"".join(torch.text(f"{i:05}") + b"N\x86" for i in range(pairs))
    begin = memorised(ORDERED_DICT, 0) + memorised(b"](" + items + b"e", 1)
    return torch.zip_bytes(torch.pickled(begin + b"h\0h\1\x85R" * times), {})


def pickle_of_shared_sizes(sizes: int, times: int) -> bytes:
    """The sizes of a tensor, of very many dimensions, that are checked again and again."""
    begin = memorised(torch.name("torch", "Size"), 0) + memorised(b"(" + b"K\1" * sizes + b"t", 1)
    return torch.zip_bytes(torch.pickled(begin + b"h\0h\1\x85R" * times), {})


def pickle_of_long_key(length: int, times: int) -> bytes:
    """Tensors of one storage, whose very long name is put together again for each."""
    identity = (
        torch.STORAGE + torch.name("torch", "FloatStorage") + torch.text("k" * length) + torch.text("cpu") + b"K\0"
    )
    tensor = memorised(torch.tensor(b"(" + identity + b"tQ", (0,)), 0)
    more = b"".join(torch.text(f"{i}") + b"h\0" for i in range(times))
    return torch.zip_bytes(torch.pickled(b"}(" + torch.text("a") + tensor + more + b"u"), {"k" * length: b""})


def npz_of_shared_bytes(members: int, size: int) -> bytes:
    """Arrays, one in eighty bytes not zero, whose entries in the archive's list all lead to the same packed bytes."""
    array = io.BytesIO()
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({size // 4},), }}".encode().ljust(117) + b"\n"
    content = random.Random(1).randbytes(size // 80).ljust(size, b"\0")
    array.write(b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header + content)
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as writer:
        writer.writestr("00000.npy", array.getvalue())
        entry = writer.getinfo("00000.npy")
        for i in range(1, members):
            shared = zipfile.ZipInfo(f"{i:05}.npy")
            shared.compress_type, shared.header_offset, shared.CRC = entry.compress_type, 0, entry.CRC
            shared.compress_size, shared.file_size = entry.compress_size, entry.file_size
            writer.filelist.append(shared)
    return archive.getvalue()


def spm_of_charsmap(table: bytes) -> bytes:
    return PLAIN + field(3, field(2, table))


def spm_of_cycle() -> bytes:
    """After an "a" the table expects another, for ever."""
    return spm_of_charsmap(charsmap(ord("a"), b"b\0", False))


def spm_of_long_replacement(size: int) -> bytes:
    return spm_of_charsmap(charsmap(1, b"b" * size + b"\0", True))


def spm_of_symbols(count: int, model_type: int) -> bytes:
    """User-defined pieces that all begin with the same letter."""
    symbols = b"".join(piece(f"a{i:06}", 0.0, 4) for i in range(count))
    return PLAIN + symbols + field(2, field(3, model_type))


def spm_of_long_piece(size: int, model_type: int) -> bytes:
    """A piece that a text of nothing but "a" goes along with everywhere, and nearly to its end."""
    return PLAIN + piece("a" * size + "b") + field(2, field(3, model_type))


def tokenizer(normalizer: object) -> bytes:
    added = [
        {"id": 0, "content": "[UNK]", "special": True, "single_word": False, "lstrip": False, "rstrip": False,
         "normalized": False}
    ]  # fmt: skip
    model = {"type": "WordLevel", "vocab": {"[UNK]": 0, "a": 1}, "unk_token": "[UNK]"}
    whole = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": normalizer}
    whole |= {"pre_tokenizer": None, "post_processor": None, "decoder": None, "model": model}
    return json.dumps(whole).encode()


def replace(pattern: str, content: str, kind: str = "String") -> dict[str, object]:
    return {"type": "Replace", "pattern": {kind: pattern}, "content": content}


def sequence(*normalizers: dict[str, object]) -> dict[str, object]:
    return {"type": "Sequence", "normalizers": list(normalizers)}


def safetensors(shape: str, beside: int = 4) -> bytes:
    """An empty tensor whose sizes are written as they are given, and another of so many bytes."""
    entry = '"{}":{{"dtype":"I8","shape":{},"data_offsets":[0,{}]}}'
    header = f"{{{entry.format('a', shape, 0)},{entry.format('b', [beside], beside)}}}".encode()
    return struct.pack("<Q", len(header)) + header + bytes(beside)


def ctranslate2(*shape: int) -> bytes:
    """One empty variable, in a file that could hold each of its sizes."""
    name = struct.pack("<H", 2) + b"a\0"
    sizes = struct.pack("<B", len(shape)) + struct.pack(f"<{len(shape)}I", *shape)
    filler = struct.pack("<H", 2) + b"b\0" + struct.pack("<BIBI", 1, 1 << 20, 1, 1 << 20) + bytes(1 << 20)
    head = struct.pack("<I", 6) + struct.pack("<H", 2) + b"S\0" + struct.pack("<II", 1, 2)
    return head + filler + name + sizes + struct.pack("<BI", 1, 0) + struct.pack("<I", 0)


def pytorch(shape: tuple[int, ...], strides: tuple[int, ...], more: int = 0) -> bytes:
    """One tensor of four numbers' storage; ``more`` bytes lie beside it."""
    tensor = torch.tensor(torch.storage("float32", "0", 4), shape, strides)
    return torch.zip_bytes(torch.pickled(torch.dict_of({"a": tensor})), {"0": bytes(16), "1": bytes(more)})


def gguf_of_texts(count: int) -> bytes:
    """A list of empty texts."""
    return writer.gguf_bytes({"a": [""] * count}, {})


def gguf_of_keys(count: int) -> bytes:
    return writer.gguf_bytes({f"{i:x}": writer.Value("u8", 1) for i in range(count)}, {})


def gguf_of_long_tokens(count: int, length: int) -> bytes:
    """A model whose tokens can all be cut in two tokens anywhere."""
    metadata, tensors = models.contents("llama")
    tokens = [prefix + "a" * i for prefix in "abcdefgh"[: count // length] for i in range(1, length + 1)]
    names = {"tokens": tokens, "scores": writer.Value("f32", [0.0] * len(tokens)), "model": "llama"}
    metadata |= {f"tokenizer.ggml.{name}": value for name, value in names.items()}
    metadata["tokenizer.ggml.token_type"] = writer.Value("i32", [1] * len(tokens))
    for name in ("token_embd.weight", "output.weight"):
        tensors[name] = writer.Stored(0, (len(tokens), 16), bytes(64 * len(tokens)))
    return writer.gguf_bytes(metadata, tensors)
