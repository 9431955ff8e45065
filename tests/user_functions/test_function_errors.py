"""Functions that cannot be compiled: one line that says what, with the function's own line."""

import cmath
import importlib
import importlib.util
import math
import os
import re
import sys
import textwrap
import types
from functools import partial

import numpy as np
import pytest

import fastattn
from fastattn.errors import InputError
from fastattn.user_functions import function_type
from fastattn.user_functions.plan import compile_function
from tests.messages import check
from tests.user_functions.kernels import expected_seen, modified, seen

OTHER = types.ModuleType("other")
OTHER.tanh = cmath.tanh
# What these functions find outside.
GIVEN = {"TEXT": "text", "BIG": 2**70, "COMPLEX": np.zeros(3, complex), "CUBE": np.zeros((3, 3, 3), np.float32)}
GIVEN |= {"NESTED": [[1, 2], [3]], "OTHER": OTHER, "np": np, "math": math, "os": os, "sys": sys}
# Name -> the body of a score_mod.
FAULTS = {
    "inner_fault": "return two(score, CUBE)",
    "unknown_name": "return score + missing",
    "of_text": "return score + TEXT",
    "of_many_bits": "return score + BIG",
    "of_complex": "return score + COMPLEX[s]",
    "of_nested": "return score + NESTED[s]",
    "too_few": "return score + CUBE[s]",
    "not_anywhere": "return np.nothing(score)",
    "an_array": "return CUBE",
    "itself": "return itself(score, b, h, t, s)",
    "of_an_object": "return score if s < sys.flags.hash_randomization else 0",
    "like_numpy": "return OTHER.tanh(score)",
    "by_names": "return np.clip(score, min=0, max=1)",
    "two_kinds": "found = CUBE[h]\nwhile t < 0:\n    found = score\nreturn found",
    "split": "return math.frexp(score) + math.modf(score)[0]",
    "by_a_float": "return CUBE[score, 1, 1]",
    "bits_of_a_float": "return score & 1",
    "factorial": "return math.factorial(s)",
    "try_to": "try:\n    return score\nexcept ValueError:\n    return 0",
    "of_a_slice": "return score + CUBE[0, :, s]",
    "a_method": "return score.clip(0)",
    "some_path": "if s > t:\n    return score",
    "by_is": "return score if s is t else 0",
    "elsewhere": "return os.getpid()",
    "among_names": "return score if s in NESTED else 0",
    "over_an_array": "for x in CUBE:\n    score += x\nreturn score",
    "to_two": "x, y = score, s\nreturn x + y",
    "wrong_call": "return two(score, 1, 2)",
    "a_string": 'return "a"',
    "yielding": "yield score",
    "step": "for i in range(0, s, h):\n    score += i\nreturn score",
    "standstill": "for i in range(0, 3, 0):\n    score += i\nreturn score",
    "of_three": "return np.maximum(score, 1.0, s)",
    "big_constant": "return score + 2**3 + 9223372036854775808",
}
# In which line a fault is, from the definition on, unless it is the next; the first is that of ``two``.
LINES = {"inner_fault": -3, "an_array": 0, "itself": 0, "two_kinds": 4}
TWO = "def two(x, y):\n    return x + y\n\n\n"


@pytest.fixture(scope="module")
def module(tmp_path_factory):
    """All of FAULTS, in a file."""
    path = tmp_path_factory.mktemp("faults") / "faults.py"
    texts = (f"def {name}(score, b, h, t, s):\n{textwrap.indent(body, '    ')}\n" for name, body in FAULTS.items())
    path.write_text("".join([TWO, *texts]))
    spec = importlib.util.spec_from_file_location("faults", path)
    made = importlib.util.module_from_spec(spec)
    vars(made).update(GIVEN)
    spec.loader.exec_module(made)
    return made


EVERYWHERE = "try_to", "inner_fault"  # found while it is rewritten, and while its types are


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_told_in_one_line_with_its_place(name, module):
    """By all that takes a function; of most faults one of them is asked."""
    function = getattr(module, name)
    place = f"{module.__file__}:{function.__code__.co_firstlineno + LINES.get(name, 1)}"
    ways = [
        partial(fastattn.explain_function, function),
        partial(modified, function, np.zeros((2, 2), np.float32)),
        partial(fastattn.attention, *[np.zeros((1, 2, 1, 4), np.float32)] * 3, score_mod=function),
    ]
    for way in ways if name in EVERYWHERE else ways[:1]:
        with pytest.raises(InputError, match="^score_mod: .*$") as raised:
            way()
        assert place in str(raised.value)
        check(re.sub(r"\S+faults.py:\d+", "HERE", str(raised.value)))


