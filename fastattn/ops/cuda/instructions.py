"""Instructions that Numba lacks, in PTX or for the simulator in Python; sums and maxima of a block's threads.

dp4a(a, b, total)   total + the sum of four products of int8, the bytes of the int32 a and b
mma(a, b, c)        A B + C of a whole warp's small matrices by the tensor cores; A and B are bfloat16

For ``mma`` every thread of a warp holds a fragment of each matrix: A is 2 GROUPS rows of 4 QUAD numbers, B as many
numbers in each of GROUPS columns, C and D are 2 GROUPS rows of GROUPS columns, float32. A register of A or B holds two
numbers that are neighbours along the sum, the first one in its lower half. The thread's group is ``lane // QUAD``, its
position in the group ``lane % QUAD``. From "Matrix Fragments for mma.m16n8k16 with floating point type", PTX ISA:

    a[i]  row group + GROUPS (i % 2), numbers 2 position + 2 QUAD (i // 2) and the next
    b[i]  column group,               numbers 2 position + 2 QUAD i and the next
    c[i]  row group + GROUPS (i // 2), column 2 position + i % 2
"""

import numpy as np
from numba import cuda, float32, int32

from fastattn.ops.cuda.card import SIDE, SIMULATED, THREADS, device

GROUPS, QUAD = (8, 4) if SIDE == 16 else (2, 1)  # 16 x 16 times 16 x 8, or on the simulator 4 x 4 times 4 x 2
WARP = GROUPS * QUAD
WARPS = THREADS // WARP  # of a block

if SIMULATED:

    def multiply_add(a, b, total):
        """a * b + total."""
        return total + a * b

    def dp4a(a, b, total):
        for first in range(0, 32, 8):
            x, y = (int(word) >> first & 255 for word in (a, b))
            total += int32((x ^ 128) - 128) * int32((y ^ 128) - 128)
        return total

    def _halves(word):
        """The two bfloat16 of a register, as float32."""
        return np.array([int(word) << 16 & 0xFFFF0000, int(word) & 0xFFFF0000], np.uint32).view(np.float32)

    @device
    def mma(a, b, c):
        a_WMK = cuda.shared.array((WARPS, 2 * GROUPS, 4 * QUAD), float32)
        b_WNK = cuda.shared.array((WARPS, GROUPS, 4 * QUAD), float32)
        lane, warp = cuda.threadIdx.x % WARP, cuda.threadIdx.x // WARP
        group, position = lane // QUAD, lane % QUAD
        for i in range(4):
            k = 2 * position + 2 * QUAD * (i // 2)
            a_WMK[warp, group + GROUPS * (i % 2), k : k + 2] = _halves(a[i])
        for i in range(2):
            k = 2 * position + 2 * QUAD * i
            b_WNK[warp, group, k : k + 2] = _halves(b[i])
        cuda.syncthreads()
        d = []
        for i in range(4):
            row, column = group + GROUPS * (i // 2), 2 * position + i % 2
            d.append(c[i] + (a_WMK[warp, row] * b_WNK[warp, column]).sum(dtype=np.float32))
        cuda.syncthreads()
        return d

else:
    from llvmlite import ir
    from numba.cuda import types
    from numba.cuda.extending import intrinsic

    _I32, _F32 = ir.IntType(32), ir.FloatType()

    @device
    def multiply_add(a, b, total):
        """a * b + total, rounded once."""
        return cuda.fma(a, b, total)

    @intrinsic
    def dp4a(context, a, b, total):
        def generate(context, builder, signature, arguments):
            call_type = ir.FunctionType(_I32, [_I32] * 3)
            return builder.call(ir.InlineAsm(call_type, "dp4a.s32.s32 $0, $1, $2, $3;", "=r,r,r,r"), arguments)

        return types.int32(types.int32, types.int32, types.int32), generate

    @intrinsic
    def mma(context, a, b, c):
        def generate(context, builder, signature, arguments):
            counts = zip(arguments, (4, 2, 4))
            operands = [builder.extract_value(matrix, i) for matrix, count in counts for i in range(count)]
            call_type = ir.FunctionType(ir.LiteralStructType([_F32] * 4), [operand.type for operand in operands])
            registers = "{$0, $1, $2, $3}, {$4, $5, $6, $7}, {$8, $9}, {$10, $11, $12, $13}"
            constraints = "=f,=f,=f,=f,r,r,r,r,r,r,f,f,f,f"
            code = f"mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {registers};"
            results = builder.call(ir.InlineAsm(call_type, code, constraints, side_effect=True), operands)
            return context.make_tuple(
                builder, signature.return_type, [builder.extract_value(results, i) for i in range(4)]
            )

        tuples = types.UniTuple(types.uint32, 4), types.UniTuple(types.uint32, 2), types.UniTuple(types.float32, 4)
        return tuples[2](*tuples), generate


@device
def _reduce(value, shared_T, join):
    """The values of all threads of a block, joined in pairs, for every thread; shared_T float32 [THREADS]."""
    t = cuda.threadIdx.x
    cuda.syncthreads()  # a thread may still read shared_T
    shared_T[t] = value
    cuda.syncthreads()
    half = THREADS // 2
    while half > 0:
        if t < half:
            shared_T[t] = join(shared_T[t], shared_T[t + half])
        cuda.syncthreads()
        half //= 2
    return shared_T[0]


_sum = device(lambda a, b: a + b)
_greater = device(lambda a, b: b if b > a else a)  # ignores NaN in b
block_sum = device(lambda value, shared_T: _reduce(value, shared_T, _sum))
block_max = device(lambda value, shared_T: _reduce(value, shared_T, _greater))
