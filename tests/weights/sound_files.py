"""A small sound example of every format that is read, file by file."""

import gzip
import json
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from fastattn.spec.checkpoint import Shortlist
from fastattn.weights import read
from fastattn.weights.native import convert
from tests import GOLDENS
from tests.architectures.case import Case
from tests.architectures.drawing import draw_all
from tests.architectures.folders import write_folder
from tests.architectures.goldens import read_goldens
from tests.encoders.classifiers import write_classifier
from tests.text.spm_bytes import CONTROL, NORMAL, UNKNOWN, USER, spm_bytes
from tests.weights.containers import safetensors_writer
from tests.weights.containers.pytorch_writer import pytorch_bytes
from tests.weights.containers.safetensors_writer import MEAN_POOLING, safetensors_bytes
from tests.weights.ctranslate2 import writer
from tests.weights.download.index_server import tarred
from tests.weights.huggingface.marian_cases import CASES, write_files
from tests.weights.huggingface.marian_cases import make_tensors as marian_mt_tensors
from tests.weights.marian import writer as marian_writer
from tests.weights.mutators import Files, packed


def ctranslate2_files(version: int, precision: str = "float32", **shape) -> Files:
    """A Transformer in binary ``version``, its vocabularies as that time wrote them."""
    shape = {"encoder_layers": 1, "decoder_layers": 1, "width": 8, "heads": 2, "inner_width": 8} | shape
    sizes = {"source_vocabulary": 9, "target_vocabulary": 9}
    variables = writer.random_transformer(np.random.default_rng(version), **shape, **sizes)
    spec, revision, aliases = "TransformerSpec", 7, None
    if version == 1:
        variables = writer.first_version_names(variables)
    elif version == 2:
        spec, revision = "TransformerBase", 4
    if version > 1:
        variables = variables if precision == "float32" else writer.quantize(variables, precision)
    if version >= 3:
        for name in [name for name in variables if name.startswith("decoder/projection/weight")]:
            del variables[name]
        ends = [name.removeprefix("decoder/embeddings/weight") for name in variables if "decoder/embeddings/" in name]
        aliases = {f"decoder/projection/weight{end}": f"decoder/embeddings/weight{end}" for end in ends}
    files = {"model.bin": writer.model_bytes(variables, version=version, spec=spec, revision=revision, aliases=aliases)}
    if version < 6:
        text = "".join(f"{token}\n" for token in writer.vocabulary(9)).encode()
        return files | {"source_vocabulary.txt": text, "target_vocabulary.txt": text}
    config = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>", "decoder_start_token": "<s>"}
    config |= {"add_source_bos": True, "add_source_eos": True, "layer_norm_epsilon": 1e-6}
    return files | {"config.json": _json(config), "shared_vocabulary.json": _json(writer.vocabulary(9))}


def _json(value: object) -> bytes:
    return json.dumps(value).encode()


def _below(folder: str, files: Files) -> Files:
    return {f"{folder}/{name}": content for name, content in files.items()}


def argos_files(method: int) -> Files:
    members = _below("top/model", ctranslate2_files(6, "int8"))
    members["top/metadata.json"] = _json({"from_code": "pt", "to_code": "en", "type": "translate", "from_name": "P"})
    members["top/sentencepiece.model"] = (GOLDENS / "text_words.model").read_bytes()
    return {"package.argosmodel": packed(members, method)}


MARIAN = {"dim_emb": 8, "transformer_heads": 2, "transformer_dim_ffn": 8, "enc_depth": 1, "dec_depth": 1}


def marian_files(model: str, intgemm: int = 0, method: int = 0, **changes: object) -> Files:
    """A Marian model of one layer a side with scales of inputs, where it is quantized, and a configuration."""
    arrays, options = marian_writer.random_model(5, 12, dim_vocabs=[12, 12], **MARIAN | changes)
    if intgemm:
        arrays = marian_writer.with_alphas(arrays)
    files = marian_writer.files(arrays, options, model, intgemm=intgemm, beam_size=4)
    if method:
        stored = arrays | {"special:model.yml": marian_writer.settings(options)}
        files[model] = marian_writer.npz_bytes(stored, method)
    return files | {"vocab.yml": marian_writer.vocabulary_bytes(marian_writer.vocabulary(12))}


