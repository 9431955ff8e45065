"""A small sound example of every file that is read, and how it is put to use: what test_mutations.py damages."""

import gzip
import io
import json
import random
import tarfile
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from fastattn.checkpoint import Shortlist
from fastattn.cross_encoder import CrossEncoder
from fastattn.decoding.shortlist import allowed_ids
from fastattn.encoder import Encoder
from fastattn.errors import DownloadError
from fastattn.masked_language_model import MaskedLanguageModel
from fastattn.multi_vector_encoder import MultiVectorEncoder
from fastattn.sparse_encoder import SparseEncoder
from fastattn.text.sentencepiece import SentencePiece
from fastattn.token_classifier import TokenClassifier
from fastattn.translator import Translator
from fastattn.weights import read
from fastattn.weights.containers.archive import ArchiveError, extract
from fastattn.weights.containers.shortlist import read_shortlist
from fastattn.weights.folder import Directory
from fastattn.weights.native import convert
from tests import GOLDENS
from tests.architectures.case import Case
from tests.architectures.cases import GOLDEN_CASES
from tests.architectures.drawing import draw_all
from tests.architectures.folders import write_folder
from tests.architectures.goldens import read_goldens
from tests.classifiers import TOKENS as TAGGER
from tests.classifiers import write_classifier
from tests.masked import write_masked, write_sparse
from tests.multi_vector import write_original, write_pylate, write_today
from tests.weights.containers import safetensors_writer
from tests.weights.containers.pytorch_writer import pytorch_bytes
from tests.weights.containers.safetensors_writer import MEAN_POOLING, safetensors_bytes
from tests.weights.containers.shortlist_writer import binary_shortlist
from tests.weights.ctranslate2 import writer
from tests.weights.huggingface.marian_cases import CASES, write_files
from tests.weights.huggingface.marian_cases import make_tensors as marian_mt_tensors
from tests.weights.huggingface.spm_writer import CONTROL, NORMAL, UNKNOWN, USER, spm_bytes
from tests.weights.marian import writer as marian_writer
from tests.weights.mutators import Files, mutate, packed

TEXTS = ["▁w1 ▁w2", "the garden, 明天 w0!", "", "x" * 40]
LIMIT = 1 << 16  # bytes that a pulled archive may unpack to


@dataclass(frozen=True)
class Subject:
    """``load`` reads the files in a folder into whatever uses them; ``use`` puts that to work."""

    files: Files
    load: Callable[[Path], object]
    use: Callable[[object], object]

    def damaged(self, seed: int) -> Files:
        return mutate(self.files, random.Random(seed))


def _translate(translator: Translator) -> None:
    for beam_size in (1, 3):
        translator.translate(TEXTS, beam_size=beam_size, max_decoding_length=5, details=True, return_attention=True)
    translator.score(["▁w1 ▁w2"], ["▁w3"])


def _encode(encoder: Encoder) -> None:
    encoder.encode(TEXTS)
    encoder.encode(TEXTS[:2], prompt="query: ", normalize_embeddings=True)


def _rank(encoder: CrossEncoder) -> None:
    encoder.predict([(text, TEXTS[1]) for text in TEXTS], apply_softmax=True)
    encoder.rank(TEXTS[1], TEXTS, top_k=2)


def _weigh(encoder: SparseEncoder) -> None:
    encoder.decode(encoder.encode(TEXTS), 3)
    encoder.encode_query(TEXTS[:2], max_active_dims=2)


def _match(encoder: MultiVectorEncoder) -> None:
    encoder.score(encoder.encode_query(TEXTS), encoder.encode_document(TEXTS))


def _label(classifier: TokenClassifier) -> None:
    for aggregation in ("none", "average"):
        classifier.classify(TEXTS, aggregation=aggregation)


def _fill(model: MaskedLanguageModel) -> None:
    model.fill([f"{text} {model.mask_token}" for text in TEXTS[:2]], top_k=2)


def _segment(model: SentencePiece) -> None:
    for text in TEXTS:
        model.text(model.pieces(text))
        model.ids(text)


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
    names = sorted(tensors)
    weight_map = {name: f"model-{i % shards}.safetensors" for i, name in enumerate(names)}
    for i in range(shards):
        files[f"model-{i}.safetensors"] = safetensors_bytes({name: tensors[name] for name in names[i::shards]})
    return files | {"model.safetensors.index.json": _json({"metadata": {}, "weight_map": weight_map})}


WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "garden", *"abcdeghnrtx", "##x", "##e", "w"]
SPM_BYTES = spm_bytes(
    [(b"<unk>", 0, UNKNOWN), (b"<s>", 0, CONTROL), (b"</s>", 0, CONTROL), (b"th", -2, USER)]
    + [(piece.encode(), -float(i), NORMAL) for i, piece in enumerate(["\u2581", "the", "\u2581w", *"abcdeghnrt"])],
    rules=True,
)


def classifier_files(precision: str = "") -> Files:
    """A reranker as sentence-transformers 6 saves one; ``precision``: fastattn's own folder of it."""
    with tempfile.TemporaryDirectory() as folder:
        path = write_classifier(Path(folder))
        files = {file.name: file.read_bytes() for file in sorted(path.iterdir())}
    module = {"type": "sentence_transformers.base.modules.transformer.Transformer", "path": ""}
    config = {"transformer_task": "sequence-classification", "module_output_name": "scores"}
    scores = {"model_type": "CrossEncoder", "activation_fn": "torch.nn.modules.linear.Identity"}
    files |= {"modules.json": _json([module]), "sentence_bert_config.json": _json(config)}
    files |= {"config_sentence_transformers.json": _json(scores)}
    return converted_files(files, precision) if precision else files


def written(write: Callable[[Path], Path]) -> Files:
    """The files that ``write`` puts into a folder, those of its modules' folders too."""
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder))
        files = sorted(file for file in path.rglob("*") if file.is_file())
        return {file.relative_to(path).as_posix(): file.read_bytes() for file in files}


def older_files(kind: str) -> Files:
    """A BERT with the tokenizer of another class, of that class's own files."""
    made: dict[str, dict[str, bytes]] = {
        "BertTokenizer": {
            "vocab.txt": "\n".join(WORDS).encode(),
            "special_tokens_map.json": _json(
                {"mask_token": {"content": "[MASK]", "lstrip": True}, "cls_token": "[CLS]"}
            ),
            "added_tokens.json": _json({"<new>": len(WORDS)}),
        },
        "RobertaTokenizer": {
            "vocab.json": _json(
                {token: i for i, token in enumerate(["<s>", "</s>", "<unk>", *"\u0120abcdeghnrtx", "th"])}
            ),
            "merges.txt": b"#version: 0.2\nt h\n",
        },
        "XLMRobertaTokenizer": {"sentencepiece.bpe.model": SPM_BYTES},
        "AlbertTokenizer": {"spiece.model": SPM_BYTES},
    }
    files = bert_files() | made[kind]
    del files["tokenizer.json"]
    settings = {"tokenizer_class": kind, "model_max_length": 40, "truncation_side": "left"}
    if kind == "AlbertTokenizer":
        settings |= {"cls_token": "<s>", "sep_token": "</s>", "keep_accents": False}
    return files | {"tokenizer_config.json": _json(settings)}


def bert_files_of_pytorch(form: str) -> Files:
    """In two shards where ``form`` is none that torch.save has."""
    files = bert_files()
    tensors = safetensors_writer.random_bert(np.random.default_rng(1), **BERT)
    del files["model.safetensors"]
    if form != "shards":
        return files | {"pytorch_model.bin": pytorch_bytes(tensors, form)}
    names = sorted(tensors)
    for i in range(2):
        files[f"pytorch_model-{i}.bin"] = pytorch_bytes({name: tensors[name] for name in names[i::2]})
    weight_map = {name: f"pytorch_model-{i % 2}.bin" for i, name in enumerate(names)}
    return files | {"pytorch_model.bin.index.json": _json({"metadata": {}, "weight_map": weight_map})}


def marian_mt_files(case: str, weights: str) -> Files:
    """A Hugging Face directory of a MarianMT model."""
    tensors = marian_mt_tensors(CASES[case])
    with tempfile.TemporaryDirectory() as folder:
        files = {path.name: path.read_bytes() for path in sorted(write_files(Path(folder), CASES[case]).iterdir())}
    return files | {weights: safetensors_bytes(tensors) if weights.endswith("s") else pytorch_bytes(tensors)}


