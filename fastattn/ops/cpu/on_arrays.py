"""The operations on callers' arrays, see ``fastattn.ops.protocol``."""

from fastattn.ops.cpu.attention.block_states import block_states
from fastattn.ops.cpu.attention.choose import best_keys
from fastattn.ops.cpu.attention.strided import compile_function, reads_float16, strided_attention
from fastattn.ops.cpu.directions import unit_vectors
from fastattn.ops.cpu.graph import graph_attention
from fastattn.ops.cpu.local import local_attention
from fastattn.ops.cpu.search import nearest_rows
