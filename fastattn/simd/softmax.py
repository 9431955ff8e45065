"""The loops of a softmax over scores in memory: the soft cap, row maxima, exponentials and their sum."""

from numba import types

from fastattn.simd.constants import SIZE
from fastattn.simd.elementary import accurate_tanh, exp2
from fastattn.simd.emit import F32, I64, Emitter
from fastattn.simd.vector import make_routine


def make_row_maxima(rows: int):
    """The intrinsic ``row_maxima(x, x_row, size, top)``: top[i] = max(top[i], x[i, :]), float32.

    x  rows are x_row bytes apart; their first ``size`` bytes, whole vectors, are read. NaN is ignored.
    """

    def emit(emitter: Emitter, x, x_row, size, top):
        builder = emitter.builder
        starts = emitter.row_addresses(x, x_row, rows)
        places = [emitter.pointer(builder.add(top, I64(4 * i)), F32) for i in range(rows)]

        def body(offset, tops):
            values = [emitter.load(builder.add(start, offset)) for start in starts]
            return [emitter.maximum(value, t) for value, t in zip(values, tops, strict=True)]

        before = [emitter.splat(builder.load(place)) for place in places]
        for place, value in zip(places, emitter.loop(size, SIZE, before, body), strict=True):
            builder.store(emitter.fold(value, emitter.maximum), place)

    return make_routine(f"row_maxima_{rows}", (types.intp,) * 4, emit)


def _cap_row(emitter: Emitter, x, size, cap):
    """x = cap tanh(x / cap) on ``size`` bytes, whole vectors, at the address x.

    NaN if x is NaN or infinite, so that an overflow shows as it does without a cap.
    """
    most, zero = emitter.splat(cap), emitter.constant(0.0)
    inverse = emitter.divide(emitter.constant(1.0), most)

    def body(offset):
        place = emitter.builder.add(x, offset)
        value = emitter.load(place)
        capped = emitter.multiply(most, accurate_tanh(emitter, emitter.multiply(value, inverse)))
        emitter.store(emitter.fma(value, zero, capped), place)

    emitter.each(size, SIZE, body)


cap_row = make_routine("cap_row", (types.intp, types.intp, types.float32), _cap_row, rare=True)


def make_exponentials(rows: int):
    """The intrinsic ``exponentials(x, x_row, size, shift, total)``: x[i, :] = 2**(x[i, :] - shift[i]), float32.

    x      rows are x_row bytes apart; their first ``size`` bytes, whole vectors, are replaced.
    total  adjacent vectors, one a row: the results are added to it lane by lane.
    Eight rows together are quicker than one by one where vectors, sums and constants fit the registers.
    """

    def emit(emitter: Emitter, x, x_row, size, shift, total):
        builder = emitter.builder
        starts = emitter.row_addresses(x, x_row, rows)
        shifts = [emitter.splat(emitter.load_scalar(builder.add(shift, I64(4 * i)))) for i in range(rows)]
        totals = [builder.add(total, I64(SIZE * i)) for i in range(rows)]

        def body(offset, sums):
            places = [builder.add(start, offset) for start in starts]
            values = [emitter.subtract(emitter.load(place), s) for place, s in zip(places, shifts, strict=True)]
            results = [exp2(emitter, value) for value in values]
            for place, result in zip(places, results, strict=True):
                emitter.store(result, place)
            return [emitter.add(one, result) for one, result in zip(sums, results, strict=True)]

        sums = emitter.loop(size, SIZE, [emitter.load(place) for place in totals], body)
        for place, value in zip(totals, sums, strict=True):
            emitter.store(value, place)

    return make_routine(f"exponentials_{rows}", (types.intp,) * 5, emit)
