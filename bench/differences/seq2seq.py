"""Encoder-decoders of transformers: the result and the score of a search with random settings for a random text."""

import json
from pathlib import Path
from typing import Any

import torch
import transformers

import fastattn
from bench.differences import Case, Skipped, difference
from bench.differences.decoders import ACTIVATIONS
from bench.differences.encoders import FILE, T5, make_texts
from bench.differences.folders import EDITS, FILES, OPTION, VOCABULARY, config_of, loaded, write_model, write_tokenizer

SPECIAL = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
BART = SPECIAL | {"vocab_size": VOCABULARY, "d_model": 32, "max_position_embeddings": 64, "decoder_start_token_id": 2}
BART |= {f"{stack}_{name}": n for stack in ("encoder", "decoder") for name, n in (("layers", 2), ("ffn_dim", 48))}
BART |= {f"{stack}_attention_heads": 4 for stack in ("encoder", "decoder")}
SIZES = {
    "bart": BART | {"forced_eos_token_id": 2},
    "pegasus": BART | {"decoder_start_token_id": 0, "forced_eos_token_id": 2},
    **dict.fromkeys(
        ("t5", "mt5", "umt5"),
        SPECIAL
        | {"vocab_size": VOCABULARY, "d_model": 32, "d_ff": 48, "num_layers": 2, "num_heads": 4, "d_kv": 8}
        | {"relative_attention_num_buckets": 8, "decoder_start_token_id": 0},
    ),
}
SEARCH: dict[str, list[Any]] = {
    "num_beams": [1, 2, 4],
    "length_penalty": [0.0, 0.6, 1.7, -0.5],
    "early_stopping": [True, False, "never"],
    "repetition_penalty": [0.8, 1.3, 2.0],
    "renormalize_logits": [True],
    "no_repeat_ngram_size": [1, 2, 3],
    "min_length": [6],
    "max_length": [8, 15],
    "bad_words_ids": [[[7], [9, 11]]],
    "suppress_tokens": [[8, 20]],
    "forced_bos_token_id": [1],
    "forced_eos_token_id": [2],
}
OPTIONS = {OPTION + name: values for name, values in SEARCH.items()}
LAYERS = {"activation_function": ACTIVATIONS, "scale_embedding": [True], "decoder_layers": [1, 3]}
LAYERS |= {"encoder_layers": [1]}
TIES = {"tie_word_embeddings": [True, False], EDITS + "tie_word_embeddings": [True, False], "head": FILES["head"]}
CHOICES: dict[str, dict[str, list[Any]]] = {
    **dict.fromkeys(("bart", "pegasus"), LAYERS | TIES | FILE | OPTIONS),
    **dict.fromkeys(("t5", "mt5", "umt5"), T5 | TIES | OPTIONS | {"num_decoder_layers": [1, 3]}),
}


@torch.no_grad()
def compare(case: Case, folder: Path) -> str:
    model_class, sizes = transformers.AutoModelForSeq2SeqLM, SIZES[case.base]
    config = config_of(case, sizes)
    write_model(case, folder, config, model_class)
    write_tokenizer(folder, "<s> $A </s>", "<s> $A </s> $B </s>")
    search = {name.removeprefix(OPTION): value for name, value in case.chosen.items() if name.startswith(OPTION)}
    special = {name: value for name, value in sizes.items() if name.endswith("_id")}
    settings = special | {"num_beams": 2, "max_length": 12} | search
    (folder / "generation_config.json").write_text(json.dumps(settings))
    theirs = loaded(model_class, folder)
    tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(folder)
    translator = fastattn.Translator(folder, precision="float32", threads=1)
    for text in make_texts(case, (1, 6, 14)):
        ids = torch.tensor([tokenizer(text)["input_ids"]])
        try:
            generated = theirs.generate(ids, return_dict_in_generate=True, output_scores=True)
        except Exception as error:  # noqa: BLE001 - of whatever kind: it is theirs
            raise Skipped(str(error)) from None
        expected = tokenizer.decode(generated.sequences[0], skip_special_tokens=True).split()
        ours = translator.translate(text, details=True)
        if ours.text.split() != expected:
            return f"{text!r} becomes {ours.text!r}, theirs {' '.join(expected)!r}"
        if "sequences_scores" in generated and (
            fault := difference("score", [ours.scores[0]], [float(generated.sequences_scores[0])], 1e-3)
        ):
            return fault
    return ""
