"""fairseq's Transformers: a .pt file with options and tensors, dict.LANGUAGE.txt for both languages, and BPE codes.

The training's options describe the model (fairseq/models/transformer of 0.6 to 0.12); options that a StackSpec cannot
express are refused by name. The decoder starts with the end token; positions count from 2.
"""

import itertools
import math
import re
from dataclasses import replace
from typing import Any

from fastattn.errors import CheckpointError
from fastattn.spec.architecture import AttentionSpec, FeedForwardSpec, ModelSpec, NormSpec, PositionSpec, StackSpec
from fastattn.spec.checkpoint import Checkpoint
from fastattn.spec.text_spec import DecodingSettings, SearchRules, TranslationText
from fastattn.weights.containers.json_file import decode, is_text, shorten
from fastattn.weights.containers.pytorch import TrainerFile
from fastattn.weights.containers.safetensors import StoredTensor
from fastattn.weights.folder import Folder
from fastattn.weights.huggingface.architectures.bart import LEARNED_TABLE
from fastattn.weights.huggingface.architectures.translator import HEAD, SOURCE, TARGET
from fastattn.weights.recurrent.mapping import checked_vocabulary
from fastattn.weights.tensor_mapping import canonical_tensors, stored_precision
from fastattn.weights.trainers.files import checked_options, read_options, read_size, read_tokenizers

SPECIAL_TOKENS = ("<s>", "<pad>", "</s>", "<unk>")
PADDING = SPECIAL_TOKENS.index("<pad>")
FIRST_POSITION = PADDING + 1
BEAM_SIZE = 5  # of fairseq's own translate
RULES = SearchRules(early_stopping="true")
ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "gelu_accurate": "gelu_tanh", "gelu_fast": "gelu_tanh"}
ACTIVATIONS |= {"swish": "swish", "tanh": "tanh"}
_BOOLEAN: tuple[Any, ...] = (False, True)
# Option -> its supported values, the default first.
OPTIONS: dict[str, tuple[Any, ...]] = {
    "activation_fn": tuple(ACTIVATIONS),
    "adaptive_input": (False,),
    "adaptive_softmax_cutoff": (None,),
    **dict.fromkeys(("char_inputs", "cross_self_attention"), (False,)),
    "decoder_langtok": (False, None),
    "decoder_layers_to_keep": (None,),
    **dict.fromkeys(("decoder_learned_pos", "decoder_normalize_before"), _BOOLEAN),
    "encoder_langtok": (None, ""),  # of the task translation_multi_simple_epoch, as decoder_langtok and lang_pairs
    "encoder_layers_to_keep": (None,),
    **dict.fromkeys(("encoder_learned_pos", "encoder_normalize_before"), _BOOLEAN),
    "lang_pairs": (None,),
    **dict.fromkeys(("lang_tok_replacing_bos_eos", "no_cross_attention"), (False,)),
    **dict.fromkeys(("no_scale_embedding", "no_token_positional_embeddings"), _BOOLEAN),
    **dict.fromkeys(("share_all_embeddings", "share_decoder_input_output_embed"), _BOOLEAN),
    "tokenizer": (None, "moses", "space"),
}
DICTIONARY = re.compile(r"(?:.*/)?dict\.(.+)\.txt")
PAIR = re.compile(r"[./]([^./-]+)-([^./-]+)$")
# in_proj, out_proj, fc1 and fc2 are copies for PyTorch's own encoder layer: training changes only the originals.
UNUSED_NAMES = re.compile(
    r"(en|de)coder\.(version|embed_positions\._float_tensor|layers\.\d+\.(in_proj|out_proj|fc[12])_(weight|bias))"
)
OLD_NORMS = re.compile(r"(encoder|decoder)(\.layers\.\d+)\.layer_norms\.(\d)")
OLD_NORM_NAMES = {
    "encoder": ("self_attn_layer_norm", "final_layer_norm"),
    "decoder": ("self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm"),
}


def find_dictionaries(names: list[str]) -> dict[str, str]:
    """{language: the file with its vocabulary}, of the files of a folder."""
    return {match[1]: name for name in reversed(names) if (match := DICTIONARY.fullmatch(name))}


