"""Object files in memory: code, constants and variables of LLVM's own, placed without its linker, and beside it."""

import ctypes
import math

import llvmlite.binding as llvm
import pytest

from fastattn.runtime import machine_code
from fastattn.runtime.code_cache import Code
from fastattn.runtime.object_file import is_placeable, place
from tests.messages import refused

MODULE = """
@calls = internal global i64 0
@weights = internal constant [3 x double] [double 2.0, double 3.0, double 5.0], align 64
@choices = internal constant [2 x ptr] [ptr @small, ptr @large]
declare double @log(double)
declare double @no_such_function(double)
define internal double @small(double %x) noinline {
  %y = call double @log(double %x)
  ret double %y
}
define internal double @large(double %x) noinline {
  %y = fmul double %x, 1.000000e+03
  ret double %y
}
define i64 @count() {
  %old = load i64, ptr @calls
  %new = add i64 %old, 1
  store i64 %new, ptr @calls
  ret i64 %new
}
define double @weight(i64 %n) {
  %place = getelementptr double, ptr @weights, i64 %n
  %weight = load double, ptr %place
  ret double %weight
}
define double @choose(i64 %n, double %x) {
  %place = getelementptr ptr, ptr @choices, i64 %n
  %function = load ptr, ptr %place
  %y = call double %function(double %x)
  ret double %y
}
define double @missing(double %x) {
  %y = call double @no_such_function(double %x)
  ret double %y
}
"""
WITHOUT_MISSING = MODULE.replace("@no_such_function", "@exp")
TYPES = {
    "count": (ctypes.c_int64,),
    "weight": (ctypes.c_double, ctypes.c_int64),
    "choose": (ctypes.c_double, ctypes.c_int64, ctypes.c_double),
}


def object_file(text: str, model: str = "large") -> bytes:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(codemodel=model, reloc="static")
    data: bytes = machine.emit_object(llvm.parse_assembly(text))
    return data


needs_linux = pytest.mark.skipif(not is_placeable(object_file(WITHOUT_MISSING)), reason="for Linux on x86-64")


@needs_linux
def test_code_constants_and_variables_have_their_addresses() -> None:
    data = object_file(WITHOUT_MISSING)
    copies = [place(data), place(data)]
    functions = [{name: ctypes.CFUNCTYPE(*TYPES[name])(symbols[name]) for name in TYPES} for symbols in copies]
    for copy in functions:
        assert [copy["count"]() for _ in range(3)] == [1, 2, 3], "each copy has its own variables"
        assert [copy["weight"](n) for n in range(3)] == [2.0, 3.0, 5.0]
        assert [copy["choose"](n, 2.0) for n in range(2)] == [math.log(2.0), 2000.0]
    assert copies[0]["weights"] % 64 == 0, "aligned as the section demands"
    with open("/proc/self/maps") as stream:
        lines = stream.readlines()
    assert [protection(lines, copies[0][name]) for name in ("count", "weights", "calls")] == ["r-xp", "r--p", "rw-p"]


def protection(lines: list[str], address: int) -> str:
    for line in lines:
        begin, end = (int(part, 16) for part in line.split()[0].split("-"))
        if begin <= address < end:
            return line.split()[1]
    raise AssertionError(hex(address))


@needs_linux
def test_what_a_linker_alone_could_do_is_refused() -> None:
    with refused(OSError, "no no_such_function in this process"):
        place(object_file(MODULE))
    with refused(OSError, "relocation"):
        place(object_file(WITHOUT_MISSING, "small"))
    assert not is_placeable(b"\x7fELF\x01" + object_file(MODULE)[5:]) and not is_placeable(b"MZ")


def test_llvms_linker_loads_the_same_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the systems whose object files are of another form."""
    monkeypatch.setattr(machine_code, "is_placeable", lambda data: False)
    code = Code({"wrapper": "choose", "entry": "count"}, ["log", "exp"], object_file(WITHOUT_MISSING))
    _, addresses = machine_code.load(code, [])
    assert ctypes.CFUNCTYPE(*TYPES["choose"])(addresses["wrapper"])(1, 3.0) == 3000.0
    assert ctypes.CFUNCTYPE(*TYPES["count"])(addresses["entry"])() == 1
    with refused(OSError, "no no_such_function in this process"):
        machine_code.load(code._replace(needs=["no_such_function"], object_file=object_file(MODULE)), [])
    monkeypatch.undo()
    with refused(OSError, "lacks"):
        machine_code.load(code._replace(exports={"wrapper": "choose", "entry": "no_such_function"}), [])
