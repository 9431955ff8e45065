"""A Checkpoint -> a Hugging Face directory that transformers loads, by the tables that read such a directory.

The readers decide which architecture a model has, and whether config.json can express the model: settings are made from
the model's sizes, and the first architecture whose reader reads the same model from these settings is written, with the
tokenizer files that this reader takes.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fastattn.errors import CheckpointError
from fastattn.spec.architecture import ModelSpec, StackSpec
from fastattn.spec.checkpoint import Checkpoint
from fastattn.spec.quantized import Tensor, as_float32
from fastattn.spec.rounding import bfloat16_bits
from fastattn.spec.text_spec import EncoderText, GeneratorText, TranslationText
from fastattn.weights.containers.json_file import JsonObject, as_json
from fastattn.weights.containers.safetensors import NewTensor, write_tensors
from fastattn.weights.huggingface.architectures.translator import HEAD, SHARED, TARGET
from fastattn.weights.huggingface.decoders import find_decoder
from fastattn.weights.huggingface.encoders import ENCODERS, find_architecture
from fastattn.weights.huggingface.generation import FILE as GENERATION
from fastattn.weights.huggingface.translators import find_translator
from fastattn.weights.huggingface.weights import ACTIVATIONS
from fastattn.weights.tensor_mapping import TensorSources, map_tensors

TYPES = {"float32": "F32", "bfloat16": "BF16"}
# Architectures in the order in which they are tried: settings of TRANSLATORS have BART's names, of DECODERS Llama's.
TRANSLATORS = ("marian", "m2m_100", "mbart", "bart", "pegasus")
DECODERS = ("llama", "mistral", "qwen2", "qwen3", "olmo2")
PADS = ("<pad>", "<blank>")
_ACTIVATIONS = {ours: name for name, ours in reversed(ACTIVATIONS.items())}  # our name -> transformers' name


@dataclass(frozen=True)
class Candidate:
    """A model as an architecture of transformers: config.json, the sources of tensors, the names of tied tensors."""

    config: dict[str, Any]
    mapping: Mapping[str, TensorSources]
    prefix: str = ""  # of the names of tensors in the file
    tied_names: tuple[str, ...] = ()


def write(
    path: Path,
    checkpoint: Checkpoint,
    precision: str,
    progress: Callable[[int, int], None] | None = None,
    factors: Mapping[str, np.ndarray] | None = None,
) -> None:
    """Write a model to an empty folder, as float32 or bfloat16; arguments as native.convert's ``write``.

    Raises CheckpointError for a model that no architecture here can express.
    """
    if precision not in TYPES:
        raise CheckpointError(f"a Hugging Face folder is written as {' or '.join(TYPES)}, not as {precision}")
    checkpoint = _with_padding_start(checkpoint)
    candidate = _find_candidate(checkpoint)
    stored = _stored_values(candidate, checkpoint.tensors)
    files = text_files(checkpoint, candidate.config)
    candidate.config["dtype"] = precision
    for name, content in (files | {"config.json": as_json(candidate.config)}).items():
        (path / name).parent.mkdir(exist_ok=True)
        (path / name).write_bytes(content)
    tensors = {
        candidate.prefix * (not name.startswith(("lm_head", "final_logits"))) + name: NewTensor(
            TYPES[precision],
            shape,
            values if precision == "float32" else lambda values=values: bfloat16_bits(values()),  # type: ignore[misc]
        )
        for name, (shape, values) in stored.items()
    }
    with open(path / "model.safetensors", "xb") as stream:
        write_tensors(stream, tensors, progress, {"format": "pt"})


def _find_candidate(checkpoint: Checkpoint) -> Candidate:
    """The first candidate from which its reader reads this model again; CheckpointError where there is none."""
    model, where = checkpoint.spec, "config.json"
    if model.head is not None or not all(isinstance(stack, StackSpec) for stack in model.stacks.values()):
        raise CheckpointError(
            "a Hugging Face folder is written of Transformers without a head, which this model is not"
        )
    makers = {"encoder-decoder": _translator_candidates, **dict.fromkeys(("encoder", "decoder"), _stack_candidates)}
    types, problem, expected = [], "", _comparable_model(model)
    for candidate, read_model in makers[model.kind](checkpoint) if model.kind in makers else ():
        types.append(candidate.config["model_type"])
        actual = _comparable_model(read_model)
        if actual == expected:
            return candidate
        differences = [
            f"{name}'s {field.replace('_', ' ')}"
            for name, stack in expected.stacks.items()
            for field, value in vars(stack).items()
            if name in actual.stacks and getattr(actual.stacks[name], field) != value
        ]
        if not problem or len(differences) < problem.count(",") + 1:
            problem = ", ".join(differences)
    tried = ", ".join(dict.fromkeys(types)) or "none"
    raise CheckpointError(f"{where} cannot say the {problem or 'kind'} of this model; architectures tried: {tried}")


def _with_padding_start(checkpoint: Checkpoint) -> Checkpoint:
    """The checkpoint; a decoder that starts from a zero embedding, as Marian's, gets a padding token as start token.

    The token is the last. Its embedding is zeros, its bias minus infinity, so that no search produces it.
    """
    (encoder, decoder), text = [*checkpoint.spec.stacks.values(), None][:2], checkpoint.input
    if not (isinstance(decoder, StackSpec) and decoder.start_from_zero_embedding and isinstance(text, TranslationText)):
        return checkpoint
    assert isinstance(encoder, StackSpec)
    tensors, padded_tables = dict(checkpoint.tensors), dict[int, Tensor]()
    for name in ("encoder.embedding.weight", "decoder.embedding.weight", "decoder.projection.weight"):
        table = tensors[name]
        if id(table) not in padded_tables:
            padded_tables[id(table)] = np.pad(as_float32(table), ((0, 1), (0, 0)))
        tensors[name] = padded_tables[id(table)]
    bias = tensors.get("decoder.projection.bias", np.zeros(decoder.vocabulary, np.float32))
    tensors["decoder.projection.bias"] = np.append(as_float32(bias), np.float32(-np.inf))
    encoder = replace(encoder, vocabulary=encoder.vocabulary + 1)
    rows = decoder.vocabulary + 1
    decoder = replace(decoder, start_from_zero_embedding=False, vocabulary=rows, projection_bias=True)
    spec = replace(checkpoint.spec, encoder=encoder, decoder=decoder)
    source, target = ((*tokens, PADS[0]) for tokens in (text.source_vocabulary, text.target_vocabulary))
    text = replace(text, source_vocabulary=source, target_vocabulary=target, decoder_start_token=PADS[0])
    return replace(checkpoint, spec=spec, tensors=tensors, input=text)


def _comparable_model(model: ModelSpec) -> ModelSpec:
    """The model without what may differ: last digits of the embedding's scale, and a bias of the projection."""
    stacks: dict[str, Any] = {
        name: replace(stack, embedding_scale=round(stack.embedding_scale, 4), projection_bias=False)
        for name, stack in model.stacks.items()
        if isinstance(stack, StackSpec)
    }
    return replace(model, **stacks)


