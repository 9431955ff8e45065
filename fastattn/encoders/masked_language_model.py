"""MaskedLanguageModel: texts with masks in, the tokens that may stand there out."""

from collections.abc import Iterable
from functools import partial
from typing import Any

import numpy as np

from fastattn.encoders.base import EncoderBase, plan_batches
from fastattn.errors import CheckpointError, InputError, check_count
from fastattn.models.encoder import check_numbers
from fastattn.scheduling.request import Plan
from fastattn.spec.checkpoint import Checkpoint
from fastattn.system.option_names import TEXTS, explains_options
from fastattn.system.progress import Progress


class MaskedLanguageModel(EncoderBase):
    """Tokens in the place of masks, as transformers' fill-mask pipeline predicts them.

    precision  also that of the projection onto the vocabulary
    Only the rows of masks go through that projection, and its numbers are never stored.
    Raises CheckpointError for a path without a valid checkpoint of an encoder that predicts tokens.
    """

    def _check(self, checkpoint: Checkpoint) -> Checkpoint:
        checkpoint = super()._check(checkpoint)
        if not self._text.mask_token:
            raise CheckpointError("a masked language model is expected: the tokenizer has no mask token")
        self._expect_predictions(checkpoint, "a masked language model")
        return checkpoint

    def _prepare(self) -> None:
        super()._prepare()
        self._mask = self._tokenizer.index(self.mask_token)

    @property
    def mask_token(self) -> str:
        """The mask, which stands in a text where a token is to be predicted."""
        return self._text.mask_token

    @explains_options(TEXTS)
    def fill(self, texts: str | Iterable[str], *, top_k: int = 5, show_progress_bar: bool | None = None) -> list[Any]:
        """The ``top_k`` most probable tokens for the mask of each text, best first; one such list for a str.

        A token is a dict of "score" (its probability), "token" (its id), "token_str" and "sequence" (the text with it).
        A text with several masks gets one such list for each mask, which is predicted while the other masks stay masks.
        Raises InputError for other values, and for a text without a mask.
        """
        k = min(check_count("top_k", top_k), self._head.spec.outputs)
        predictions: list[Any] = self._run(partial(self._plan, k), texts, show_progress_bar)
        return predictions

    def _plan(self, k: int, texts: list[str], progress: Progress | None) -> Plan:
        threads = self._loaded.threads
        ids_B = self._tokenizer.encode(texts, threads)
        positions_B = [np.flatnonzero(ids == self._mask) for ids in ids_B]
        for number, positions in enumerate(positions_B):
            if not len(positions):
                within = f" within its first {self.max_length} tokens" if self.mask_token in texts[number] else ""
                raise InputError(f"text number {number} has no {self.mask_token}{within}")

        def maker_for(numbers: list[int]) -> Any:
            return partial(self._top_k, k, [positions_B[b] for b in numbers])

        top_B = yield from plan_batches(ids_B, maker_for, threads, progress)
        return [self._result(ids, positions, *top) for ids, positions, top in zip(ids_B, positions_B, top_B)]

    def _top_k(
        self, k: int, positions_B: list[np.ndarray], rows_ND: np.ndarray, starts_B1: np.ndarray
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        """(log_probs_Rk, ids_Rk) of each sentence's masks."""
        rows_R = np.concatenate([start + positions for start, positions in zip(starts_B1, positions_B)])
        log_probs_Rk, ids_Rk = self._head.top_k(rows_ND, rows_R, k)
        check_numbers(not np.isnan(log_probs_Rk).any())
        ends = np.cumsum([len(positions) for positions in positions_B])[:-1]
        return list(zip(np.split(log_probs_Rk, ends), np.split(ids_Rk, ends)))

    def _result(
        self, ids: np.ndarray, positions: np.ndarray, log_probs_Rk: np.ndarray, ids_Rk: np.ndarray
    ) -> list[Any]:
        tokenizer, is_single = self._tokenizer, len(positions) == 1
        tokens_of_masks = []
        for position, log_probs_k, ids_k in zip(positions, log_probs_Rk, ids_Rk):
            tokens = []
            for score, token in zip(np.exp(log_probs_k.astype(np.float64)).tolist(), ids_k.tolist()):
                filled_ids = ids.copy()
                filled_ids[position] = token
                # skip_special would drop the remaining masks too
                sequence = tokenizer.decode(filled_ids.tolist(), skip_special=is_single)
                text = tokenizer.decode([token], skip_special=False)
                tokens.append({"score": score, "token": token, "token_str": text, "sequence": sequence})
            tokens_of_masks.append(tokens)
        return tokens_of_masks[0] if is_single else tokens_of_masks
