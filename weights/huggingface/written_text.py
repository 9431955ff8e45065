"""The files of a Hugging Face directory that say how text becomes ids, and how a model searches."""

from typing import Any

from fastattn.errors import CheckpointError
from fastattn.spec.checkpoint import Checkpoint
from fastattn.spec.text_spec import EncoderText, GeneratorText, TranslationText
from fastattn.weights.containers.json_file import as_json
from fastattn.weights.huggingface.generation import FILE as GENERATION

SETTINGS = {
    "beam_size": "num_beams",
    "length_penalty": "length_penalty",
    "no_repeat_ngram_size": "no_repeat_ngram_size",
    "repetition_penalty": "repetition_penalty",
}


def text_files(checkpoint: Checkpoint, config: dict[str, Any]) -> dict[str, bytes]:
    """File -> content: a tokenizer's, and the settings of generation."""
    text = checkpoint.text
    if isinstance(text, TranslationText):
        return _translation_files(text, config)
    files = {"tokenizer.json": text.tokenizer}
    if isinstance(text, GeneratorText):
        config["eos_token_id"] = list(text.end_ids) or None
        settings = {"eos_token_id": config["eos_token_id"]}
        tokens: dict[str, Any] = {"model_max_length": text.max_length or 1 << 30, **text.special_tokens}
        if text.chat_template:
            files["chat_template.jinja"] = text.chat_template.encode()
        return files | {"tokenizer_config.json": as_json(tokens), GENERATION: as_json(settings)}
    return files | _encoder_files(text, config)


def _encoder_files(text: EncoderText, config: dict[str, Any]) -> dict[str, bytes]:
    """sentence-transformers' modules: the encoder, the pooling, a division by the length."""
    if text.dense or text.sparse is not None or text.multi_vector is not None or text.pair is not None:
        raise CheckpointError("a Hugging Face folder is written of encoders with a pooling alone, which this is not")
    kind = "sentence_transformers.models."
    modules = ["Transformer", "Pooling", *(["Normalize"] if text.normalize else [])]
    pooling = {"word_embedding_dimension": config["hidden_size"], "include_prompt": text.include_prompt}
    pooling |= {"pooling_mode": text.pooling[0] if len(text.pooling) == 1 else list(text.pooling)}
    prompts = {
        "prompts": text.prompts,
        "default_prompt_name": text.default_prompt,
        "similarity_fn_name": text.similarity,
    }
    listed = [
        {"idx": i, "name": str(i), "path": f"{i}_{name}" * (i > 0), "type": kind + name}
        for i, name in enumerate(modules)
    ]
    return {
        "modules.json": as_json(listed),
        "1_Pooling/config.json": as_json(pooling),
        "config_sentence_transformers.json": as_json(prompts),
        "sentence_bert_config.json": as_json({"max_seq_length": text.max_length, "do_lower_case": text.lowercase}),
        "tokenizer_config.json": as_json({"model_max_length": text.max_length}),
    }


def _translation_files(text: TranslationText, config: dict[str, Any]) -> dict[str, bytes]:
    found = text.decoding
    settings = {theirs: getattr(found, ours) for ours, theirs in SETTINGS.items() if getattr(found, ours) is not None}
    settings |= {name: number for name, number in config.items() if name.endswith("_token_id")}
    ids = {token: number for number, token in reversed(list(enumerate(text.target_vocabulary)))}
    if found.forced_tokens:
        settings["forced_bos_token_id"] = ids[found.forced_tokens[0]]
    if found.suppress_sequences:
        settings["bad_words_ids"] = [list(sequence) for sequence in found.suppress_sequences]
    # Without it transformers has a limit of its own, of 20 tokens; theirs count the start token.
    settings["max_length"] = 1 + (found.max_decoding_length or config["max_position_embeddings"] - 1)
    if found.min_decoding_length:
        settings["min_length"] = 1 + found.min_decoding_length
    if found.rules is not None:
        settings["early_stopping"] = {"true": True, "false": False}.get(found.rules.early_stopping, "never")
        settings["forced_eos_token_id"] = ids[text.eos_token] if found.rules.forced_end else None
        settings["renormalize_logits"] = found.rules.renormalized
    elif found.beam_size not in (None, 1):
        settings["early_stopping"] = True
    tokens = {
        "unk_token": text.unk_token,
        "eos_token": text.eos_token,
        "pad_token": text.target_vocabulary[config["pad_token_id"]],
        "source_lang": text.source_language,
        "target_lang": text.target_language,
    }
    if (told := text.languages) is not None and told.target:
        tokens |= _language_settings(text, told.source, config["model_type"])
        if told.target == "start":  # a target's own language
            settings.pop("decoder_start_token_id", None)
            config.pop("decoder_start_token_id", None)
    files = {GENERATION: as_json(settings)}
    if text.tokenizer is not None:
        return files | {"tokenizer.json": text.tokenizer, "tokenizer_config.json": as_json(tokens)}
    if config["model_type"] != "marian" or text.source_model is None:
        raise CheckpointError(
            f"a Hugging Face folder of {config['model_type']} holds a tokenizer.json, and marian's two sentencepiece"
            " models, which this model does not have"
        )
    separate = text.source_vocabulary != text.target_vocabulary
    tokens |= {"separate_vocabs": True} if separate else {}
    names = ("vocab.json", "target_vocab.json") if separate else ("vocab.json",)
    for name, vocabulary in zip(names, (text.source_vocabulary, text.target_vocabulary)):
        files[name] = as_json({token: number for number, token in enumerate(vocabulary) if token})
    models = {"source.spm": text.source_model, "target.spm": text.target_model or text.source_model}
    return files | models | {"tokenizer_config.json": as_json(tokens)}


def _language_settings(text: TranslationText, source: str, kind: str) -> dict[str, Any]:
    """By which tokenizer_config.json says where languages stand, and which ones serve where none is named."""
    named = {"src_lang": text.source_language, "tgt_lang": text.target_language}
    found: dict[str, Any] = {name: language for name, language in named.items() if language}
    if kind == "m2m_100":
        return found | {"tokenizer_class": "NllbTokenizer", "legacy_behaviour": source == "after"}
    return found | {"tokenizer_class": "MBartTokenizer" if source == "after" else "MBart50Tokenizer"}