def sentence_transformer_files() -> Files:
    path = "sentence_transformers.models."
    kinds = {"Transformer": "", "Pooling": "1_Pooling", "Dense": "2_Dense", "Normalize": "3_Normalize"}
    modules = [{"idx": i, "name": str(i), "path": f, "type": path + k} for i, (k, f) in enumerate(kinds.items())]
    dense = {
        "in_features": 8,
        "out_features": 5,
        "bias": True,
        "activation_function": "torch.nn.modules.linear.Identity",
    }
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
        for name, content in files.items():
            (model / name).parent.mkdir(parents=True, exist_ok=True)
            (model / name).write_bytes(content)
        out.mkdir()
        convert.write(out, replace(read(model), shortlist=shortlist), precision)
        return {path.name: path.read_bytes() for path in sorted(out.iterdir())}


def archive_files(name: str) -> Files:
    """What ``pull`` unpacks."""
    members = {"top/config.json": _json({"a": 1}), "top/model.bin": bytes(range(256)) * 16}
    if name.endswith(".zip"):
        return {name: packed(members)}
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for member, content in members.items():
            info = tarfile.TarInfo(member)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return {name: gzip.compress(buffer.getvalue(), mtime=0)}


def _unpack(path: Path) -> None:
    """As ``pull`` does, with its limit, and its name for a bad archive's error."""
    for archive in [file for file in path.iterdir() if file.is_file()]:
        targets = {f"top/{name}": path / "contents" / name for name in ("config.json", "model.bin")}
        try:
            extract(archive, targets, LIMIT)
        except ArchiveError as error:
            raise DownloadError(str(error)) from None
        finally:
            assert sum(file.stat().st_size for file in path.glob("contents/*")) <= LIMIT


def _shortlist(path: Path) -> Shortlist:
    (file,) = (file.name for file in path.iterdir())
    return read_shortlist(Directory(path), file, TOKENS, TOKENS, True)


def _choose(shortlist: Shortlist) -> None:
    for source in (np.arange(len(TOKENS)), np.array([3, 3]), np.array([len(TOKENS) - 1])):
        allowed = allowed_ids(shortlist, source, [0], len(TOKENS))
        assert len(allowed) and 0 <= allowed[0] <= allowed[-1] < len(TOKENS)


def _spm(path: Path) -> SentencePiece:
    return SentencePiece((path / "spm.model").read_bytes())


USES: dict[type, Callable[[Any], object]] = {
    Translator: _translate,
    Encoder: _encode,
    CrossEncoder: _rank,
    SparseEncoder: _weigh,
    MultiVectorEncoder: _match,
    TokenClassifier: _label,
    MaskedLanguageModel: _fill,
}


def _checkpoint(files: Files, kind: type = Translator, folder: str = "") -> Subject:
    return Subject(files, lambda path: kind(path / folder, threads=1), USES[kind])


def architecture_files(case: Case) -> Files:
    """A little encoder of an architecture, its weights drawn."""
    shapes, _ = read_goldens(case)
    with tempfile.TemporaryDirectory() as folder:
        path = write_folder(Path(folder), case.config, draw_all(shapes, case.seed))
        return {file.name: file.read_bytes() for file in sorted(path.iterdir())}


TOKENS = ("</s>", "<unk>", *(f"▁w{i}" for i in range(18)))
LISTS = [[s % 7, 19 - s, s] if s % 3 else [] for s in range(len(TOKENS))]
LEXICON = "".join(f"{TOKENS[t]} {TOKENS[s]} {1 / (t + 2):.3f}\n" for s, targets in enumerate(LISTS) for t in targets)
SHORTLIST = Shortlist(*(np.array(ids, np.int32) for ids in ([0, 1], [0, 2, 2, *[3] * 7], [3, 4, 5])), copied=True)

