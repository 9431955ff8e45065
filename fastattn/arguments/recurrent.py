"""What operations of recurrent layers take: states in tables, columns that become one row. Plain data."""

from typing import NamedTuple

import numpy as np


class States(NamedTuple):
    """The states from which sentences go on, and where their last ones go, in tables of rows.

    before_MW, previous_B  sentence b begins with row ``previous_B[b]``, int32; -1: with zeros
    after_MW, rows_B       its last state goes to row ``rows_B[b]``, int32, all different
    hidden, cell           the columns where h and, of an LSTM, c begin in both; those of a second direction follow them
    The tables may be one: no sentence goes on from a row that is written.
    """

    before_MW: np.ndarray
    previous_B: np.ndarray
    after_MW: np.ndarray
    rows_B: np.ndarray
    hidden: int
    cell: int


class Columns(NamedTuple):
    """``width`` columns of rows or of a table, from ``first`` on.

    rows_N  int32, the number of each row in the table, -1: zeros; None: all rows in order
    """

    rows_MW: np.ndarray
    first: int
    width: int
    rows_N: np.ndarray | None = None
