"""Recurrent layers (``spec.recurrent`` CELLS), whose cells follow each step's product at once; joined columns.

Rows of weights lie in blocks of NR units, with a panel for each gate; inputs lie in the same order. So the panels of a
block make all gates of its units: their products go to a scratch in L1, from which the cell makes the states.

A part has some sentences of one direction, longest first. Sentences that have ended are the last rows of a product, so
the product becomes smaller; parts do not wait for each other. Where each sentence has one row, as in a decoder's step,
parts share rows, and a part has some blocks of units. Parts share rows too if there are fewer sentences than threads:
a call then computes one step, and each part's scratch counts the steps. Where no row continues a state, the product is
its bias, without computation.

Steps of few rows go through the blocks alternately forward and backward, since L2 still has the last blocks: 50 steps
of one row of 512 units in int8 with the product of their inputs 0.91 -> 0.86 ms, on two threads 0.75 -> 0.53; in
float32, whose 4 MB do not fit, no difference beyond noise (one run each, on a busy machine).

A cell whose reset gate multiplies the state before the product (Cho 2014) has two products: one for reset and update,
then one of reset times state.
"""

from collections import namedtuple

import numpy as np
from numba import prange

from fastattn.kernels.activation import HALF
from fastattn.kernels.arguments import GROUP, GRU, GRU_RESET_BEFORE, LSTM, NR
from fastattn.kernels.matmul import MOST_ROWS, begin_task, end_task, multiply_tile, step_ahead, with_zeros, zero_scratch
from fastattn.kernels.norm import ROW_BLOCK
from fastattn.kernels.packing import affine_at, rows_from, skip_columns, stage_rows, whole_blocks
from fastattn.runtime.jit import inner, kernel
from fastattn.simd.arguments import LINE, SIZE, Panels, Rows
from fastattn.simd.memory import address, load, load_integer, load_part, make_scratch, store_integer, store_part
from fastattn.simd.rows import copy_floats, widen_row
from fastattn.simd.target import LANES
from fastattn.simd.vector import fma, splat, tanh

AFTER_RESET = GRU_RESET_BEFORE + 1  # the phase of that cell's second product
PANEL = NR * 4  # bytes of a row's results with a panel
FEW = 4  # from FEW rows on, rows take one panel at a time; fewer rows take GROUP panels of several blocks at once
gate_scratch = make_scratch(max(MOST_ROWS, (FEW - 1) * GROUP) * 4 * PANEL)  # rows of four gates

# A layer in one direction: Rows of inputs and of the result; the first columns of its h and c in tables of states;
# codes and sizes.
Layer = namedtuple("Layer", "inputs hidden column cell_column cell gates units backward")
# A part's sentences first, first + step, ... of the order, and its blocks of units.
Share = namedtuple("Share", "first step count block end_block")
# Addresses in a part's scratch: the number of steps of earlier calls; the number of each sentence's current row; its h
# before and after a step; c, or r h; rows in the weights' precision.
ShareScratch = namedtuple("ShareScratch", "steps rows state next_state cell staged")
# Addresses of one row's block of units: products and inputs of the first gate, states of ShareScratch, the result.
UnitBlock = namedtuple("UnitBlock", "sums inputs state next_state cell hidden")


@inner
def sigmoid(x):
    """1 / (1 + e**-x) as (1 + tanh(x / 2)) / 2, to 3e-7 absolute: half the instructions of an exponential."""
    return fma(splat(HALF), tanh(splat(HALF) * x), splat(HALF))


@inner
def gate(block, number, at):
    """A gate's product with the state, plus its inputs."""
    return load(block.sums + number * PANEL + at) + load(block.inputs + number * PANEL + at)