def _own_type_first(types: Iterable[str], checkpoint: Checkpoint) -> list[str]:
    """The model types; that of the folder from which the model was read comes first."""
    return sorted(types, key=lambda model_type: model_type != checkpoint.details.get("model type"))


def _try_reading(find: Callable[[JsonObject], Any], config: dict[str, Any]) -> tuple[Any, JsonObject, Any] | None:
    """(the architecture, config.json, the stack or model read from that); None if the reader refuses the settings."""
    values = JsonObject(config, "config.json")
    try:
        architecture = find(values)
        return architecture, values, architecture.spec(values)
    except CheckpointError:
        return None


def _translator_candidates(checkpoint: Checkpoint) -> Iterator[tuple[Candidate, ModelSpec]]:
    text, (encoder, decoder) = checkpoint.input, checkpoint.spec.stacks.values()
    assert isinstance(text, TranslationText) and isinstance(encoder, StackSpec) and isinstance(decoder, StackSpec)
    embedding = checkpoint.tensors["decoder.embedding.weight"]
    is_shared = checkpoint.tensors["encoder.embedding.weight"] is embedding
    is_tied = checkpoint.tensors["decoder.projection.weight"] is embedding
    ids = {token: number for number, token in reversed(list(enumerate(text.target_vocabulary)))}
    # In Marian's folders, padding is the start token too.
    pad_tokens = (*PADS, text.decoder_start_token, text.eos_token)
    pad = next(text.target_vocabulary.index(token) for token in pad_tokens if token in text.target_vocabulary)
    start = ids.get(text.decoder_start_token or text.eos_token, pad)
    settings = {
        "is_encoder_decoder": True,
        "vocab_size": encoder.vocabulary,
        "decoder_vocab_size": decoder.vocabulary,
        "d_model": encoder.width,
        "activation_function": _ACTIVATIONS.get(encoder.feed_forward.activation),
        "scale_embedding": encoder.embedding_scale != 1,
        "max_position_embeddings": encoder.positions.limit or 1024,
        "share_encoder_decoder_embeddings": is_shared,
        "tie_word_embeddings": is_tied,
        "bos_token_id": ids.get(text.bos_token, 0),
        "eos_token_id": ids[text.eos_token],
        "pad_token_id": pad,
        "decoder_start_token_id": start,
    }
    for name, stack in (("encoder", encoder), ("decoder", decoder)):
        sizes = (stack.layers, stack.attention.heads, stack.feed_forward.inner_width)
        settings |= dict(zip((f"{name}_layers", f"{name}_attention_heads", f"{name}_ffn_dim"), sizes))
    for model_type in _own_type_first(TRANSLATORS, checkpoint):
        result = _try_reading(find_translator, settings | {"model_type": model_type})
        if result is not None:
            architecture, values, spec = result
            tied_names = architecture.tied_names(values)
            if (SHARED in tied_names) == is_shared and (HEAD in tied_names) == is_tied:
                config = values.values | {"architectures": [architecture.classes[0]]}
                mapping = map_tensors(architecture.table(values, spec), spec)
                yield Candidate(config, mapping, "model.", tied_names), spec


