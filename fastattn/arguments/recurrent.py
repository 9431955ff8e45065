"""Arguments of the operations of recurrent layers: states in tables, columns that are joined to rows."""

from typing import NamedTuple

import numpy as np


class States(NamedTuple):
    """Tables of states: the rows with which sentences begin, and the rows where their last states go.

    before_MW, previous_B  sentence b begins with row ``previous_B[b]``, int32; -1: with zeros
    after_MW, rows_B       the last state of sentence b goes to row ``rows_B[b]``, int32, all different
    hidden, cell           the first columns of h and, for an LSTM, of c in both tables; a second direction's follow
    The two tables may be one, as no sentence begins with a row that is written.
    """

    before_MW: np.ndarray
    previous_B: np.ndarray
    after_MW: np.ndarray
    rows_B: np.ndarray
    hidden: int
    cell: int


class Columns(NamedTuple):
    """``width`` columns of rows or of a table, from ``first`` on.

    rows_N  int32, the rows to read, where -1 stands for zeros; None: all rows in order
    """

    rows_MW: np.ndarray
    first: int
    width: int
    rows_N: np.ndarray | None = None