@inner
def lstm(block, at, count):
    """c = f c' + i g, h = o tanh(c) (Hochreiter 1997, Gers 2000)."""
    cell = load_part(block.cell + at, count, splat(np.float32(0)))
    candidate = sigmoid(gate(block, 0, at)) * tanh(gate(block, 2, at))
    cell = fma(sigmoid(gate(block, 1, at)), cell, candidate)
    hidden = sigmoid(gate(block, 3, at)) * tanh(cell)
    store_part(cell, block.cell + at, count)
    store_part(hidden, block.next_state + at, count)
    store_part(hidden, block.hidden + at, count)


@inner
def finish_gru(block, candidate, update, at, count):
    """h = n + z (h' - n)."""
    old_state = load_part(block.state + at, count, splat(np.float32(0)))
    hidden = fma(update, old_state - candidate, candidate)
    store_part(hidden, block.next_state + at, count)
    store_part(hidden, block.hidden + at, count)


@inner
def gru(block, at, count):
    """n = tanh(W x + r U h') (Cho 2014, in the form of cuDNN)."""
    reset, update = sigmoid(gate(block, 0, at)), sigmoid(gate(block, 1, at))
    candidate = tanh(fma(reset, load(block.sums + 2 * PANEL + at), load(block.inputs + 2 * PANEL + at)))
    finish_gru(block, candidate, update, at, count)


@inner
def reset_and_update(block, at, count):
    """Write r h' to ``cell``, and z to ``next_state``, where the next state replaces it."""
    old_state = load_part(block.state + at, count, splat(np.float32(0)))
    store_part(sigmoid(gate(block, 0, at)) * old_state, block.cell + at, count)
    store_part(sigmoid(gate(block, 1, at)), block.next_state + at, count)


@inner
def after_reset(block, at, count):
    """n = tanh(W x + U (r h')) (Cho 2014)."""
    update = load_part(block.next_state + at, count, splat(np.float32(0)))
    candidate = tanh(load(block.sums + at) + load(block.inputs + 2 * PANEL + at))
    finish_gru(block, candidate, update, at, count)


@inner
def finish_block(phase, block, units):
    """Compute the cells of one row's block, which has ``units`` units."""
    for at in range(0, PANEL, SIZE):
        count = units - at // 4
        if count <= 0:
            break
        if phase == LSTM:
            lstm(block, at, count)
        elif phase == GRU:
            gru(block, at, count)
        elif phase == GRU_RESET_BEFORE:
            reset_and_update(block, at, count)
        else:
            after_reset(block, at, count)


@inner
def multiply_gates(weights, affine, rows, remaining, panels, count, tile):
    """Write a tile of at most ``remaining`` rows times ``count`` panels, side by side; returns its number of rows.

    affine  of the first panel
    panels  ``panels.ahead`` lies as far behind each panel as behind the first
    """
    height = p = 0
    while p < count:
        together = GROUP if remaining < FEW and p + GROUP <= count else 1
        skip = p * panels.distance
        gate_panels = Panels(panels.address + skip, panels.distance, panels.ahead + skip, panels.ahead_step)
        out, columns = Rows(tile.tile + p * PANEL, count * PANEL), skip_columns(affine, p * PANEL)
        height = multiply_tile(weights, rows, remaining, gate_panels, together, NR, out, columns, Rows(tile.zeros, 0))
        p += together
    return height