def _size_settings(stack: StackSpec) -> Iterator[dict[str, Any]]:
    """Settings by BERT's and Llama's names: with our limit of positions, then with rows kept for padding too."""
    attention, positions, rotary = stack.attention, stack.positions, stack.positions.rotary
    for extra_positions in dict.fromkeys((0, 1 + positions.padding)):
        yield {
            "vocab_size": stack.vocabulary,
            "hidden_size": stack.width,
            "num_hidden_layers": stack.layers,
            "num_attention_heads": attention.heads,
            "num_key_value_heads": attention.key_heads,
            "head_dim": attention.head_width,
            "intermediate_size": stack.feed_forward.inner_width,
            "hidden_act": _ACTIVATIONS.get(stack.feed_forward.activation),
            "max_position_embeddings": positions.limit + extra_positions,
            "rms_norm_eps": stack.norms.epsilon,
            "layer_norm_eps": stack.norms.epsilon,
            "type_vocab_size": stack.token_types or 1,
            "attention_bias": stack.biases,
            "mlp_bias": stack.biases,
            "sliding_window": None,
            **({"pad_token_id": positions.padding} if positions.padding >= 0 else {}),
            **({"rope_parameters": {"rope_type": "default", "rope_theta": rotary.base}} if rotary is not None else {}),
        }


def _stack_candidates(checkpoint: Checkpoint) -> Iterator[tuple[Candidate, ModelSpec]]:
    ((name, stack),) = checkpoint.spec.stacks.items()
    find: Callable[[JsonObject], Any] = find_decoder if name == "decoder" else find_architecture
    for model_type in _own_type_first(DECODERS if name == "decoder" else ENCODERS, checkpoint):
        settings: dict[str, Any] = {"model_type": model_type}
        if name == "decoder":
            embedding = checkpoint.tensors["decoder.embedding.weight"]
            settings["architectures"] = [f"{model_type.capitalize()}ForCausalLM"]
            settings["tie_word_embeddings"] = checkpoint.tensors["decoder.projection.weight"] is embedding
        for sizes in _size_settings(stack):
            result = _try_reading(find, sizes | settings)
            if result is not None and result[0].numbers is None:  # layers with ``numbers`` may share tensors
                architecture, values, spec = result
                model = ModelSpec(name, **{name: spec})
                mapping = map_tensors(architecture.table(values, spec), model)
                yield Candidate(values.values, mapping, "model." * (name == "decoder")), model