def tokenizer_bytes(kind: str) -> bytes:
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    tokens = [*special, "the", "garden", *"abcdeghnrtx", "##x", "▁", "▁w", "th", "the"]
    vocabulary = {token: i for i, token in enumerate(dict.fromkeys(tokens))}
    model = {
        "WordPiece": lambda: models.WordPiece(vocabulary, unk_token="[UNK]"),
        "WordLevel": lambda: models.WordLevel(vocabulary, unk_token="[UNK]"),
        "BPE": lambda: models.BPE(vocabulary, [("t", "h"), ("th", "e")], unk_token="[UNK]"),
        "Unigram": lambda: models.Unigram([(token, -float(i)) for token, i in vocabulary.items()], unk_id=1),
    }[kind]()
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.BertNormalizer()])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace() if kind == "Unigram" else pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", None, [("[CLS]", 2), ("[SEP]", 3)])
    tokenizer.add_special_tokens(special)
    return tokenizer.to_str().encode()


BERT = {"layers": 1, "width": 8, "inner_width": 8, "vocabulary": 24, "positions": 48}
BERT_CONFIG = safetensors_writer.BERT_CONFIG | {
    "hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1, "intermediate_size": 8, "vocab_size": 24,
    "max_position_embeddings": 48,
}  # fmt: skip


def bert_files(kind: str = "WordPiece", shards: int = 1) -> Files:
    tensors = safetensors_writer.random_bert(np.random.default_rng(1), **BERT)
    files = {"config.json": _json(BERT_CONFIG), "tokenizer.json": tokenizer_bytes(kind)}
    files["tokenizer_config.json"] = _json({"model_max_length": 40})
    if shards == 1:
        return files | {"model.safetensors": safetensors_bytes(tensors)}
    return files | _shards(tensors, shards, "model", "safetensors", safetensors_bytes)


def _shards(tensors, count: int, stem: str, end: str, pack: Callable) -> Files:
    """The tensors dealt out to files, and the index of them."""
    names = sorted(tensors)
    files = {f"{stem}-{i}.{end}": pack({name: tensors[name] for name in names[i::count]}) for i in range(count)}
    weight_map = {name: f"{stem}-{i % count}.{end}" for i, name in enumerate(names)}
    return files | {f"{stem}.{end}.index.json": _json({"metadata": {}, "weight_map": weight_map})}


WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "garden", *"abcdeghnrtx", "##x", "##e", "w"]
SPM_BYTES = spm_bytes(
    [(b"<unk>", 0, UNKNOWN), (b"<s>", 0, CONTROL), (b"</s>", 0, CONTROL), (b"th", -2, USER)]
    + [(piece.encode(), -float(i), NORMAL) for i, piece in enumerate(["\u2581", "the", "\u2581w", *"abcdeghnrt"])],
    rules=True,
)


def classifier_files() -> Files:
    """A reranker as sentence-transformers 6 saves one."""
    module = {"type": "sentence_transformers.base.modules.transformer.Transformer", "path": ""}
    config = {"transformer_task": "sequence-classification", "module_output_name": "scores"}
    scores = {"model_type": "CrossEncoder", "activation_fn": "torch.nn.modules.linear.Identity"}
    return written(write_classifier) | {
        "modules.json": _json([module]),
        "sentence_bert_config.json": _json(config),
        "config_sentence_transformers.json": _json(scores),
    }


def written(write: Callable[[Path], Path]) -> Files:
    """The files that ``write`` puts into a folder, those of its modules' folders too."""
    with tempfile.TemporaryDirectory() as folder:
        return folder_files(write(Path(folder)))


def unpacked(files: Files, folder: Path) -> Path:
    """The folder, with these files."""
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def folder_files(folder: Path) -> Files:
    """Those of a folder and of the folders in it."""
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in files}


# The files of tokenizers of another class, that class's own.
OLDER: dict[str, Files] = {
    "BertTokenizer": {
        "vocab.txt": "\n".join(WORDS).encode(),
        "special_tokens_map.json": _json({"mask_token": {"content": "[MASK]", "lstrip": True}, "cls_token": "[CLS]"}),
        "added_tokens.json": _json({"<new>": len(WORDS)}),
    },
    "RobertaTokenizer": {
        "vocab.json": _json({token: i for i, token in enumerate(["<s>", "</s>", "<unk>", *"\u0120abcdeghnrtx", "th"])}),
        "merges.txt": b"#version: 0.2\nt h\n",
    },
    "XLMRobertaTokenizer": {"sentencepiece.bpe.model": SPM_BYTES},
    "AlbertTokenizer": {"spiece.model": SPM_BYTES},
}