class Callable:
    def __call__(self, score, b, h, t, s):
        return score

    def method(self, score, b, h, t, s):
        return score


@pytest.mark.parametrize("kind", ["score_mod", "mask_mod"])
def test_what_is_no_function_is_refused(kind):
    for given in (3, None, Callable(), Callable().method, partial(max, 1), np.exp, print):
        with pytest.raises(InputError, match=rf"{kind}: expected a function \(.*b, h, t, s\), got a "):
            compile_function(given, kind)


PARAMETERS = [
    (lambda b, h, t, s: s <= t, "score_mod"),
    (lambda score, b, h, t, s: score, "mask_mod"),
    (lambda *given: 1, "mask_mod"),
    (lambda b, h, t, s, **more: 1, "mask_mod"),
    (lambda b, h, t, *, s: 1, "mask_mod"),
    (lambda: 1, "mask_mod"),
]


@pytest.mark.parametrize(("function", "kind"), PARAMETERS)
def test_other_parameters_are_refused(function, kind):
    with pytest.raises(InputError, match=f"{kind}: expected a function of .*b, h, t, s, got <lambda> .* of "):
        compile_function(function, kind)


def test_a_source_that_cannot_be_read_is_told():
    made = eval("lambda b, h, t, s: s <= t")
    with pytest.raises(InputError, match="its source cannot be read; define it in a file or a notebook"):
        compile_function(made, "mask_mod")


@pytest.fixture
def written(tmp_path, monkeypatch):
    """Writes a module of that text and imports it, or loads it again."""
    path = tmp_path / "written_masks.py"
    monkeypatch.syspath_prepend(tmp_path)

    def write(*bodies, load=True):
        path.write_text("".join(f"def mask{n or ''}(b, h, t, s):\n    {body}\n" for n, body in enumerate(bodies)))
        module = sys.modules.get("written_masks")
        if module and load:
            return importlib.reload(module)
        return module or importlib.import_module("written_masks")

    yield write
    sys.modules.pop("written_masks")


def test_a_source_that_changed_since_is_told(written):
    module = written("return s <= t")
    written("return s <= t + 100", load=False)
    with pytest.raises(InputError, match="its source has changed since it was loaded"):
        compile_function(module.mask, "mask_mod")


def test_a_module_that_is_loaded_again_is_read_again(written):
    for body in ("return s <= t", "# a line more\n    return s < t"):
        mask = written(body).mask
        np.testing.assert_array_equal(seen(mask, 9, 9), expected_seen(mask, 9, 9))


def test_more_functions_than_a_process_should_hold_are_told(monkeypatch):
    def mask(b, h, t, s, width=3):
        return s - t < width * 2 - 5

    compile_function(mask, "mask_mod")
    monkeypatch.setattr(function_type, "MAX_CLASSES", len(function_type._classes))
    with pytest.raises(
        InputError, match="mask_mod: expected at most [0-9]+ functions of different source in a process"
    ):
        compile_function(lambda b, h, t, s: s - t < 2 * 3 - 5, "mask_mod")
    mask.__defaults__ = (4,)
    assert compile_function(mask, "mask_mod") is not None, "what is known goes on"


@pytest.mark.parametrize("join", [fastattn.and_masks, fastattn.or_masks])
def test_masks_are_made_of_functions(join):
    with pytest.raises(InputError, match=f"{join.__name__}: expected functions \\(b, h, t, s\\), got a int"):
        join(fastattn.and_masks(), 3)


def test_a_variable_that_is_not_there_is_told(monkeypatch):
    monkeypatch.setitem(globals(), "FLEETING", 3)
    module = types.ModuleType("passing")

    def mask(b, h, t, s):
        return (s < FLEETING) | (s < module.length) | (s < inside)  # noqa: F821

    def missing(name):
        with pytest.raises(InputError, match=rf"test_function_errors.py:\d+: the name {name} is not defined"):
            compile_function(mask, "mask_mod")

    module.length = 4
    missing("inside")
    inside = 5
    compile_function(mask, "mask_mod")
    del module.length
    missing("module.length")
    module.length = 4
    del inside
    missing("inside")
    inside = 5
    monkeypatch.delitem(globals(), "FLEETING")
    missing("FLEETING")
    assert inside
