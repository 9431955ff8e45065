"""Writes the folder of a published model with few layers, few words and drawn weights, as its authors saved it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from tests import ROOT
from tests.architectures import jina, oracle
from tests.architectures.case import Case
from tests.architectures.drawing import draw, draw_all
from tests.architectures.published import Published
from tests.weights.containers.safetensors_writer import safetensors_bytes, write_json

VOCABULARY = 1000
NO_TYPES = {"model_input_names": ["input_ids", "attention_mask"]}


def case_of(published: Published) -> Case:
    """The model with few layers and words."""
    config = dict(published.config)
    config |= {published.layers_name: published.layers, "vocab_size": VOCABULARY}
    if "layer_types" in config:
        config["layer_types"] = config["layer_types"][: published.layers]
    return Case(published.name, config, "sequence-classification" if published.pooling is None else "encoder")


def write(published: Published, folder: Path) -> None:
    """The folder; modules and their configurations in the form of the years in which these models appeared."""
    case = case_of(published)
    folder.mkdir(parents=True, exist_ok=True)
    if "feed_forward_type" in case.config:
        tensors = draw_all(jina.tensor_shapes(case.config, case.task), case.seed)
        (folder / "model.safetensors").write_bytes(safetensors_bytes(tensors))
    else:
        oracle.save(case, oracle.as_transformers_has_it(case.config), folder)
    write_json(folder / "config.json", case.config)
    _write_tokenizer(published, folder)
    if published.pooling is not None:
        _write_modules(published, folder)


def _write_modules(published: Published, folder: Path) -> None:
    modules = ["Transformer", "Pooling", *["Dense"] * len(published.dense), *["Normalize"] * published.normalize]
    entries = []
    for i, kind in enumerate(modules):
        path = f"{i}_{kind}" if i else ""
        entries.append({"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"})
    write_json(folder / "modules.json", entries)
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": published.max_length, "do_lower_case": False})
    pooling = {
        "word_embedding_dimension": published.width,
        "pooling_mode_cls_token": published.pooling == "cls",
        "pooling_mode_mean_tokens": published.pooling == "mean",
        "pooling_mode_max_tokens": False,
        "pooling_mode_mean_sqrt_len_tokens": False,
        "pooling_mode_weightedmean_tokens": False,
        "pooling_mode_lasttoken": published.pooling == "lasttoken",
        "include_prompt": True,
    }
    write_json(folder / "1_Pooling" / "config.json", pooling)
    for i, (inputs, outputs, bias, activation) in enumerate(published.dense, 2):
        layer = {"in_features": inputs, "out_features": outputs, "bias": bias, "activation_function": activation}
        write_json(folder / f"{i}_Dense" / "config.json", layer)
        shapes = {"linear.weight": (outputs, inputs)} | ({"linear.bias": (outputs,)} if bias else {})
        drawn = {name: draw(f"{i}.{name}", shape, 0) for name, shape in shapes.items()}
        (folder / f"{i}_Dense" / "model.safetensors").write_bytes(safetensors_bytes(drawn))
    if published.prompts:
        said = {"prompts": published.prompts, "default_prompt_name": None, "similarity_fn_name": "cosine"}
        write_json(folder / "config_sentence_transformers.json", said)


def _write_tokenizer(published: Published, folder: Path) -> None:
    tokenizer, said = TOKENIZERS[published.tokenizer]()
    (folder / "tokenizer.json").write_text(tokenizer.to_str(), encoding="utf-8")
    said |= {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": published.max_length}
    write_json(folder / "tokenizer_config.json", said)


def _texts() -> list[str]:
    return (ROOT / "README.md").read_text(encoding="utf-8").splitlines()


def _surrounded(tokenizer: Tokenizer, single: str, pair: str, special: list[str]) -> None:
    tokenizer.post_processor = processors.TemplateProcessing(
        single=single, pair=pair, special_tokens=[(token, tokenizer.token_to_id(token)) for token in special]
    )


def _wordpiece(special: list[str], classifier: str, separator: str, pair: str) -> tuple[Tokenizer, dict[str, Any]]:
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(
        vocab_size=VOCABULARY, special_tokens=special, continuing_subword_prefix="##", show_progress=False
    )
    tokenizer.train_from_iterator(_texts(), trainer)
    _surrounded(tokenizer, f"{classifier} $A {separator}", pair, [classifier, separator])
    padding = next(token for token in special if "pad" in token.lower())
    said = {"cls_token": classifier, "sep_token": separator, "pad_token": padding, "unk_token": "[UNK]"}
    return tokenizer, said


def _bert() -> tuple[Tokenizer, dict[str, Any]]:
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    return _wordpiece(special, "[CLS]", "[SEP]", "[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1")


def _mpnet() -> tuple[Tokenizer, dict[str, Any]]:
    special = ["<s>", "<pad>", "</s>", "[UNK]", "<mask>"]
    tokenizer, said = _wordpiece(special, "<s>", "</s>", "<s> $A </s> </s> $B </s>")
    return tokenizer, said | NO_TYPES


def _pieces(special: list[str], unknown: str) -> Tokenizer:
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=VOCABULARY - 1, special_tokens=special, unk_token=unknown, show_progress=False
    )
    tokenizer.train_from_iterator(_texts(), trainer)
    return tokenizer


def _xlm_roberta() -> tuple[Tokenizer, dict[str, Any]]:
    tokenizer = _pieces(["<s>", "<pad>", "</s>", "<unk>"], "<unk>")
    tokenizer.add_special_tokens(["<mask>"])
    _surrounded(tokenizer, "<s> $A </s>", "<s> $A </s> </s> $B </s>", ["<s>", "</s>"])
    said = {"cls_token": "<s>", "sep_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
    return tokenizer, said | NO_TYPES


def _t5() -> tuple[Tokenizer, dict[str, Any]]:
    tokenizer = _pieces(["<pad>", "</s>", "<unk>"], "<unk>")
    _surrounded(tokenizer, "$A </s>", "$A </s> $B </s>", ["</s>"])
    return tokenizer, {"eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"} | NO_TYPES


def _deberta() -> tuple[Tokenizer, dict[str, Any]]:
    tokenizer = _pieces(["[PAD]", "[CLS]", "[SEP]", "[UNK]"], "[UNK]")
    _surrounded(tokenizer, "[CLS] $A [SEP]", "[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1", ["[CLS]", "[SEP]"])
    return tokenizer, {"cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]", "unk_token": "[UNK]"}


def _byte_pairs(special: list[str]) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(_texts(), trainer)
    return tokenizer


def _modernbert() -> tuple[Tokenizer, dict[str, Any]]:
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer = _byte_pairs(special)
    _surrounded(tokenizer, "[CLS] $A [SEP]", "[CLS] $A [SEP] $B [SEP]", ["[CLS]", "[SEP]"])
    said = {"cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]", "unk_token": "[UNK]"}
    return tokenizer, said | NO_TYPES


def _roberta() -> tuple[Tokenizer, dict[str, Any]]:
    tokenizer = _byte_pairs(["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    said = {"cls_token": "<s>", "sep_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
    return tokenizer, said | NO_TYPES


def _qwen() -> tuple[Tokenizer, dict[str, Any]]:
    end = "<|endoftext|>"
    tokenizer = _byte_pairs([end, "<|im_start|>", "<|im_end|>"])
    _surrounded(tokenizer, f"$A {end}", f"$A:0 {end} $B:1 {end}", [end])
    said = {"pad_token": end, "eos_token": "<|im_end|>", "padding_side": "left"}
    return tokenizer, said | NO_TYPES


def _gemma() -> tuple[Tokenizer, dict[str, Any]]:
    special = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"]
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, special_tokens=[*special, *bytes_], show_progress=False)
    tokenizer.train_from_iterator(_texts(), trainer)
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in special])
    _surrounded(tokenizer, "<bos> $A <eos>", "<bos> $A <eos> <bos> $B <eos>", ["<bos>", "<eos>"])
    said = {"bos_token": "<bos>", "eos_token": "<eos>", "pad_token": "<pad>", "unk_token": "<unk>"}
    return tokenizer, said | NO_TYPES


TOKENIZERS: dict[str, Callable[[], tuple[Tokenizer, dict[str, Any]]]] = {
    "wordpiece": _bert, "mpnet": _mpnet, "unigram": _xlm_roberta, "t5": _t5, "deberta": _deberta, "roberta": _roberta,
    "bytes": _modernbert, "qwen": _qwen, "gemma": _gemma,
}  # fmt: skip