def older_files(kind: str) -> Files:
    """A BERT with a tokenizer of OLDER."""
    settings = {"tokenizer_class": kind, "model_max_length": 40, "truncation_side": "left"}
    if kind == "AlbertTokenizer":
        settings |= {"cls_token": "<s>", "sep_token": "</s>", "keep_accents": False}
    files = bert_files() | OLDER[kind] | {"tokenizer_config.json": _json(settings)}
    del files["tokenizer.json"]
    return files


def bert_files_of_pytorch(form: str) -> Files:
    """In two shards where ``form`` is none that torch.save has."""
    files = bert_files()
    tensors = safetensors_writer.random_bert(np.random.default_rng(1), **BERT)
    del files["model.safetensors"]
    if form != "shards":
        return files | {"pytorch_model.bin": pytorch_bytes(tensors, form)}
    return files | _shards(tensors, 2, "pytorch_model", "bin", pytorch_bytes)


def marian_mt_files(case: str, weights: str) -> Files:
    """A Hugging Face directory of a MarianMT model."""
    tensors = marian_mt_tensors(CASES[case])
    files = written(lambda folder: write_files(folder, CASES[case]))
    return files | {weights: safetensors_bytes(tensors) if weights.endswith("s") else pytorch_bytes(tensors)}


def sentence_transformer_files() -> Files:
    path = "sentence_transformers.models."
    kinds = {"Transformer": "", "Pooling": "1_Pooling", "Dense": "2_Dense", "Normalize": "3_Normalize"}
    modules = [{"idx": i, "name": str(i), "path": f, "type": path + k} for i, (k, f) in enumerate(kinds.items())]
    identity = "torch.nn.modules.linear.Identity"
    dense = {"in_features": 8, "out_features": 5, "bias": True, "activation_function": identity}
    rng = np.random.default_rng(2)
    weights = {"linear.weight": rng.normal(size=(5, 8)), "linear.bias": rng.normal(size=5)}
    return bert_files("WordLevel") | {
        "modules.json": _json(modules),
        "1_Pooling/config.json": _json(MEAN_POOLING | {"word_embedding_dimension": 8, "include_prompt": False}),
        "2_Dense/config.json": _json(dense),
        "2_Dense/model.safetensors": safetensors_bytes({k: v.astype(np.float16) for k, v in weights.items()}),
        "sentence_bert_config.json": _json({"max_seq_length": 30, "do_lower_case": True}),
        "config_sentence_transformers.json": _json({"prompts": {"query": "the "}, "default_prompt_name": "query"}),
    }


def encoder_files() -> Files:
    """A CTranslate2 encoder with its tokenizer beside it."""
    variables = writer.random_transformer(
        np.random.default_rng(4), encoder_layers=1, decoder_layers=0, width=8, heads=2, inner_width=8,
        source_vocabulary=24, position_table=48,
    )  # fmt: skip
    model = writer.model_bytes(variables, spec="TransformerEncoderSpec", revision=1)
    config = _json({"layer_norm_epsilon": None})
    return {"model.bin": model, "config.json": config, "tokenizer.json": tokenizer_bytes("Unigram")}


def converted_files(files: Files, precision: str, shortlist: Shortlist | None = None) -> Files:
    """fastattn's own folder of what these files hold, and of a shortlist."""
    with tempfile.TemporaryDirectory() as folder:
        model, out = Path(folder) / "model", Path(folder) / "out"
        unpacked(files, model)
        out.mkdir()
        convert.write(out, replace(read(model), shortlist=shortlist), precision)
        return folder_files(out)


def archive_files(name: str) -> Files:
    """What ``pull`` unpacks."""
    members = {"top/config.json": _json({"a": 1}), "top/model.bin": bytes(range(256)) * 16}
    if name.endswith(".zip"):
        return {name: packed(members)}
    return {name: gzip.compress(gzip.decompress(tarred(members)), mtime=0)}


def architecture_files(case: Case) -> Files:
    """A little encoder of an architecture, its weights drawn."""
    shapes, _ = read_goldens(case)
    return written(lambda folder: write_folder(folder, case.config, draw_all(shapes, case.seed)))
