"""Tokens that the tokens so far forbid or penalize next: lists of ids by row, as functions of arrays.

past_RT holds the lengths_R tokens that each of R rows has produced, -1 after them. Lists are returned as ids_RJ: int32,
each id once a row, padded with -1 and no wider than the longest row, since the projection reads the padding too.
"""

from collections.abc import Sequence

import numpy as np

PADDING = -1


def without_repeats(ids_RJ: np.ndarray) -> np.ndarray:
    """Each id once a row, highest first, then padding."""
    sorted_RJ = -np.sort(-ids_RJ.astype(np.int32), axis=1)
    sorted_RJ[:, 1:][sorted_RJ[:, 1:] == sorted_RJ[:, :-1]] = PADDING
    sorted_RJ = -np.sort(-sorted_RJ, axis=1)
    return np.ascontiguousarray(sorted_RJ[:, : np.max((sorted_RJ >= 0).sum(axis=1), initial=0)])


def last_tokens(past_RT: np.ndarray, lengths_R: np.ndarray, count: int) -> np.ndarray:
    """The last ``count`` tokens of each row; padding if it has fewer."""
    columns_RC = lengths_R[:, None] + np.arange(-count, 0)
    tokens_RC = np.take_along_axis(past_RT, np.maximum(columns_RC, 0), axis=1) if past_RT.shape[1] else columns_RC
    return np.where(columns_RC >= 0, tokens_RC, PADDING)


def repeated_ngrams(past_RT: np.ndarray, lengths_R: np.ndarray, size: int) -> np.ndarray:
    """The ids that would repeat an n-gram of this size in the row (Paulus 2017, section 2.5)."""
    if past_RT.shape[1] < size:
        return np.empty((len(past_RT), 0), np.int32)
    runs_RWC = np.lib.stride_tricks.sliding_window_view(past_RT, size, axis=1)
    begun_R1C = last_tokens(past_RT, lengths_R, size - 1)[:, None]
    again_RW = (runs_RWC[:, :, :-1] == begun_R1C).all(axis=2)
    # A run that reaches into the padding ends with padding, which forbids nothing.
    return without_repeats(np.where(again_RW, runs_RWC[:, :, -1], PADDING))


def completed_sequences(past_RT: np.ndarray, lengths_R: np.ndarray, sequences: Sequence[Sequence[int]]) -> np.ndarray:
    """The ids that would complete one of the sequences, which have two tokens or more."""
    ids_RJ = np.full((len(past_RT), len(sequences)), PADDING, np.int32)
    for j, sequence in enumerate(sequences):
        begun_R = (last_tokens(past_RT, lengths_R, len(sequence) - 1) == sequence[:-1]).all(axis=1)
        ids_RJ[begun_R, j] = sequence[-1]
    return without_repeats(ids_RJ)


def early_ends(steps_R: np.ndarray, min_length: int, end_ids: Sequence[int]) -> np.ndarray:
    """The end ids, for rows whose next token is one of the first ``min_length``; a row at step t produces token t."""
    early_R = steps_R < min_length
    if not early_R.any():
        return np.empty((len(steps_R), 0), np.int32)
    return np.where(early_R[:, None], np.array(end_ids, np.int32), np.int32(PADDING))