@inner
def take_phase(weights, arrays, layer, share, scratch, count, phase, t, is_fresh, tile):
    """Compute step ``t`` of the first ``count`` rows: the product of their states, or of r h, and then their cells.

    is_fresh  whether no row continues a state
    """
    low, high = 2 if phase == AFTER_RESET else 0, 2 if phase == GRU_RESET_BEFORE else layer.gates
    source, units, gates = scratch.cell if phase == AFTER_RESET else scratch.state, layer.units, layer.gates
    rows = stage_rows(weights, arrays, source, count, units, scratch.staged, share.count)
    affine, distance, step = affine_at(arrays), weights.strides[0], step_ahead(weights, count)
    group_blocks = GROUP if count < FEW and high - low == gates else 1
    turns = (share.end_block - share.block + group_blocks - 1) // group_blocks
    for turn in range(turns):
        block = share.block + group_blocks * (turns - 1 - turn if step == 0 and t % 2 > 0 else turn)
        blocks = min(group_blocks, share.end_block - block)
        first, width = block * gates + low, blocks * (high - low)
        panel, block_affine, r = address(weights) + first * distance, skip_columns(affine, first * PANEL), 0
        ahead = panel + blocks * gates * distance
        while r < count:
            if is_fresh:
                height = 1
                copy_floats(block_affine.bias, tile.tile, width * NR)
            else:
                panels = Panels(panel, distance, ahead, step)
                height = multiply_gates(weights, block_affine, rows_from(rows, r), count - r, panels, width, tile)
            for i in range(height):
                number, at = load_integer(scratch.rows + (r + i) * 8), (r + i) * units * 4
                for j in range(blocks):
                    skip, unit = (block + j) * gates * PANEL, (block + j) * PANEL
                    unit_block = UnitBlock(
                        tile.tile + (i * width + j * gates) * PANEL,
                        layer.inputs.address + number * layer.inputs.distance + skip,
                        scratch.state + at + unit,
                        scratch.next_state + at + unit,
                        scratch.cell + at + unit,
                        layer.hidden.address + number * layer.hidden.distance + unit,
                    )
                    finish_block(phase, unit_block, units - (block + j) * NR)
            r += height
            ahead += step * weights.shape[1]


@inner
def sentence_of(share, order_B, k):
    """The number of a part's k-th sentence."""
    index = share.first + k * share.step
    return order_B[index] if order_B.size > 0 else index


@inner
def take_state(table_MW, row, column, target, width):
    """``width`` values of a table's row from a column on, as float32; zeros where the row is -1."""
    if row >= 0:
        size = table_MW.itemsize
        widen_row(table_MW, address(table_MW) + (row * table_MW.shape[1] + column) * size, target, width)
    else:
        for d in range(0, width, LANES):
            store_part(splat(np.float32(0)), target + d * 4, width - d)


@inner
def begin_share(layer, share, scratch, sentences, states):
    """Fetch the states that a part's sentences continue; returns whether no sentence continues one."""
    starts_B1, order_B = sentences
    is_fresh = True
    for k in range(share.count):
        b, at = sentence_of(share, order_B, k), k * layer.units * 4
        row = np.int64(states.previous_B[b])
        is_fresh = is_fresh and row < 0
        take_state(states.before_MW, row, layer.column, scratch.state + at, layer.units)
        if layer.cell == LSTM:
            take_state(states.before_MW, row, layer.cell_column, scratch.cell + at, layer.units)
        store_integer(starts_B1[b + 1] - 1 if layer.backward else starts_B1[b], scratch.rows + k * 8)
    return is_fresh


@inner
def end_sentence(layer, share, scratch, k, row, after_MW):
    """Write the last state of a part's k-th sentence, in the part's units, to a row of a table."""
    first = share.block * NR
    width, at = min(share.end_block * NR, layer.units) - first, (k * layer.units + first) * 4
    target = address(after_MW) + (row * after_MW.shape[1] + first) * 4
    copy_floats(scratch.state + at, target + layer.column * 4, width)
    if layer.cell == LSTM:
        copy_floats(scratch.cell + at, target + layer.cell_column * 4, width)


