"""Operations on images, whose pixels are rows."""

from collections.abc import Sequence

import numpy as np

from fastattn.arguments.images import PixelGrid, Window
from fastattn.kernels.arguments import ACTIVATION_CODES, MR, NR, PLACES, ConvolutionPart
from fastattn.ops.cpu.absent import NO_FLOATS
from fastattn.ops.cpu.matmul import ROW_BLOCK, SMALL_BYTES, PackedLinear, empty_on_lines, scratch_bytes
from fastattn.runtime.handle import kernel_named
from fastattn.runtime.threads import current_threads
from fastattn.simd.arguments import LINE
from fastattn.simd.target import LANES

_convolve, _convolve_patches, _convolve_depthwise, _pool, _sample, _gate = (
    kernel_named("images", f"_{name}")
    for name in ("convolve", "convolve_patches", "convolve_depthwise", "pool", "sample", "gate")
)
PATCH_BYTES = 1 << 19  # of a task's patches, so that they stay in L2


def _empty_pixels(rows: int, channels: int) -> np.ndarray:
    """Rows that start on a cache line: filters take 15 to 25% longer if a vector lies on two lines."""
    return empty_on_lines((rows, channels), np.dtype(np.float32))


def convolve(
    x_ND: np.ndarray,
    grid: PixelGrid,
    window: Window,
    groups: Sequence[PackedLinear],
    activation: str = "none",
    residual_NF: np.ndarray | None = None,
) -> np.ndarray:
    out, (packed, *_), (height, width) = window.over(grid), groups, window.size
    y_NF = _empty_pixels(out.rows, packed.outputs * len(groups))
    if not out.rows:
        return y_NF
    code, residual_NF = ACTIVATION_CODES[activation], NO_FLOATS[2] if residual_NF is None else residual_NF
    channels = packed.inputs // (height * width)
    is_plain_3x3 = window == Window((3, 3), padding=window.padding) and packed.panels_PSN.dtype == np.float32
    if is_plain_3x3 and len(groups) == 1 and channels % LANES == 0 and packed.outputs % LANES == 0:
        patch_window = Window((4, 4), (2, 2), window.padding)
        patch_count = grid.images * -(-out.height // 2) * -(-out.width // 2)
        row_limit = max(MR, min(ROW_BLOCK, PATCH_BYTES // (64 * channels)) // MR * MR)
        rows, threads = _rows_and_threads(patch_count, packed.panels_PSN.nbytes, row_limit)
        part = ConvolutionPart(0, channels, 0, packed.outputs, 1, rows, code)
        scratch_PB = _scratch(threads, 64 * rows * (channels + NR), channels, 16)
        arrays = packed.patch_panels, packed.bias, part, residual_NF
        _convolve_patches(x_ND, grid, patch_window, out, *arrays, scratch_PB, y_NF)
        return y_NF
    # Adjacent taps without other channels between them are read as one run of numbers.
    taps = width if window.dilation[1] == 1 and len(groups) == 1 else 1
    rows, threads = _rows_and_threads(out.rows, packed.panels_PSN.nbytes)
    extra_bytes = 4 * rows * packed.inputs + scratch_bytes(packed.panels_PSN, packed.inputs, rows)
    scratch_PB = _scratch(threads, extra_bytes, taps * channels, rows * height * width)
    for number, group in enumerate(groups):
        part = ConvolutionPart(number * channels, channels, number * group.outputs, group.outputs, taps, rows, code)
        _convolve(x_ND, grid, window, out, group.panels_PSN, group.kernel_arrays, part, residual_NF, scratch_PB, y_NF)
    return y_NF


def _rows_and_threads(rows: int, weight_bytes: int, row_limit: int = ROW_BLOCK) -> tuple[int, int]:
    """(rows of a task, threads); the number of tasks is about a multiple of the threads: rows are rounded up to MR."""
    threads = 1 if weight_bytes * (rows + MR) <= SMALL_BYTES * MR else current_threads()
    tasks = -(-rows // (row_limit * threads)) * threads
    block = -(-rows // (tasks * MR)) * MR
    return block, min(threads, -(-rows // block))


def _scratch(threads: int, extra_bytes: int, run_floats: int, runs: int) -> np.ndarray:
    """Scratch memory of each thread: a run of ``run_floats``, the addresses of ``runs`` runs, and ``extra_bytes``."""
    size = 4 * (-(-run_floats // NR) * NR) + 8 * runs + extra_bytes
    return empty_on_lines((threads, -(-size // LINE) * LINE), np.dtype(np.uint8))


def convolve_depthwise(
    x_ND: np.ndarray,
    grid: PixelGrid,
    window: Window,
    weight_TD: np.ndarray,
    bias_D: np.ndarray | None = None,
    activation: str = "none",
    residual_ND: np.ndarray | None = None,
) -> np.ndarray:
    out, (T, D) = window.over(grid), weight_TD.shape
    y_ND = _empty_pixels(out.rows, D)
    if out.rows:
        rows, threads = _rows_and_threads(out.rows, weight_TD.nbytes)
        part = ConvolutionPart(0, D, 0, D, 1, rows, ACTIVATION_CODES[activation])
        bias_D = np.zeros(D, np.float32) if bias_D is None else bias_D
        residual_ND = NO_FLOATS[2] if residual_ND is None else residual_ND
        scratch_PB = _scratch(threads, 0, D, PLACES * T)
        _convolve_depthwise(x_ND, grid, window, out, weight_TD, bias_D, part, residual_ND, scratch_PB, y_ND)
    return y_ND


def pool_windows(x_ND: np.ndarray, grid: PixelGrid, window: Window, mode: str) -> np.ndarray:
    out, ranges = window.over(grid), []
    for length, positions, size, stride, padding, step in zip(grid[1:], out[1:], *window, strict=True):
        first_N = np.arange(positions) * stride - padding
        firsts_N, ends_N = np.where(first_N < 0, first_N % step, first_N), np.minimum(first_N + size * step, length)
        ranges.append(np.stack([firsts_N, ends_N, np.full(positions, step)], axis=1))
    return _pool_pixels(x_ND, grid, out, ranges, mode, window.size[0] * window.size[1] if mode == "mean" else 0)


def pool_areas(x_ND: np.ndarray, grid: PixelGrid, out: PixelGrid, mode: str) -> np.ndarray:
    ranges = []
    for length, areas in zip(grid[1:], out[1:], strict=True):
        n = np.arange(areas)
        ranges.append(np.stack([n * length // areas, -(-(n + 1) * length // areas), np.ones_like(n)], axis=1))
    return _pool_pixels(x_ND, grid, out, ranges, mode, 0)


def _pool_pixels(
    x_ND: np.ndarray, grid: PixelGrid, out: PixelGrid, ranges: list[np.ndarray], mode: str, divisor: int
) -> np.ndarray:
    """Pool areas: ``ranges`` has (first, end, step) of each by axis; divisor: of sums, 0: the pixels of the area."""
    y_ND = _empty_pixels(out.rows, x_ND.shape[1])
    _pool(x_ND, grid, out, *ranges, mode == "max", divisor, y_ND)
    return y_ND


def sample_pixels(x_ND: np.ndarray, grid: PixelGrid, points_BP2: np.ndarray, border: str) -> np.ndarray:
    points_N2 = points_BP2.reshape(-1, 2)
    y_ND = _empty_pixels(len(points_N2), x_ND.shape[1])
    if len(points_N2):
        _sample(x_ND, grid, points_N2, border == "edge", y_ND)
    return y_ND


def gate_pixels(
    x_ND: np.ndarray,
    grid: PixelGrid,
    channels_BD: np.ndarray | None = None,
    pixels_N1: np.ndarray | None = None,
    offset: float = 0.0,
) -> np.ndarray:
    y_ND = _empty_pixels(*x_ND.shape)
    channels, pixels = (NO_FLOATS[2] if gates is None else gates for gates in (channels_BD, pixels_N1))
    _gate(x_ND, grid.height * grid.width, channels, pixels, float(offset), y_ND)
    return y_ND
