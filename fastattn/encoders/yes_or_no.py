"""Language models as rerankers: Qwen 3's, which say yes or no to a query, a document, an instruction (Zhang 2025)."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fastattn.errors import CheckpointError
from fastattn.spec.checkpoint import Checkpoint
from fastattn.spec.text_spec import EncoderText, GeneratorText, PairPrompt
from fastattn.text.huggingface import HuggingFaceTokenizer

LONGEST = 8192  # ids of a pair with all that is around it, as in Qwen's card
# Its prompt: of the texts between, the end is cut off where there are too many ids.
PROMPT = PairPrompt(
    before="<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
    'provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n',
    instruction="<Instruct>: ",
    query="\n<Query>: ",
    document="\n<Document>: ",
    after="<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
)
INSTRUCTION = "Given a web search query, retrieve relevant passages that answer the query"
TOKENS = (b'"<|im_start|>"', b'"<think>"', b'"yes"', b'"no"')  # that its tokenizer.json has


NAMED = "rerank"  # by which a model says that it is one: its tokens and its template are those of Qwen's chat models


def as_reranker(checkpoint: Checkpoint, asked: bool = False) -> Checkpoint:
    """A language model with Qwen 3's tokens as an encoder with a head; any other checkpoint as it is.

    What the head gives of a prompt's last row is the logit of "yes" less that of "no". Raises CheckpointError where
    nobody asked, and no name of its files and their last folders has ``NAMED`` in it.
    """
    text = checkpoint.input
    if not isinstance(text, GeneratorText) or not all(token in bytes(text.tokenizer) for token in TOKENS):
        return checkpoint
    if not asked and not any(NAMED in part.lower() for path in checkpoint.files for part in path.absolute().parts[-4:]):
        raise CheckpointError(
            f'a reranker is expected: nothing in the names of this language model says "{NAMED}"; where it is one, '
            "name its folder so, or give CrossEncoder(..., yes_or_no=True)"
        )
    yes = no = 0
    if (projection := checkpoint.tensors.get("decoder.projection.weight")) is not None:  # else the head is kept
        tokenizer = HuggingFaceTokenizer(text.tokenizer, LONGEST)
        found = [tokenizer.index(token) for token in ("yes", "no")]
        if any(index is None or index >= projection.shape[0] for index in found):
            return checkpoint
        yes, no = found  # type: ignore[assignment]
    made = checkpoint.as_reranker(yes, no, PROMPT)
    assert isinstance(made.input, EncoderText)
    most, prompts = min(made.input.max_length, LONGEST), {"query": INSTRUCTION}
    return replace(made, input=replace(made.input, max_length=most, prompts=prompts, default_prompt="query"))


def prompts_of(
    pairs: Sequence[tuple[str, str]], prompt: PairPrompt, tokenizer: HuggingFaceTokenizer, threads: int
) -> list[np.ndarray]:
    """int32 ids of pairs in their prompt, which begin with the instruction."""
    before, after = tokenizer.encode_whole([prompt.before, prompt.after])
    room = max(tokenizer.max_length - len(before) - len(after), 0)
    ids_B = tokenizer.encode_whole([first + second for first, second in pairs], threads)
    return [np.concatenate([before, ids[:room], after]) for ids in ids_B]