StoredValues = dict[str, tuple[tuple[int, ...], Callable[[], np.ndarray]]]


def _stored_values(candidate: Candidate, tensors: Mapping[str, Tensor]) -> StoredValues:
    """Name in the file -> (shape, a function that returns the values): the inverse of the candidate's mapping."""
    stored: StoredValues = {}
    split_tensors: dict[str, dict[int, Tensor]] = {}  # name in the file -> the tensors there, by their numbers
    for canonical_name, entry in candidate.mapping.items():
        tensor = tensors.get(canonical_name)
        changes_values = entry.kernel or entry.heads or entry.rolled_columns or entry.relu or entry.offset
        if changes_values or (tensor is None and entry.added_row is None):
            raise CheckpointError(f"{canonical_name} has no inverse in this architecture's table")
        if entry.split != (0, 1):
            split_tensors.setdefault(str(entry.names[0]), {})[entry.split[0]] = tensor  # type: ignore[assignment]
            continue
        if entry.added_row is not None:
            values = np.zeros(entry.shape, np.float32) if tensor is None else as_float32(tensor)
            stored[entry.added_row.name] = ((1, *entry.shape), partial(np.reshape, values, (1, *entry.shape)))
            continue
        assert tensor is not None
        begin = 0
        for name, count in zip(entry.names, entry.row_counts):
            rows = slice(begin, begin + count)
            begin += count
            if name is None:
                if as_float32(tensor)[rows].any():
                    raise CheckpointError(f"{canonical_name} is not zero, and this architecture has none")
            elif name not in candidate.tied_names:
                stored[name] = (entry.source_shapes[name], partial(_rows_of, tensor, rows, entry))
            else:
                table_name = SHARED if SHARED in candidate.tied_names else TARGET
                stored[table_name] = (entry.source_shapes[name], partial(as_float32, tensor))
    for canonical_name in tensors.keys() - candidate.mapping.keys():
        if as_float32(tensors[canonical_name]).any():
            raise CheckpointError(f"{canonical_name} has no place in this architecture")
    for name, parts in split_tensors.items():
        shapes = [parts[i].shape for i in sorted(parts)]
        shape = (sum(shape[0] for shape in shapes), *shapes[0][1:])
        stored[name] = (shape, lambda parts=parts: np.concatenate([as_float32(parts[i]) for i in sorted(parts)]))  # type: ignore[misc]
    return stored


def _rows_of(tensor: Tensor, rows: slice, entry: TensorSources) -> np.ndarray:
    values = as_float32(tensor)[rows]
    if entry.skipped_rows:  # rows at the beginning of a table that no position uses, such as those kept for padding
        values = np.concatenate([np.zeros((entry.skipped_rows, *values.shape[1:]), np.float32), values])
    return np.ascontiguousarray(values.T) if entry.transposed else values


# Field of DecodingSettings -> transformers' name.
_EQUAL_NAMES = ("length_penalty", "no_repeat_ngram_size", "repetition_penalty")
GENERATION_SETTINGS = {"beam_size": "num_beams", **{name: name for name in _EQUAL_NAMES}}