def read(folder: Folder, names: list[str], trainer_file: TrainerFile) -> Checkpoint:
    training, where = _training_options(trainer_file), trainer_file.where
    options = checked_options(training, OPTIONS, where)
    stored = _rename_tensors(trainer_file.tensors("model"), options)
    stacks = (_read_stack(name, training, options, stored, where) for name in ("encoder", "decoder"))
    spec = ModelSpec("encoder-decoder", *stacks)
    tensors = canonical_tensors(LEARNED_TABLE, spec, stored, where, "tensors do not fit the options")
    files = find_dictionaries(names)
    vocabularies = {language: _read_dictionary(folder, file) for language, file in files.items()}
    encoder, decoder = spec.stacks.values()
    languages = _find_languages(training, vocabularies, (encoder.vocabulary, decoder.vocabulary), where)
    source, target = (
        checked_vocabulary(vocabularies[language], stack.vocabulary, folder.where(files[language]))
        for language, stack in zip(languages, (encoder, decoder))
    )
    text = TranslationText(
        source_vocabulary=source,
        target_vocabulary=target,
        decoder_start_token="</s>",
        add_source_eos=True,
        source_language=languages[0],
        target_language=languages[1],
        words="fairseq" if options["tokenizer"] == "moses" else "",
        decoding=DecodingSettings(beam_size=BEAM_SIZE, suppress_sequences=((PADDING,),), rules=RULES),
        **read_tokenizers(folder, names, source),
    )
    return Checkpoint(spec, tensors, text, stored_precision(stored), "fairseq", files=tuple(folder.files_read))


def _training_options(trainer_file: TrainerFile) -> dict[str, Any]:
    """The training's options: those in args, or since version 0.10 those of task and model in cfg."""
    if type(trainer_file.entries.get("cfg")) is not dict:
        args = trainer_file.entries.get("args")
        return args if type(args) is dict else read_options(trainer_file, "args")
    groups = [trainer_file.entries["cfg"].get(name) for name in ("task", "model")]
    if not isinstance(groups[1], dict):
        raise CheckpointError(f"{trainer_file.where}: cfg should hold the options of a model")
    return {name: value for group in groups if isinstance(group, dict) for name, value in group.items()}


def _rename_tensors(stored: dict[str, StoredTensor], options: dict[str, Any]) -> dict[str, StoredTensor]:
    """The tensors under the names of current versions, shared tensors under each of their names."""
    stored = {name.removeprefix("model."): array for name, array in stored.items()}
    stored = {name: array for name, array in stored.items() if not UNUSED_NAMES.fullmatch(name)}
    stored = {OLD_NORMS.sub(_norm_name, name): array for name, array in stored.items()}
    for name in [name for name in stored if ".in_proj_" in name]:
        fused_tensor = stored[name]
        if fused_tensor.strides is not None or not fused_tensor.shape or fused_tensor.shape[0] % 3:
            continue  # ``canonical_tensors`` reports the name as unexpected
        del stored[name]
        rows, size = fused_tensor.shape[0] // 3, len(fused_tensor.data) // 3
        for i, part in enumerate("qkv"):
            data, shape = fused_tensor.data[i * size : (i + 1) * size], (rows, *fused_tensor.shape[1:])
            stored[name.replace("in_proj_", f"{part}_proj.")] = replace(fused_tensor, shape=shape, data=data)
    for name in ("decoder.embed_out", "decoder.output_projection.weight"):
        if name in stored:
            stored[HEAD] = stored.pop(name)
    all_shared = options["share_all_embeddings"]
    for name, is_shared in ((HEAD, all_shared or options["share_decoder_input_output_embed"]), (SOURCE, all_shared)):
        if is_shared and TARGET in stored:
            stored[name] = stored[TARGET]
    return stored


def _norm_name(match: re.Match) -> str:
    names = OLD_NORM_NAMES[match[1]]
    return f"{match[1]}{match[2]}.{names[int(match[3])]}" if int(match[3]) < len(names) else match[0]


