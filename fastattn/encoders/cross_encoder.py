"""CrossEncoder: pairs of texts in, scores out; also by Qwen 3's rerankers, language models that say yes or no.

These get a query, a document and an instruction in one prompt (Zhang 2025).
"""

import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from fastattn.encoders.base import check_ignored, progress_bar
from fastattn.encoders.text_classifier import HeadedModel, activated, checked_pairs
from fastattn.encoders.vector_head import find_prompt
from fastattn.errors import (
    CheckpointError,
    InputError,
    check_bool,
    check_count,
    check_known,
    check_several,
    check_texts,
)
from fastattn.scheduling.request import Plan
from fastattn.spec.checkpoint import Checkpoint
from fastattn.spec.text_spec import SCORES, EncoderText, GeneratorText, PairPrompt
from fastattn.system.option_names import MODEL, TEXTS, explains_options
from fastattn.system.progress import Progress
from fastattn.text.huggingface import HuggingFaceTokenizer

LONGEST = 8192  # ids of a pair in its prompt, as in Qwen's card
# The prompt: a pair between ``before`` and ``after`` loses its end where there are too many ids.
PROMPT = PairPrompt(
    before="<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
    'provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n',
    instruction="<Instruct>: ",
    query="\n<Query>: ",
    document="\n<Document>: ",
    after="<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
)
INSTRUCTION = "Given a web search query, retrieve relevant passages that answer the query"
TOKENS = (b'"<|im_start|>"', b'"<think>"', b'"yes"', b'"no"')  # in Qwen 3's tokenizer.json
NAMED = "rerank"  # in a reranker's name, which alone tells it from Qwen's chat models: tokens and template are theirs


class CrossEncoder(HeadedModel):
    """Scores of pairs of texts from a checkpoint that classifies, as sentence-transformers computes them: a reranker.

    yes_or_no  True: read any language model with Qwen 3's tokens as a Qwen3-Reranker

    Both texts of a pair are read together; of a pair that is too long the longer text is cut first. A language model
    with Qwen 3's tokens, and "rerank" in the name of its file or folder, is read as a Qwen3-Reranker: a score is the
    probability of "yes" against "no" behind its card's prompt, whose instruction ``prompt`` replaces; of a pair that is
    too long the document's end is cut.
    Raises CheckpointError for a path without a valid checkpoint of either.
    """

    _yes_or_no = False

    @explains_options(MODEL)
    def __init__(
        self,
        path: str | os.PathLike,
        precision: str = "auto",
        threads: int | None = None,
        processes: int | None = None,
        device: str = "cpu",
        yes_or_no: bool = False,
    ):
        self._yes_or_no = check_bool("yes_or_no", yes_or_no)
        super().__init__(path, precision, threads, processes, device)

    def _check(self, checkpoint: Checkpoint) -> Checkpoint:
        return super()._check(as_reranker(checkpoint, self._yes_or_no))

    def _plan_pairs(self, pairs: Sequence[tuple[str, str]], progress: Progress | None = None) -> Plan:
        if self._text.pair is None:
            return (yield from super()._plan_pairs(pairs, progress))
        ids_B = prompts_of(pairs, self._text.pair, self._tokenizer, self._loaded.threads)
        return (yield from self._plan(ids_B, None, progress, "pairs"))

    def _prompted(self, pairs: Sequence[tuple[str, str]], before: str) -> list[tuple[str, str]]:
        """The pairs with a prompt before the first text, for a language model with its words around both texts."""
        between = ""
        if self._text.pair is not None:
            before, between = f"{self._text.pair.instruction}{before}{self._text.pair.query}", self._text.pair.document
        return [(before + first, between + second) for first, second in pairs]

    def _pair_lengths(self, pairs: Sequence[tuple[str, str]]) -> list[int]:
        pairs = self._prompted(pairs, find_prompt(self._text, None, None))
        if self._text.pair is None:
            return super()._pair_lengths(pairs)
        framing = sum(map(len, self._tokenizer.encode_whole([self._text.pair.before, self._text.pair.after])))
        whole = self._tokenizer.encode_whole([first + second for first, second in pairs], self._loaded.threads)
        return [framing + len(ids) for ids in whole]

    @property
    def num_labels(self) -> int:
        """How many numbers a pair gets; 1: a score."""
        return self._head.spec.outputs

    @explains_options(TEXTS)
    def predict(
        self,
        pairs: Iterable[Sequence[str]] | Sequence[str],
        *,
        prompt_name: str | None = None,
        prompt: str | None = None,
        activation_fn: str | None = None,
        apply_softmax: bool = False,
        show_progress_bar: bool | None = None,
        batch_size: int | None = None,
        convert_to_numpy: bool = True,
    ) -> np.ndarray:
        """float32 scores of ``pairs``, in their order: [len(pairs)], or [len(pairs), num_labels] for several labels.

        A single pair of texts, in place of several, gets [] or [num_labels].
        prompt_name, prompt  put before the first text of each pair, as ``Encoder.encode`` has them; the instruction
                             for a language model
        activation_fn        from the head's numbers to scores: "none", "sigmoid", "tanh" or "relu"; None: as the
                             checkpoint says, else "sigmoid" for one label and "none" for several
        apply_softmax        True: the scores of several labels become probabilities that sum to 1
        batch_size, convert_to_numpy=True   accepted for sentence-transformers' callers, without effect
        Raises InputError for other values.
        """
        before = find_prompt(self._text, prompt_name, prompt)
        name = self._text.scores if activation_fn is None else activation_fn
        check_known("activation_fn", name, SCORES)
        softmax = check_bool("apply_softmax", apply_softmax) and self.num_labels > 1
        check_ignored(batch_size, convert_to_numpy, "scores")
        listed, single = checked_pairs(pairs)
        listed = self._prompted(listed, before)
        if single:
            numbers_BF = self._run_alone(partial(self._plan_pairs, listed))
        else:
            with progress_bar(show_progress_bar) as progress:
                numbers_BF = self._scheduler.run(partial(self._plan_pairs, listed, progress))
        scores_BF = activated(name, numbers_BF)
        if softmax:
            scores_BF = activated("softmax", scores_BF)
        scores = scores_BF[:, 0] if self.num_labels == 1 else scores_BF
        return scores[0] if single else scores

    def rank(
        self, query: str, documents: Iterable[str], top_k: int | None = None, return_documents: bool = False, **how: Any
    ) -> list[dict[str, Any]]:
        """The documents by their scores for the query, best first: {"corpus_id": number, "score": float} of each.

        top_k             how many; None: all
        return_documents  add "text", the document itself
        how               of ``predict``
        Equal scores are in the documents' order; scores that are no numbers come last.
        Raises InputError for a checkpoint of several labels.
        """
        if self.num_labels != 1:
            raise InputError(f"rank needs a checkpoint with one label, this one has {self.num_labels}; use predict")
        if top_k is not None:
            check_count("top_k", top_k)
        with_texts = check_bool("return_documents", return_documents)
        if not isinstance(query, str):
            raise InputError(f"query must be a str, got {type(query).__name__}")
        texts = check_texts("documents", check_several("documents", documents, "several str"))
        scores = self.predict([(query, text) for text in texts], **how).tolist()
        best = sorted(range(len(texts)), key=lambda i: (math.isnan(scores[i]), -scores[i]))[:top_k]
        ranked: list[dict[str, Any]] = [{"corpus_id": i, "score": scores[i]} for i in best]
        if with_texts:
            for entry in ranked:
                entry["text"] = texts[entry["corpus_id"]]
        return ranked