def text_files(checkpoint: Checkpoint, config: dict[str, Any]) -> dict[str, bytes]:
    """File -> content, of tokenizer files and generation settings; may add to ``config``, and remove from it."""
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
    """sentence-transformers' modules: the encoder, the pooling, perhaps a normalization."""
    if text.dense or text.sparse is not None or text.multi_vector is not None or text.pair is not None:
        raise CheckpointError("a Hugging Face folder is written of encoders with a pooling alone, which this is not")
    package = "sentence_transformers.models."
    modules = ["Transformer", "Pooling", *(["Normalize"] if text.normalize else [])]
    pooling = {"word_embedding_dimension": config["hidden_size"], "include_prompt": text.include_prompt}
    pooling |= {"pooling_mode": text.pooling[0] if len(text.pooling) == 1 else list(text.pooling)}
    prompts: dict[str, Any] = {"prompts": text.prompts, "default_prompt_name": text.default_prompt}
    prompts["similarity_fn_name"] = text.similarity
    entries = [
        {"idx": i, "name": str(i), "path": f"{i}_{name}" * (i > 0), "type": package + name}
        for i, name in enumerate(modules)
    ]
    return {
        "modules.json": as_json(entries),
        "1_Pooling/config.json": as_json(pooling),
        "config_sentence_transformers.json": as_json(prompts),
        "sentence_bert_config.json": as_json({"max_seq_length": text.max_length, "do_lower_case": text.lowercase}),
        "tokenizer_config.json": as_json({"model_max_length": text.max_length}),
    }


def _translation_files(text: TranslationText, config: dict[str, Any]) -> dict[str, bytes]:
    decoding = text.decoding
    settings = {
        name: value for field, name in GENERATION_SETTINGS.items() if (value := getattr(decoding, field)) is not None
    }
    settings |= {name: number for name, number in config.items() if name.endswith("_token_id")}
    ids = {token: number for number, token in reversed(list(enumerate(text.target_vocabulary)))}
    if decoding.forced_tokens:
        settings["forced_bos_token_id"] = ids[decoding.forced_tokens[0]]
    if decoding.suppress_sequences:
        settings["bad_words_ids"] = [list(sequence) for sequence in decoding.suppress_sequences]
    # Without max_length, transformers stops at 20 tokens; its limits count the start token.
    settings["max_length"] = 1 + (decoding.max_decoding_length or config["max_position_embeddings"] - 1)
    if decoding.min_decoding_length:
        settings["min_length"] = 1 + decoding.min_decoding_length
    if decoding.rules is not None:
        settings["early_stopping"] = {"true": True, "false": False}.get(decoding.rules.early_stopping, "never")
        settings["forced_eos_token_id"] = ids[text.eos_token] if decoding.rules.forced_end else None
        settings["renormalize_logits"] = decoding.rules.renormalized
    elif decoding.beam_size not in (None, 1):
        settings["early_stopping"] = True
    tokens = {
        "unk_token": text.unk_token,
        "eos_token": text.eos_token,
        "pad_token": text.target_vocabulary[config["pad_token_id"]],
        "source_lang": text.source_language,
        "target_lang": text.target_language,
    }
    if (languages := text.languages) is not None and languages.target:
        tokens |= _language_settings(text, languages.source, config["model_type"])
        if languages.target == "start":  # the target's language is the start token
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
    is_separate = text.source_vocabulary != text.target_vocabulary
    tokens |= {"separate_vocabs": True} if is_separate else {}
    names = ("vocab.json", "target_vocab.json") if is_separate else ("vocab.json",)
    for name, vocabulary in zip(names, (text.source_vocabulary, text.target_vocabulary)):
        files[name] = as_json({token: number for number, token in enumerate(vocabulary) if token})
    models = {"source.spm": text.source_model, "target.spm": text.target_model or text.source_model}
    return files | models | {"tokenizer_config.json": as_json(tokens)}


def _language_settings(text: TranslationText, source_position: str, model_type: str) -> dict[str, Any]:
    """Settings of tokenizer_config.json that say where language tokens go, and the default languages."""
    languages = {"src_lang": text.source_language, "tgt_lang": text.target_language}
    settings: dict[str, Any] = {name: language for name, language in languages.items() if language}
    if model_type == "m2m_100":
        return settings | {"tokenizer_class": "NllbTokenizer", "legacy_behaviour": source_position == "after"}
    return settings | {"tokenizer_class": "MBartTokenizer" if source_position == "after" else "MBart50Tokenizer"}
