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
            capped = emitter.multiply(most, emitter.tanh(emitter.multiply(value, inverse)))
            emitter.store(emitter.fma(value, zero, capped), place)
            return none

        emitter.loop(size, SIZE, [], body)

    def generate(context, builder, kind, arguments):
        Emitter(builder, TARGET).call_once("fastattn.cap_row", arguments, emit, rare=True)
        return context.get_dummy_value()

    return types.void(types.intp, types.intp, types.float32), generate


@intrinsic
def exponentials(typing_context, x, size, shift, total):
    """x = 2**(x - shift) on ``size`` bytes, whole vectors, at the address x; added lane by lane to ``total``.

    One row at a time: two to six together were no faster on AVX2, where the constants then leave the registers.
    """

    def generate(context, builder, kind, arguments):
        Emitter(builder, TARGET).call_once("fastattn.exponentials", arguments, _emit_exponentials)
        return context.get_dummy_value()

    return types.void(types.intp, types.intp, types.float32, types.intp), generate


def _emit_exponentials(emitter: Emitter, x, size, shift, total):
    subtrahend = emitter.splat(shift)

    def body(offset, sums):
        place = emitter.builder.add(x, offset)
        result = emitter.exp2(emitter.subtract(emitter.load(place), subtrahend))
        emitter.store(result, place)
        return [emitter.add(sums[0], result)]

    emitter.store(emitter.loop(size, SIZE, [emitter.load(total)], body)[0], total)
