"""sentence-transformers' rerankers that are language models: a Transformer, and LogitScore of two of its tokens."""

import dataclasses
import re
from collections.abc import Callable

from fastattn.errors import CheckpointError
from fastattn.spec.checkpoint import Checkpoint
from fastattn.spec.text_spec import EncoderText, GeneratorText, PairPrompt
from fastattn.text.chat import ChatTemplate
from fastattn.weights.containers.json_file import JsonObject, read_object
from fastattn.weights.folder import Folder
from fastattn.weights.huggingface.decoder import read_decoder

MARKS = {"system": "\ue000", "query": "\ue001", "document": "\ue002"}  # in the place of a conversation's texts


def read_reranker(
    folder: Folder, prefix: str, own: JsonObject, with_prompts: Callable[[EncoderText], EncoderText]
) -> Checkpoint:
    """Read a folder whose module LogitScore has files that begin with ``prefix``.

    own           settings of its Transformer
    with_prompts  adds what the folder says of prompts and scores
    """
    tokens = read_object(folder, prefix + "config.json")
    if own.string("transformer_task") != "text-generation" or not tokens.has("false_token_id"):
        raise CheckpointError(f"{tokens.where}: LogitScore needs a text-generation Transformer and two tokens")
    checkpoint = read_decoder(folder)
    text = checkpoint.text
    assert isinstance(text, GeneratorText)
    if not text.chat_template:
        raise CheckpointError(f"{tokens.where}: LogitScore needs a chat template of query and document")
    prompt, instruction = _prompt_of(ChatTemplate(text.chat_template, text.special_tokens), tokens.where)
    ids = tokens.integer("true_token_id"), tokens.integer("false_token_id")
    if max(ids) >= checkpoint.tensors["decoder.projection.weight"].shape[0]:
        raise CheckpointError(
            f"{tokens.where}: true_token_id and false_token_id should be of the vocabulary, are {ids}"
        )
    made = checkpoint.as_reranker(*ids, prompt)
    assert isinstance(made.input, EncoderText)
    read = with_prompts(made.input)
    if read.default_prompt is None:
        if instruction is None:
            where = tokens.where
            raise CheckpointError(f"{where}: the chat template has no instruction of its own, nor is a prompt named")
        read = dataclasses.replace(read, prompts={**read.prompts, "": instruction}, default_prompt="")
    most = own.optional_size("max_seq_length") or read.max_length
    scores = read.scores or "sigmoid"
    return dataclasses.replace(made, input=dataclasses.replace(read, max_length=most, scores=scores))


def _prompt_of(template: ChatTemplate, where: str) -> tuple[PairPrompt, str | None]:
    """(what the template puts around an instruction and a pair, its own instruction or None)."""
    asked = [{"role": role, "content": mark} for role, mark in MARKS.items()]
    whole, usual = template.render(asked, False), template.render(asked[1:], False)
    marks = "".join(MARKS.values())
    if "".join(re.findall(f"[{marks}]", whole)) != marks:
        raise CheckpointError(f"{where}: the chat template should have instruction, query and document once, in order")
    before, query, document, after = re.split(f"[{marks}]", whole)
    ending = "".join((query, MARKS["query"], document, MARKS["document"], after))
    own = usual.startswith(before) and usual.endswith(ending) and len(usual) >= len(before) + len(ending)
    # Where texts meet, their tokens may span both: all but what is behind stays one text.
    return PairPrompt("", before, query, document, after), usual[len(before) : -len(ending)] if own else None
