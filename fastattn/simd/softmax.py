"""The loops of a softmax over scores in memory: the soft cap, row maxima, exponentials and their sum."""

from numba import types
from numba.extending import intrinsic

from fastattn.simd.emit import F32, I64, Emitter
from fastattn.simd.target import TARGET
from fastattn.simd.vector import SIZE


def make_row_maxima(rows: int):
    """The intrinsic ``row_maxima(x, x_row, size, top)``: top[i] = max(top[i], x[i, :]), float32.

    x  rows are x_row bytes apart; their first ``size`` bytes, whole vectors, are read. NaN is ignored.
    """

    def emit(emitter: Emitter, x, x_row, size, top):
        builder = emitter.builder
        starts = [builder.add(x, builder.mul(x_row, I64(i))) for i in range(rows)]
        places = [emitter.pointer(builder.add(top, I64(4 * i)), F32) for i in range(rows)]

        def body(offset, tops):
            values = [emitter.load(builder.add(start, offset)) for start in starts]
            return [emitter.maximum(value, t) for value, t in zip(values, tops, strict=True)]

        before = [emitter.splat(builder.load(place)) for place in places]
        for place, value in zip(places, emitter.loop(size, SIZE, before, body), strict=True):
            builder.store(emitter.fold(value, emitter.maximum), place)

    @intrinsic
    def row_maxima(typing_context, x, x_row, size, top):
        def generate(context, builder, kind, arguments):
            Emitter(builder, TARGET).call_once(f"fastattn.row_maxima_{rows}", arguments, emit)
            return context.get_dummy_value()

        return types.void(*[types.intp] * 4), generate

    return row_maxima


@intrinsic
def cap_row(typing_context, x, size, cap):
    """x = cap tanh(x / cap) on ``size`` bytes, whole vectors, at the address x.

    NaN if x is NaN or infinite, so that an overflow shows as it does without a cap.
    """

    def emit(emitter: Emitter, x, size, cap):
        most, zero = emitter.splat(cap), emitter.constant(0.0)
        inverse = emitter.divide(emitter.constant(1.0), most)

        def body(offset, none):
            place = emitter.builder.add(x, offset)
            value = emitter.load(place)
            capped = emitter.multiply(most, emitter.accurate_tanh(emitter.multiply(value, inverse)))
            emitter.store(emitter.fma(value, zero, capped), place)
            return none

        emitter.loop(size, SIZE, [], body)

    def generate(context, builder, kind, arguments):
        Emitter(builder, TARGET).call_once("fastattn.cap_row", arguments, emit, rare=True)
        return context.get_dummy_value()

    return types.void(types.intp, types.intp, types.float32), generate


def make_exponentials(rows: int):
    """The intrinsic ``exponentials(x, x_row, size, shift, total)``: x[i, :] = 2**(x[i, :] - shift[i]), float32.

    x      rows are x_row bytes apart; their first ``size`` bytes, whole vectors, are replaced.
    total  adjacent vectors, one a row: the results are added to it lane by lane.
    Eight rows together are quicker than one by one where vectors, sums and constants fit the registers.
    """

    def emit(emitter: Emitter, x, x_row, size, shift, total):
        builder = emitter.builder
        starts = [builder.add(x, builder.mul(x_row, I64(i))) for i in range(rows)]
        shifts = [emitter.splat(emitter.load_scalar(builder.add(shift, I64(4 * i)))) for i in range(rows)]
        totals = [builder.add(total, I64(SIZE * i)) for i in range(rows)]

        def body(offset, sums):
            places = [builder.add(start, offset) for start in starts]
            values = [emitter.subtract(emitter.load(place), s) for place, s in zip(places, shifts, strict=True)]
            results = [emitter.exp2(value) for value in values]
            for place, result in zip(places, results, strict=True):
                emitter.store(result, place)
            return [emitter.add(one, result) for one, result in zip(sums, results, strict=True)]

        sums = emitter.loop(size, SIZE, [emitter.load(place) for place in totals], body)
        for place, value in zip(totals, sums, strict=True):
            emitter.store(value, place)

    @intrinsic
    def exponentials(typing_context, x, x_row, size, shift, total):
        def generate(context, builder, kind, arguments):
            Emitter(builder, TARGET).call_once(f"fastattn.exponentials_{rows}", arguments, emit)
            return context.get_dummy_value()

        return types.void(*[types.intp] * 5), generate

    return exponentials
