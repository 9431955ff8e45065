"""CrossEncoder: pairs of texts in, scores out, by an encoder or by a Qwen3-Reranker.

A Qwen3-Reranker is a language model that says yes or no to an instruction, a query and a document (Zhang 2025).
"""

import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from fastattn.encoders.base import check_ignored_options, progress_bar
from fastattn.encoders.text_classifier import HeadedModel, apply_activation, checked_pairs
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

MAX_IDS = 8192  # of a pair in its prompt, as in Qwen's card
# A pair stands between ``before`` and ``after``; where there are too many ids, the pair's end is cut.
PROMPT = PairPrompt(
    before="<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
    'provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n',
    instruction="<Instruct>: ",
    query="\n<Query>: ",
    document="\n<Document>: ",
    after="<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
)
INSTRUCTION = "Given a web search query, retrieve relevant passages that answer the query"
QWEN_TOKENS = (b'"<|im_start|>"', b'"<think>"', b'"yes"', b'"no"')  # in Qwen 3's tokenizer.json
RERANKER_WORD = "rerank"  # only the name tells a reranker from Qwen's chat models: tokens and template are the same


class CrossEncoder(HeadedModel):
    """Scores of pairs of texts from a checkpoint that classifies, as sentence-transformers computes them: a reranker.

    yes_or_no  True: read any language model with Qwen 3's tokens as a Qwen3-Reranker

    Both texts of a pair are read together; of a pair that is too long the longer text is cut first. A language model
    with Qwen 3's tokens, and "rerank" in the name of its file or folder, is read as a Qwen3-Reranker: a score is then
    the probability of "yes" against "no" after the prompt of Qwen's card; ``prompt`` replaces the card's instruction,
    and of a pair that is too long the document's end is cut.
    Raises CheckpointError for a path without a valid checkpoint of an encoder that classifies or of a Qwen3-Reranker.
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
        ids_B = encode_in_prompt(pairs, self._text.pair, self._tokenizer, self._loaded.threads)
        return (yield from self._plan(ids_B, None, progress, "pairs"))

    def _with_prompt(self, pairs: Sequence[tuple[str, str]], prompt: str) -> list[tuple[str, str]]:
        """The pairs with the prompt before the first text; a language model also gets the PairPrompt's headings."""
        heading = ""
        if self._text.pair is not None:
            prompt, heading = f"{self._text.pair.instruction}{prompt}{self._text.pair.query}", self._text.pair.document
        return [(prompt + first, heading + second) for first, second in pairs]

    def _pair_lengths(self, pairs: Sequence[tuple[str, str]]) -> list[int]:
        pairs = self._with_prompt(pairs, find_prompt(self._text, None, None))
        if self._text.pair is None:
            return super()._pair_lengths(pairs)
        frame_length = sum(map(len, self._tokenizer.encode_whole([self._text.pair.before, self._text.pair.after])))
        ids_B = self._tokenizer.encode_whole([first + second for first, second in pairs], self._loaded.threads)
        return [frame_length + len(ids) for ids in ids_B]

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
        prompt_name, prompt  put before the first text of each pair, chosen as for ``Encoder.encode``; for a language
                             model this is the instruction
        activation_fn        from the head's numbers to scores: "none", "sigmoid", "tanh" or "relu"; None: as the
                             checkpoint says, else "sigmoid" for one label and "none" for several
        apply_softmax        True: the scores of several labels become probabilities that sum to 1
        batch_size, convert_to_numpy=True   accepted for sentence-transformers' callers, without effect
        Raises InputError for other values.
        """
        chosen_prompt = find_prompt(self._text, prompt_name, prompt)
        activation = self._text.scores if activation_fn is None else activation_fn
        check_known("activation_fn", activation, SCORES)
        needs_softmax = check_bool("apply_softmax", apply_softmax) and self.num_labels > 1
        check_ignored_options(batch_size, convert_to_numpy, "scores")
        pair_list, is_single = checked_pairs(pairs)
        pair_list = self._with_prompt(pair_list, chosen_prompt)
        if is_single:
            numbers_BF = self._run_alone(partial(self._plan_pairs, pair_list))
        else:
            with progress_bar(show_progress_bar) as progress:
                numbers_BF = self._scheduler.run(partial(self._plan_pairs, pair_list, progress))
        scores_BF = apply_activation(activation, numbers_BF)
        if needs_softmax:
            scores_BF = apply_activation("softmax", scores_BF)
        scores = scores_BF[:, 0] if self.num_labels == 1 else scores_BF
        return scores[0] if is_single else scores

    def rank(
        self,
        query: str,
        documents: Iterable[str],
        top_k: int | None = None,
        return_documents: bool = False,
        **options: Any,
    ) -> list[dict[str, Any]]:
        """The documents by their scores for the query, best first: {"corpus_id": number, "score": float} of each.

        top_k             how many documents to return; None: all
        return_documents  True: add "text", the document itself
        options           options of ``predict``
        Equal scores are in the documents' order; scores that are no numbers come last.
        Raises InputError for a checkpoint of several labels.
        """
        if self.num_labels != 1:
            raise InputError(f"rank needs a checkpoint with one label, this one has {self.num_labels}; use predict")
        if top_k is not None:
            check_count("top_k", top_k)
        adds_texts = check_bool("return_documents", return_documents)
        if not isinstance(query, str):
            raise InputError(f"query must be a str, got {type(query).__name__}")
        texts = check_texts("documents", check_several("documents", documents, "several str"))
        scores = self.predict([(query, text) for text in texts], **options).tolist()
        order = sorted(range(len(texts)), key=lambda i: (math.isnan(scores[i]), -scores[i]))[:top_k]
        entries: list[dict[str, Any]] = [{"corpus_id": i, "score": scores[i]} for i in order]
        for entry in entries if adds_texts else ():
            entry["text"] = texts[entry["corpus_id"]]
        return entries


def as_reranker(checkpoint: Checkpoint, forced: bool = False) -> Checkpoint:
    """The checkpoint of a language model with Qwen 3's tokens as an encoder's with a head; other checkpoints unchanged.

    The head's number for a prompt's last row is the logit of "yes" less that of "no". Raises CheckpointError for such a
    language model if RERANKER_WORD is in no name of its files or their last three folders, unless ``forced``.
    """
    text = checkpoint.input
    if not isinstance(text, GeneratorText) or not all(token in bytes(text.tokenizer) for token in QWEN_TOKENS):
        return checkpoint
    names = (name.lower() for path in checkpoint.files for name in path.absolute().parts[-4:])
    if not forced and not any(RERANKER_WORD in name for name in names):
        raise CheckpointError(
            f'a reranker is expected: nothing in the names of this language model says "{RERANKER_WORD}"; where it is '
            "one, name its folder so, or give CrossEncoder(..., yes_or_no=True)"
        )
    yes = no = 0
    if (projection := checkpoint.tensors.get("decoder.projection.weight")) is not None:  # the cache has a head instead
        tokenizer = HuggingFaceTokenizer(text.tokenizer, MAX_IDS)
        indices = [tokenizer.index(token) for token in ("yes", "no")]
        if any(index is None or index >= projection.shape[0] for index in indices):
            return checkpoint
        yes, no = indices  # type: ignore[assignment]
    reranker = checkpoint.as_reranker(yes, no, PROMPT)
    pair_text = reranker.input
    assert isinstance(pair_text, EncoderText)
    prompts, limit = {"query": INSTRUCTION}, min(pair_text.max_length, MAX_IDS)
    return replace(reranker, input=replace(pair_text, max_length=limit, prompts=prompts, default_prompt="query"))


def encode_in_prompt(
    pairs: Sequence[tuple[str, str]], prompt: PairPrompt, tokenizer: HuggingFaceTokenizer, threads: int
) -> list[np.ndarray]:
    """int32 ids of each pair between the prompt's ``before`` and ``after``; its headings are in the pairs' texts."""
    before, after = tokenizer.encode_whole([prompt.before, prompt.after])
    room = max(tokenizer.max_length - len(before) - len(after), 0)
    ids_B = tokenizer.encode_whole([first + second for first, second in pairs], threads)
    return [np.concatenate([before, ids[:room], after]) for ids in ids_B]