def as_reranker(checkpoint: Checkpoint, forced: bool = False) -> Checkpoint:
    """A language model with Qwen 3's tokens as an encoder with a head; any other checkpoint as it is.

    The head's number for a prompt's last row is the logit of "yes" less that of "no". Raises CheckpointError unless the
    model is ``forced`` to be one or a name of its files and their last folders has ``NAMED`` in it.
    """
    text = checkpoint.input
    if not isinstance(text, GeneratorText) or not all(token in bytes(text.tokenizer) for token in TOKENS):
        return checkpoint
    parts = (part.lower() for path in checkpoint.files for part in path.absolute().parts[-4:])
    if not forced and not any(NAMED in part for part in parts):
        raise CheckpointError(
            f'a reranker is expected: nothing in the names of this language model says "{NAMED}"; where it is one, '
            "name its folder so, or give CrossEncoder(..., yes_or_no=True)"
        )
    yes = no = 0
    if (projection := checkpoint.tensors.get("decoder.projection.weight")) is not None:  # else the head is kept
        tokenizer = HuggingFaceTokenizer(text.tokenizer, LONGEST)
        indices = [tokenizer.index(token) for token in ("yes", "no")]
        if any(index is None or index >= projection.shape[0] for index in indices):
            return checkpoint
        yes, no = indices  # type: ignore[assignment]
    reranker = checkpoint.as_reranker(yes, no, PROMPT)
    pair_text = reranker.input
    assert isinstance(pair_text, EncoderText)
    prompts, limit = {"query": INSTRUCTION}, min(pair_text.max_length, LONGEST)
    return replace(reranker, input=replace(pair_text, max_length=limit, prompts=prompts, default_prompt="query"))


def prompts_of(
    pairs: Sequence[tuple[str, str]], prompt: PairPrompt, tokenizer: HuggingFaceTokenizer, threads: int
) -> list[np.ndarray]:
    """int32 ids of pairs, the first texts of which begin with the instruction, in the prompt."""
    before, after = tokenizer.encode_whole([prompt.before, prompt.after])
    room = max(tokenizer.max_length - len(before) - len(after), 0)
    ids_B = tokenizer.encode_whole([first + second for first, second in pairs], threads)
    return [np.concatenate([before, ids[:room], after]) for ids in ids_B]