SUBJECTS: dict[str, Subject] = {
    "ctranslate2 v1": _checkpoint(ctranslate2_files(1)),
    "ctranslate2 v2": _checkpoint(ctranslate2_files(2, "int16")),
    "ctranslate2 v3": _checkpoint(ctranslate2_files(3, "int8")),
    "ctranslate2 v4": _checkpoint(ctranslate2_files(4, "float16", relative_buckets=8)),
    "ctranslate2 v5": _checkpoint(ctranslate2_files(5, "bfloat16", position_table=48, pre_norm=False)),
    "ctranslate2 v6": _checkpoint(ctranslate2_files(6, "int8", rotary=True, gated=True, rms_norm=True, biases=False)),
    "ctranslate2 v6 alibi": _checkpoint(ctranslate2_files(6, alibi=True, key_heads=1)),
    "ctranslate2 encoder": _checkpoint(encoder_files(), Encoder),
    "argos deflated": _checkpoint(argos_files(8), folder="package.argosmodel"),
    "argos stored": _checkpoint(argos_files(0), folder="package.argosmodel"),
    "bert": _checkpoint(bert_files(), Encoder),
    "bert in shards": _checkpoint(bert_files("BPE", shards=2), Encoder),
    "bert, unigram": _checkpoint(bert_files("Unigram"), Encoder),
    "bert of pytorch": _checkpoint(bert_files_of_pytorch("zip"), Encoder),
    "bert of pytorch, old": _checkpoint(bert_files_of_pytorch("stream"), Encoder),
    "bert of pytorch in shards": _checkpoint(bert_files_of_pytorch("shards"), Encoder),
    "bert, vocab.txt": _checkpoint(older_files("BertTokenizer"), Encoder),
    "bert, merges.txt": _checkpoint(older_files("RobertaTokenizer"), Encoder),
    "bert, sentencepiece.bpe.model": _checkpoint(older_files("XLMRobertaTokenizer"), Encoder),
    "bert, spiece.model": _checkpoint(older_files("AlbertTokenizer"), Encoder),
    "marianmt": _checkpoint(marian_mt_files("shared", "model.safetensors")),
    "marianmt of pytorch": _checkpoint(marian_mt_files("separate", "pytorch_model.bin")),
    "sentence-transformers": _checkpoint(sentence_transformer_files(), Encoder),
    "reranker": _checkpoint(classifier_files(), CrossEncoder),
    "own reranker": _checkpoint(classifier_files("int8"), CrossEncoder),
    "tagger": _checkpoint(written(partial(write_classifier, name=TAGGER)), TokenClassifier),
    "masked": _checkpoint(written(write_masked), MaskedLanguageModel),
    "sparse": _checkpoint(written(write_sparse), SparseEncoder),
    "own sparse": _checkpoint(converted_files(written(write_sparse), "int8"), SparseEncoder),
    "multi-vector": _checkpoint(written(write_today), MultiVectorEncoder),
    "multi-vector of pylate": _checkpoint(written(write_pylate), MultiVectorEncoder),
    "multi-vector, original": _checkpoint(written(write_original), MultiVectorEncoder),
    "own multi-vector": _checkpoint(converted_files(written(write_today), "int8"), MultiVectorEncoder),
    "own int8": _checkpoint(converted_files(ctranslate2_files(6, rotary=True, gated=True), "int8")),
    "own bfloat16": _checkpoint(converted_files(ctranslate2_files(5, "int8", relative_buckets=8), "bfloat16")),
    "own with a shortlist": _checkpoint(converted_files(ctranslate2_files(6), "int8", SHORTLIST)),
    "own encoder": _checkpoint(converted_files(sentence_transformer_files(), "int8"), Encoder),
    "shortlist": Subject({"lex.s2t.bin": binary_shortlist(3, LISTS)}, _shortlist, _choose),  # type: ignore[arg-type]
    "shortlist, text": Subject({"lex.txt": LEXICON.encode()}, _shortlist, _choose),  # type: ignore[arg-type]
    "shortlist, gzipped": Subject({"lex.gz": gzip.compress(LEXICON.encode(), mtime=0)}, _shortlist, _choose),  # type: ignore[arg-type]
    "marian npz": _checkpoint(marian_files("model.npz", tied_embeddings_all=False)),
    "marian npz, deflated": _checkpoint(marian_files("model.npz", method=8, transformer_postprocess_emb="nd")),
    "marian bin": _checkpoint(marian_files("m.marian.bin", transformer_decoder_autoreg="average-attention")),
    "marian bin, int8": _checkpoint(
        marian_files("m.marian.bin", marian_writer.BROWSERMT, transformer_decoder_autoreg="rnn", dec_cell="ssru")
    ),
    "pulled zip": Subject(archive_files("pulled.zip"), _unpack, lambda nothing: None),
    "pulled tar": Subject(archive_files("pulled.tar.gz"), _unpack, lambda nothing: None),
} | {
    case.name: _checkpoint(architecture_files(case), Encoder)
    for case in {case.model_type: case for case in GOLDEN_CASES if case.task == "encoder"}.values()
} | {
    f"spm {kind}": Subject({"spm.model": (GOLDENS / f"text_{kind}.model").read_bytes()}, _spm, _segment)  # type: ignore[arg-type]
    for kind in ("unigram_symbols", "bpe_bytes", "characters", "words", "unigram_suffix")
}  # fmt: skip