def _read_stack(
    name: str, training: dict[str, Any], options: dict[str, Any], stored: dict[str, StoredTensor], where: str
) -> StackSpec:
    sizes = ("embed_dim", "attention_heads", "layers", "ffn_embed_dim")
    width, heads, layers, inner_width = (read_size(training, f"{name}_{size}", where) for size in sizes)
    table = stored.get(f"{name}.embed_tokens.weight")
    if table is None or len(table.shape) != 2 or layers > len(stored) or width % heads:
        raise CheckpointError(
            f"{where}: {name}.embed_tokens.weight should be a table, {name}_layers {layers} at most the number of"
            f" tensors and {name}_embed_dim {width} a multiple of {name}_attention_heads {heads}"
        )
    kind = "table" if options[f"{name}_learned_pos"] else "sinusoid"
    limit_option = "max_source_positions" if name == "encoder" else "max_target_positions"
    norms_before = bool(options[f"{name}_normalize_before"])
    norms = NormSpec(
        before=norms_before,
        final=norms_before and f"{name}.layer_norm.weight" in stored,
        embedding=f"{name}.layernorm_embedding.weight" in stored,
    )
    positions = PositionSpec("none")
    if not options["no_token_positional_embeddings"]:
        positions = PositionSpec(kind, limit=read_size(training, limit_option, where), start=FIRST_POSITION)
    return StackSpec(
        layers=layers,
        width=width,
        vocabulary=table.shape[0],
        attention=AttentionSpec(heads, heads, width // heads),
        feed_forward=FeedForwardSpec(inner_width, ACTIVATIONS[options["activation_fn"]]),
        norms=norms,
        positions=positions,
        embedding_scale=1.0 if options["no_scale_embedding"] else math.sqrt(width),
        cross_attention=name == "decoder",
    )


def _find_languages(
    training: dict[str, Any], tokens: dict[str, list[str]], rows: tuple[int, int], where: str
) -> tuple[str, str]:
    """(source, target) by the options, else by the path of the training's data, else by the vocabularies' sizes."""
    data = training.get("data")
    match = PAIR.search(data[0] if type(data) is list and data else data if type(data) is str else "")
    options_pair = (training.get("source_lang"), training.get("target_lang"))
    for pair in (options_pair, match.groups() if match else options_pair):
        if all(is_text(language) and language in tokens for language in pair):
            return str(pair[0]), str(pair[1])
    if None not in options_pair and all(map(is_text, options_pair)):
        file = f"dict.{shorten(next(language for language in options_pair if language not in tokens))}.txt"
        raise CheckpointError(f"{where}: {file} should lie beside it or in data/ there, is missing")
    pairs = itertools.permutations(tokens, 2)
    matching_pairs = [pair for pair in pairs if (len(tokens[pair[0]]), len(tokens[pair[1]])) == rows]
    if len(tokens) != 2 or len(matching_pairs) != 1:
        raise CheckpointError(
            f"{where}: its options do not say its languages: dict.SOURCE.txt and dict.TARGET.txt of {rows[0]} and"
            f" {rows[1]} tokens should lie beside it or in data/ there, and no other; found {shorten(sorted(tokens))}"
        )
    return matching_pairs[0]


def _read_dictionary(folder: Folder, name: str) -> list[str]:
    """The special tokens, then those of a file whose lines have a token, a space, a number and perhaps a flag."""
    where = folder.where(name)
    lines = decode(folder.read(name), where).split("\n")
    tokens, known_tokens = list(SPECIAL_TOKENS), set(SPECIAL_TOKENS)
    for number, line in enumerate(lines if lines[-1] else lines[:-1], 1):
        overwrites = line.rstrip().endswith(" #fairseq:overwrite")
        token, _, amount = line.rstrip().removesuffix(" #fairseq:overwrite").rpartition(" ")
        if not amount.isdecimal() or (token in known_tokens and not overwrites):
            expected = "once, a token, a space and how often it was seen"
            raise CheckpointError(f"{where}: line {number} should be, {expected}; is {shorten(line)}")
        tokens.append(token)
        known_tokens.add(token)
    return tokens
