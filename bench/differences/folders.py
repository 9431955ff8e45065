"""Folders of tiny transformers models with random weights, changed as a case's choices say."""

import copy
import functools
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from bench.differences import Case, Skipped

transformers.utils.logging.disable_progress_bar()
VOCABULARY = 99
SPECIAL = ("<pad>", "<s>", "</s>", "<unk>", "<mask>")
# Choices that change a model's files after it is saved.
FILES = {
    "head": ["absent", "another", "the embedding"],
    "embedding": ["absent"],
    "container": ["bin", "shards"],
    "stored": ["bfloat16", "float16"],
    "prefix": ["absent"],
}
EDITS = "config.json "  # a choice of this beginning sets a field of config.json, or takes it out where it is ABSENT
ABSENT = "absent"
OPTION = "option "  # a choice of this beginning is an argument of the call that is compared
RENAMED = {"gpt_neox": {"lm_head.weight": "embed_out.weight"}}  # names in the files that transformers writes


def write_tokenizer(folder: Path, single: str, pair: str, **settings: Any) -> None:
    """Write a tokenizer.json of SPECIAL and the words w5, w6, ..., and tokenizer_config.json."""
    words = [*SPECIAL, *(f"w{i}" for i in range(len(SPECIAL), VOCABULARY))]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.TemplateProcessing(
        single=single, pair=pair, special_tokens=[(token, i) for i, token in enumerate(SPECIAL)]
    )
    tokenizer.add_special_tokens(list(SPECIAL))
    tokenizer.save(str(folder / "tokenizer.json"))
    named = dict(zip(("pad_token", "bos_token", "eos_token", "unk_token", "mask_token"), SPECIAL))
    kind = {"tokenizer_class": "PreTrainedTokenizerFast"}
    (folder / "tokenizer_config.json").write_text(json.dumps(named | kind | settings))


def write_model(case: Case, folder: Path, config: Any, model_class: Any) -> None:
    """Save a random model; Skipped where transformers makes no such model."""
    try:
        _write_model(case, folder, config, model_class)
    except (ValueError, RuntimeError, TypeError, AttributeError, KeyError, ZeroDivisionError) as error:
        raise Skipped(str(error)) from None


def _write_model(case: Case, folder: Path, config: Any, model_class: Any) -> None:
    """Save a model whose random weights matter, and change its files as the choices of FILES and EDITS say."""
    torch.manual_seed(case.seed)
    model = model_class.from_config(config) if hasattr(model_class, "from_config") else model_class(config)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            is_norm = "norm" in name.lower() and name.endswith("weight") and weight.dim() == 1
            spread = 0.3 if weight.dim() < 2 else 1.2 / weight[0].numel() ** 0.5
            weight.normal_(1.0 if is_norm else 0.0, 0.2 if is_norm else spread)
    model.save_pretrained(folder)
    ties = {of: to for of, to in (type(model)._tied_weights_keys or {}).items() if "shared" not in to}
    ties = {RENAMED.get(case.base, {}).get(of, of): to for of, to in ties.items()}
    _change_weights(case, folder, ties)
    written = json.loads((folder / "config.json").read_text())
    for name, value in case.chosen.items():
        if name.startswith(EDITS):
            field = name.removeprefix(EDITS)
            written.pop(field, None) if value == ABSENT else written.update({field: value})
    (folder / "config.json").write_text(json.dumps(written))


def _change_weights(case: Case, folder: Path, ties: Mapping[str, str]) -> None:
    """Change the files' weights; ties: name -> the tensor that config.json may tie it to."""
    path, chosen = folder / "model.safetensors", case.chosen
    if not any(name in chosen for name in FILES):
        return
    tensors = load_file(path)
    for of, to in ties.items():
        match chosen.get("head"):
            case "absent":
                tensors.pop(of, None)
            case "another":
                tensors[of] = torch.randn_like(tensors[to])
            case "the embedding":
                tensors[of] = tensors[to].clone()
        if "embedding" in chosen:
            tensors.pop(to, None)
    if "stored" in chosen:
        tensors = {name: tensor.to(getattr(torch, chosen["stored"])) for name, tensor in tensors.items()}
    if "prefix" in chosen:
        tensors = {re.sub("^(model|transformer|gpt_neox)[.]", "", name): tensor for name, tensor in tensors.items()}
    path.unlink()
    if chosen.get("container") == "bin":
        torch.save(tensors, folder / "pytorch_model.bin")
    elif chosen.get("container") == "shards":
        parts = {f"model-{i + 1:05}-of-00002.safetensors": list(tensors)[i::2] for i in range(2)}
        for file, names in parts.items():
            save_file({name: tensors[name] for name in names}, folder / file, {"format": "pt"})
        weight_map = {name: file for file, names in parts.items() for name in names}
        index = {"metadata": {}, "weight_map": weight_map}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    else:
        save_file(tensors, path, {"format": "pt"})


def config_of(case: Case, base: Mapping[str, Any]) -> Any:
    """The configuration of the case's model type; Skipped where transformers refuses it."""
    names = [name for name in case.chosen if name not in FILES and not name.startswith((EDITS, OPTION))]
    chosen = {name: copy.deepcopy(case.chosen[name]) for name in names}
    try:
        return transformers.AutoConfig.for_model(case.base, **{**base, **chosen})
    except Exception as error:  # noqa: BLE001 - of whatever kind: it is theirs
        raise Skipped(str(error)) from None


def loaded(model_class: Any, folder: Path) -> Any:
    """The model as transformers reads the folder; Skipped where it fails, or draws weights that are missing."""
    try:
        model, report = model_class.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
        )
    except Exception as error:  # noqa: BLE001
        raise Skipped(str(error)) from None
    if report["missing_keys"] or report["mismatched_keys"]:
        raise Skipped(f"weights are made up: {sorted(report['missing_keys'])[:3]}")
    model.forward = _skipping(model.forward)
    return model.eval()


def _skipping(forward: Callable[..., Any]) -> Callable[..., Any]:
    """Have the model's forward raise its errors as Skipped, such as T5's for texts beyond its greatest distance."""

    @functools.wraps(forward)
    def tried(*inputs: Any, **options: Any) -> Any:
        try:
            return forward(*inputs, **options)
        except Exception as error:  # noqa: BLE001 - of whatever kind: it is theirs
            raise Skipped(" ".join(str(error).split())) from None

    return tried
