"""Decoder-only language models in Hugging Face directories: config.json, weights and a tokenizer -> a Checkpoint."""

from fastattn.errors import CheckpointError
from fastattn.spec.architecture import ModelSpec, StackSpec
from fastattn.spec.checkpoint import Checkpoint
from fastattn.spec.text_spec import GeneratorText
from fastattn.weights.containers.json_file import JsonObject, decode, is_text, read_object, read_optional, shorten
from fastattn.weights.folder import Folder
from fastattn.weights.huggingface.architectures.architecture import Architecture, architecture_in, refuse
from fastattn.weights.huggingface.encoders import ENCODERS, stack_sources, with_current_names
from fastattn.weights.huggingface.generation import are_ids, generation_values, read_settings
from fastattn.weights.huggingface.tokenizer import default_pooling, read_tokenizer
from fastattn.weights.huggingface.tokenizer_files import CONFIG, join_chat_templates, read_added_tokens
from fastattn.weights.huggingface.weights import as_checkpoint, read_weights
from fastattn.weights.tensor_mapping import make_tensors

# model_type -> a module and the name of an Architecture in it; a module is imported when it is needed.
DECODERS = {
    "gemma2": "llama.GEMMA2",
    "gemma3": "llama.GEMMA3_DECODER",
    "gemma3_text": "llama.GEMMA3_DECODER",
    "gpt2": "gpt.GPT2",
    "gpt_neox": "gpt.GPT_NEOX",
    "hunyuan_v1_dense": "llama.HUNYUAN",
    "llama": "llama.LLAMA",
    "mistral": "llama.MISTRAL",
    "olmo2": "llama.OLMO2",
    "phi3": "llama.PHI3",
    "qwen2": "llama.QWEN_DECODER",
    "qwen3": "llama.QWEN_DECODER",
    "smollm3": "llama.SMOLLM3",
}
# Ends of the names of transformers' classes that have the projection to the vocabulary too.
CLASSES = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")
# Name of a chat template -> its file: the default, and one for conversations with tools.
TEMPLATES = {"default": "chat_template.jinja", "tool_use": "additional_chat_templates/tool_use.jinja"}
# Settings that a config.json of text and images has beside its text_config, and that hold for text too.
SHARED_SETTINGS = ("architectures", "eos_token_id", "quantization_config", "tie_word_embeddings", "tokenizer_class")
# transformers' defaults of settings that the text_config of Gemma 3's published files omits.
TEXT_DEFAULTS = {"vocab_size": 262_208, "num_attention_heads": 8, "max_position_embeddings": 131_072}


def find_decoder(config: JsonObject) -> Architecture:
    """The architecture of a config.json; CheckpointError, which lists the known types, for an unknown model_type."""
    architecture: Architecture = architecture_in(DECODERS, config)
    return architecture


def is_decoder(config: JsonObject) -> bool:
    """Whether the directory is a language model's; an encoder made from one may have the same model_type."""
    model_type, names = config.string("model_type"), config.values.get("architectures")
    if model_type not in DECODERS or model_type not in ENCODERS:
        return model_type in DECODERS
    bidirectional = config.values.get("is_causal") is False or config.values.get("use_bidirectional_attention") is True
    has_decoder_class = isinstance(names, list) and bool(names) and is_text(names[0]) and names[0].endswith(CLASSES)
    return has_decoder_class and not bidirectional


def read_decoder(folder: Folder) -> Checkpoint:
    """Read a language model; CheckpointError for a directory that is not supported, malformed or incomplete."""
    config = text_config(read_object(folder, "config.json"))
    name = _model_class(config)
    refuse(config, quantization_config={}, pruned_heads={})
    architecture = find_decoder(config)
    spec = architecture.spec(config)
    text = _read_text(folder, config, spec)
    stored, where = read_weights(folder)
    stored, model = with_current_names(stored, architecture, config), ModelSpec("decoder", decoder=spec)
    mapping = stack_sources(architecture, config, model, stored, where)
    tensors, headless = make_tensors(mapping, stored), f"{config.where}: {shorten(name)} has no head that classifies"
    return as_checkpoint(folder, config, stored, spec=model, tensors=tensors, input=text, headless=headless)


def text_config(config: JsonObject) -> JsonObject:
    """config.json, or the settings of its text_config if the model takes images too."""
    if not config.has("text_config"):
        return config
    shared_settings = {name: config.values[name] for name in SHARED_SETTINGS if name in config.values}
    nested = config.nested("text_config")
    text_settings = {name: value for name, value in nested.values.items() if value is not None}
    values = {"model_type": config.string("model_type")} | TEXT_DEFAULTS | shared_settings | text_settings
    return JsonObject(values, nested.where)


def _model_class(config: JsonObject) -> str:
    """The class that config.json names first, or ""; CheckpointError for a class without a projection."""
    names = config.values.get("architectures") or [""]
    if not isinstance(names, list) or not is_text(names[0]):
        raise config.error("architectures", "a list of classes' names", names)
    name = str(names[0])
    if name and not name.endswith(CLASSES):
        raise CheckpointError(
            f"{config.where}: {shorten(name)} is not supported: of model type {config.string('model_type')} only "
            f"language models are, whose classes end in {', '.join(CLASSES)}"
        )
    return name


def _read_text(folder: Folder, config: JsonObject, spec: StackSpec) -> GeneratorText:
    settings = read_optional(folder, CONFIG)
    _, tokenizer = read_tokenizer(folder, "", config, settings, spec.vocabulary)
    special_tokens = read_added_tokens(folder, "", settings).by_name
    generation = generation_values(folder, config)
    value = generation.values.get("eos_token_id")  # an id or a list of ids; there may be none
    ids = [] if value is None else value if isinstance(value, list) else [value]
    if not are_ids(ids) or max(ids, default=0) >= spec.vocabulary:
        raise generation.error("eos_token_id", f"ids below {spec.vocabulary}", value)
    end_ids = tuple(dict.fromkeys(ids))
    return GeneratorText(
        tokenizer=tokenizer,
        max_length=spec.max_positions,
        end_ids=end_ids,
        chat_template=_read_chat_template(folder, settings),
        special_tokens={name: str(token["content"]) for name, token in special_tokens.items()},
        # The range stands for the tokens, of which read_settings needs only the number.
        decoding=read_settings(generation, range(1, spec.vocabulary + 1), generation is not config, end_ids),
        pooling=default_pooling(config),
    )


def _read_chat_template(folder: Folder, settings: JsonObject) -> str:
    """The chat template of the files of TEMPLATES, else of tokenizer_config.json; "" if there is none.

    tokenizer_config.json has one template, or several by name. The template for tools is merged with the default one.
    """
    templates: dict[object, object] = {
        name: decode(folder.read(file), folder.where(file)) for name, file in TEMPLATES.items() if folder.contains(file)
    }
    if not templates:
        value = settings.values.get("chat_template")
        entries = [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []
        templates = {entry.get("name"): entry.get("template") for entry in entries if is_text(entry.get("name"))}
        templates = templates if isinstance(value, list) else {"default": value}
    default, tool_use = ("" if templates.get(name) is None else templates[name] for name in TEMPLATES)
    for source in (default, tool_use):
        if not is_text(source):
            raise settings.error("chat_template", "a string, or several by name", source)
    return join_chat_templates(str(default), str(tool_use))
