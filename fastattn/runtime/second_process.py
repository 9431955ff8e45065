"""What the second process compiles: see ``compiling.begin_ahead``."""

import os
import signal
import threading

from fastattn.runtime.handle import kernel_named

_ROWS, _STEP_ROWS = "(f2C,f2C,f2C,f2C)", "(f2C,f2C,f2C,f2C,f2C)"
_TYPES = "fastattn.kernels.attention.arguments:"
_SCORES = f"{_TYPES}ScoreArguments(F,F,f1C,I,I,I,I,f1C,f2C,I,f1C,I,I,B2C)"
_MASK = f"{_TYPES}MaskArguments(B1C,I,I,I,I,B1C,I,I,I,I,I,I)"
_SHAPE, _OUTPUTS = f"{_TYPES}ShapeArguments(I,I,I,I,I)", f"{_TYPES}OutputArguments(f4C,f1C,I,I,I)"
# (file, kernel, key): what nearly every model takes, whatever its precision, in the order in which it needs them.
VARIANTS = (
    (
        "attention.sentences",
        "attend",
        f"{_ROWS},({','.join('I' * 16)}),(l1C,l1C,l2C,I),{_SHAPE},{_MASK},{_SCORES},{_OUTPUTS},f2C,l1C",
    ),
    ("attention.step", "attend_rows", f"{_STEP_ROWS},(i2C,l1C,l1C,l1C,I),(I,I,I,I),(I,I,I),{_SCORES},f3C,f2C,I"),
)


def main() -> None:
    """Compile all VARIANTS that are neither cached nor claimed; end at once with the first process, or at Ctrl-C."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    threading.Thread(target=lambda: os._exit(len(os.read(0, 1))), daemon=True).start()
    for file, name, key in VARIANTS:
        kernel_named(file, name).compile_ahead(key)