@inner
def run_share(weights, arrays, layer, share, scratch, sentences, states, by_steps, tile):
    """Compute all steps of a part's sentences, or with ``by_steps`` the next step."""
    starts_B1, order_B = sentences
    is_fresh, count, step, first = False, share.count, -1 if layer.backward else 1, 0
    if by_steps:
        first = load_integer(scratch.steps)
    if first == 0:
        is_fresh = begin_share(layer, share, scratch, sentences, states)
    t = first
    while count > 0:
        b = sentence_of(share, order_B, count - 1)
        if starts_B1[b + 1] - starts_B1[b] <= t:
            count -= 1
            if t > first or first == 0:  # else an earlier call has written it
                end_sentence(layer, share, scratch, count, np.int64(states.rows_B[b]), states.after_MW)
        elif by_steps and t > first:
            break
        else:
            if by_steps and t > 0:  # fetches the other parts' states of the step before
                for k in range(count):
                    row = load_integer(scratch.rows + k * 8) - step
                    source = layer.hidden.address + row * layer.hidden.distance
                    copy_floats(source, scratch.state + k * layer.units * 4, layer.units)
            begin_task(weights, count)
            take_phase(weights, arrays, layer, share, scratch, count, layer.cell, t, is_fresh, tile)
            if layer.cell == GRU_RESET_BEFORE:
                take_phase(weights, arrays, layer, share, scratch, count, AFTER_RESET, t, is_fresh, tile)
            end_task(weights, count)
            for k in range(count):
                store_integer(load_integer(scratch.rows + k * 8) + step, scratch.rows + k * 8)
            steps, rows, state, next_state, cell, staged = scratch
            scratch = ShareScratch(steps, rows, next_state, state, cell, staged)
            is_fresh = False
            t += 1
    if by_steps:
        store_integer(t, scratch.steps)


@kernel
def _recur(inputs_NE, panels, forward, backward, form, sentences, states, scratch_PB, hidden_NH):
    """Compute all steps of the sentences, or one step a call; see recur.

    panels      of the weights of both directions, whose LinearArrays are ``forward`` and ``backward``
    form        a RecurrentForm
    sentences   starts_B1; the sentences' order, longest first, or an empty array: their own order
    scratch_PB  of each part of direction, sentences and units; it begins with zeros where a call does one step
    """
    starts_B1, order_B = sentences
    parts, B = form.sentences * form.units_parts, len(starts_B1) - 1
    gates, units = form.gates, form.units
    blocks = (units + NR - 1) // NR
    for part in prange(0, len(scratch_PB)):
        direction, first, units_part = part // parts, part % parts // form.units_parts, part % form.units_parts
        weights, backward_weights = panels
        arrays = forward
        if direction > 0:
            weights, arrays = backward_weights, backward
        inputs = Rows(address(inputs_NE) + direction * blocks * gates * PANEL, inputs_NE.shape[1] * 4)
        hidden = Rows(address(hidden_NH) + direction * units * 4, hidden_NH.shape[1] * 4)
        column, cell_column = states.hidden + direction * units, states.cell + direction * units
        layer = Layer(inputs, hidden, column, cell_column, form.cell, gates, units, direction > 0)
        count = (B - first + form.sentences - 1) // form.sentences
        first_block = blocks * units_part // form.units_parts
        end_block = blocks * (units_part + 1) // form.units_parts
        share = Share(first, form.sentences, count, first_block, end_block)
        steps = whole_blocks(address(scratch_PB) + part * scratch_PB.strides[0], LINE)
        rows, size = steps + LINE, whole_blocks(count * units * 4, LINE)
        state = rows + whole_blocks(count * 8, LINE)
        scratch = ShareScratch(steps, rows, state, state + size, state + 2 * size, state + 3 * size)
        tile = with_zeros(gate_scratch(), zero_scratch())
        run_share(weights, arrays, layer, share, scratch, sentences, states, form.by_steps, tile)


@kernel
def _join(rows_MW, first, width, rows_N, y_NF, column):
    """Copy columns of the table's rows ``rows_N``, or, if that is empty, of all rows, to rows of y from a column on."""
    for block in prange(0, -(-len(y_NF) // ROW_BLOCK)):
        for n in range(block * ROW_BLOCK, min((block + 1) * ROW_BLOCK, len(y_NF))):
            row = np.int64(rows_N[n]) if rows_N.size > 0 else n
            take_state(rows_MW, row, first, address(y_NF) + (n * y_NF.shape[1] + column) * 4, width)
