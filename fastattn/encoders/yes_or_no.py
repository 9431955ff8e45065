"""Language models as rerankers: Qwen 3's, which say yes or no to a query, a document and an instruction (Zhang 2025)."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fastattn.spec.architecture import HeadSpec
from fastattn.spec.checkpoint import Checkpoint
from fastattn.spec.quantized import as_float32, take
from fastattn.spec.text_spec import GeneratorText, PairPrompt
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
PROJECTION = "decoder.projection.weight"


def as_reranker(checkpoint: Checkpoint) -> Checkpoint:
    """A language model with Qwen 3's tokens as an encoder with a head; any other checkpoint as it is.

    What the head gives of a prompt's last row is the logit of "yes" less that of "no".
    """
    text = checkpoint.input
    if not isinstance(text, GeneratorText) or not all(token in bytes(text.tokenizer) for token in TOKENS):
        return checkpoint
    made, tensors = checkpoint.as_encoder(), {}
    if PROJECTION in checkpoint.tensors:  # a kept model has the head's own
        tokenizer = HuggingFaceTokenizer(text.tokenizer, LONGEST)
        ids = np.array([-1 if (index := tokenizer.index(token)) is None else index for token in ("yes", "no")])
        if (ids < 0).any() or (ids >= checkpoint.tensors[PROJECTION].shape[0]).any():
            return checkpoint
        yes_D, no_D = as_float32(take(checkpoint.tensors[PROJECTION], ids))
        tensors["head.output.weight"] = (yes_D - no_D)[None]
    read = replace(
        made.text,
        max_length=min(made.text.max_length, LONGEST),
        prompts={"query": INSTRUCTION},
        default_prompt="query",
        labels=("yes",),
        scores="sigmoid",
        pair=PROMPT,
    )
    head = HeadSpec("last", 1, bias=False)
    return replace(made, spec=replace(made.spec, head=head), tensors={**made.tensors, **tensors}, input=read)


def prompts_of(
    pairs: Sequence[tuple[str, str]], prompt: PairPrompt, tokenizer: HuggingFaceTokenizer, threads: int
) -> list[np.ndarray]:
    """int32 ids of pairs in their prompt, which begin with the instruction."""
    before, after = tokenizer.encode_whole([prompt.before, prompt.after])
    room = max(tokenizer.max_length - len(before) - len(after), 0)
    ids_B = tokenizer.encode_whole([first + second for first, second in pairs], threads)
    return [np.concatenate([before, ids[:room], after]) for ids in ids_B]
