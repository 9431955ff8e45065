"""Functions that cannot be compiled: one line that says what, with the function's own line."""

import cmath
import functools
import importlib
import math
import os
import sys
import types

import numpy as np
import pytest

import fastattn
from fastattn.errors import InputError
from fastattn.user_functions import function_type
from fastattn.user_functions.plan import compile_function
from tests.user_functions.kernels import expected_seen, modified, seen

TEXT, BIG, COMPLEX, CUBE = "text", 2**70, np.zeros(3, complex), np.zeros((3, 3, 3), np.float32)
NESTED = [[1, 2], [3]]
OTHER = types.ModuleType("other")
OTHER.tanh = cmath.tanh


def unknown_name(score, b, h, t, s):
    return score + missing  # noqa: F821


def try_to(score, b, h, t, s):
    try:
        return score
    except ValueError:
        return 0


def of_text(score, b, h, t, s):
    return score + TEXT


def of_many_bits(score, b, h, t, s):
    return score + BIG


def of_complex(score, b, h, t, s):
    return score + COMPLEX[s]


def of_nested(score, b, h, t, s):
    return score + NESTED[s]


def too_few(score, b, h, t, s):
    return score + CUBE[s]


def too_many(score, b, h, t, s):
    return score + CUBE[s, s, s, s]


def of_a_slice(score, b, h, t, s):
    return score + CUBE[0, :, s]


def not_here(score, b, h, t, s):
    return np.sinc(score)


def not_anywhere(score, b, h, t, s):
    return np.nothing(score)


def a_method(score, b, h, t, s):
    return score.clip(0)


def a_list(score, b, h, t, s):
    return [score]


def some_path(score, b, h, t, s):  # noqa: RET503
    if s > t:
        return score


def an_array(score, b, h, t, s):
    return CUBE


def itself(score, b, h, t, s):
    return itself(score, b, h, t, s)


def by_is(score, b, h, t, s):
    return score if s is t else 0


def elsewhere(score, b, h, t, s):
    return os.getpid()


def two_of_one(score, b, h, t, s):
    return np.exp(score, score)


def shifted(score, b, h, t, s):
    return score << 2


def among_names(score, b, h, t, s):
    return score if s in NESTED else 0


def of_an_object(score, b, h, t, s):
    return score if s < sys.flags.hash_randomization else 0


def like_numpy(score, b, h, t, s):
    return OTHER.tanh(score)


def by_names(score, b, h, t, s):
    return np.clip(score, min=0, max=1)


def digits(score, b, h, t, s):
    return round(score, 2)


def two_kinds(score, b, h, t, s):
    found = CUBE[h]
    while t < 0:
        found = score
    return found


def thrice(score, b, h, t, s):
    return np.hypot(score, t, s)


def split(score, b, h, t, s):
    return math.frexp(score) + math.modf(score)[0]


def by_a_float(score, b, h, t, s):
    return CUBE[score, 1, 1]


def bits_of_a_float(score, b, h, t, s):
    return score & 1


def over_an_array(score, b, h, t, s):
    for x in CUBE:
        score += x
    return score


def to_two(score, b, h, t, s):
    x, y = score, s
    return x + y


def wrong_call(score, b, h, t, s):
    return two(score, 1, 2)


def two(x, y):
    return x + y


def inner_fault(score, b, h, t, s):
    return two(score, CUBE)


def factorial(score, b, h, t, s):
    return math.factorial(s)


def a_string(score, b, h, t, s):
    return "a"


def yielding(score, b, h, t, s):
    yield score


def step(score, b, h, t, s):
    for i in range(0, s, h):
        score += i
    return score


def standstill(score, b, h, t, s):
    for i in range(0, 3, 0):
        score += i
    return score


def of_three(score, b, h, t, s):
    return np.maximum(score, 1.0, s)


def big_constant(score, b, h, t, s):
    return score + 2**3 + 9223372036854775808


FAULTS = {
    unknown_name: (1, "the name missing is not defined"),
    try_to: (1, "try_to has a try, which is not supported here"),
    of_text: (1, "expected TEXT to be a number, an array of numbers or a function, got a str"),
    of_many_bits: (1, "BIG should fit in 64 bits, got 1180591620717411303424"),
    of_complex: (1, "expected COMPLEX to be a number, an array of numbers or a function, got an array of complex128"),
    of_nested: (1, "expected NESTED to be a number, an array of numbers or a function, got a list"),
    too_few: (1, "no add of float32 and an array of 2 axes"),
    too_many: (1, "4 indices for an array of 3 axes"),
    of_a_slice: (1, "of_a_slice has a slice, which is not supported here"),
    not_here: (1, "not_here has a call of np.sinc, which is not supported here"),
    not_anywhere: (1, "module numpy has no nothing"),
    a_method: (1, "a_method has score used as a function or a module, which is not supported here"),
    a_list: (1, "a_list has a list, which is not supported here"),
    some_path: (1, "some_path has a path without a return, which is not supported here"),
    an_array: (0, "it returns an array of 3 axes"),
    itself: (0, "it calls itself"),
    by_is: (1, "by_is has the operator is, which is not supported here"),
    elsewhere: (1, "elsewhere has a call of os.getpid, which is not supported here"),
    two_of_one: (1, "two_of_one has a call of np.exp with 2 arguments, which is not supported here"),
    shifted: (1, "no shift_left of float32 and int64"),
    among_names: (1, "among_names has an in, which is not supported here: write it out, x in (1, 3)"),
    of_an_object: (
        1,
        "attribute sys.flags.hash_randomization, which is not supported here: give its value a name outside",
    ),
    like_numpy: (1, "a call of OTHER.tanh, which is not supported here: write np.tanh"),
    by_names: (1, "a call of np.clip with names of arguments, which is not supported here"),
    digits: (1, "a call of round with 2 arguments, which is not supported here"),
    two_kinds: (4, "a variable is of another kind on another path"),
    thrice: (1, "a call of numpy.hypot, which is not supported here"),
    split: (1, "a call of math.modf, which is not supported here"),
    by_a_float: (1, "an array of 3 axes has no index of float32 and int64 and int64"),
    bits_of_a_float: (1, "no bit_and of float32 and int64"),
    over_an_array: (1, "over_an_array has a loop over something other than a range, which is not supported here"),
    to_two: (1, "to_two has an assignment to something other than a variable, which is not supported here: assign one"),
    wrong_call: (1, "wrong_call has a call of two with other arguments than x, y, which is not supported here"),
    inner_fault: (-3, "no add of float32 and an array of 3 axes"),
    factorial: (1, "a call of math.factorial, which is not supported here"),
    a_string: (1, "a_string has the constant 'a', which is not supported here"),
    yielding: (1, "yielding has a statement without effect, which is not supported here"),
    step: (1, "step has a range whose step is no number other than 0, which is not supported here"),
    standstill: (1, "standstill has a range whose step is no number other than 0, which is not supported here"),
    of_three: (1, "of_three has a call of np.maximum with 3 arguments, which is not supported here"),
    big_constant: (1, "big_constant has a number of more than 64 bits, which is not supported here"),
}


@pytest.mark.parametrize("function", FAULTS, ids=lambda function: function.__name__)
def test_a_fault_is_told_in_one_line_with_its_place(function):
    line, message = FAULTS[function]
    ways = [
        lambda: modified(function, np.zeros((2, 2), np.float32)),
        lambda: fastattn.attention(*[np.zeros((1, 2, 1, 4), np.float32)] * 3, score_mod=function),
        lambda: fastattn.explain_function(function),
    ]
    for way in ways:
        with pytest.raises(InputError) as raised:
            way()
        text = str(raised.value)
        assert text.startswith("score_mod: ") and message in text and "\n" not in text
        assert f"{__file__}:{function.__code__.co_firstlineno + line}" in text


class Callable:
    def __call__(self, score, b, h, t, s):
        return score

    def method(self, score, b, h, t, s):
        return score


@pytest.mark.parametrize("given", [3, None, Callable(), Callable().method, functools.partial(two, 1), np.exp, print])
def test_what_is_no_function_is_refused(given):
    for kind in ("score_mod", "mask_mod"):
        with pytest.raises(InputError, match=rf"{kind}: expected a function \(.*b, h, t, s\), got a "):
            compile_function(given, kind)


@pytest.mark.parametrize(
    "function, kind",
    [
        (lambda b, h, t, s: s <= t, "score_mod"),
        (lambda score, b, h, t, s: score, "mask_mod"),
        (lambda *given: 1, "mask_mod"),
        (lambda b, h, t, s, **more: 1, "mask_mod"),
        (lambda b, h, t, *, s: 1, "mask_mod"),
        (lambda: 1, "mask_mod"),
    ],
)
def test_other_parameters_are_refused(function, kind):
    with pytest.raises(InputError, match=f"{kind}: expected a function of .*b, h, t, s, got <lambda> .* of "):
        compile_function(function, kind)


def test_a_source_that_cannot_be_read_is_told():
    made = eval("lambda b, h, t, s: s <= t")
    with pytest.raises(InputError, match="its source cannot be read; define it in a file or a notebook"):
        compile_function(made, "mask_mod")


def test_a_source_that_changed_since_is_told(tmp_path, monkeypatch):
    path = tmp_path / "some_masks.py"
    path.write_text("def mask(b, h, t, s):\n    return s <= t\n")
    monkeypatch.syspath_prepend(tmp_path)
    import some_masks

    path.write_text("def mask(b, h, t, s):\n    return s <= t + 100\n")
    with pytest.raises(InputError, match="its source has changed since it was loaded"):
        compile_function(some_masks.mask, "mask_mod")
    sys.modules.pop("some_masks")


def test_a_module_that_is_loaded_again_is_read_again(tmp_path, monkeypatch):
    path = tmp_path / "edited_masks.py"
    path.write_text("def mask(b, h, t, s):\n    return s <= t\n")
    monkeypatch.syspath_prepend(tmp_path)
    import edited_masks

    np.testing.assert_array_equal(seen(edited_masks.mask, 9, 9), expected_seen(edited_masks.mask, 9, 9))
    path.write_text("def mask(b, h, t, s):\n    # a line more\n    return s < t\n")
    importlib.reload(edited_masks)
    np.testing.assert_array_equal(seen(edited_masks.mask, 9, 9), expected_seen(edited_masks.mask, 9, 9))
    sys.modules.pop("edited_masks")


def test_more_functions_than_a_process_should_hold_are_told(monkeypatch):
    def mask(b, h, t, s, width=3):
        return s - t < width * 2 - 5

    compile_function(mask, "mask_mod")
    monkeypatch.setattr(function_type, "MOST_CLASSES", len(function_type._classes))
    with pytest.raises(
        InputError, match="mask_mod: expected at most [0-9]+ functions of different source in a process"
    ):
        compile_function(lambda b, h, t, s: s - t < 2 * 3 - 5, "mask_mod")
    mask.__defaults__ = (4,)
    assert compile_function(mask, "mask_mod") is not None, "what is known goes on"


def test_a_cell_without_a_value_is_told():
    def mask(b, h, t, s):
        return s < later

    with pytest.raises(InputError, match="the name later is not defined"):
        compile_function(mask, "mask_mod")
    later = 3
    assert compile_function(mask, "mask_mod") is not None and later


def test_what_nests_too_deeply_is_told(tmp_path, monkeypatch):
    long, longer = " + ".join(["s"] * 150), " + ".join(["s"] * 600)
    path = tmp_path / "deep_masks.py"
    path.write_text(f"def mask(b, h, t, s):\n    return t < {long}\ndef deep(b, h, t, s):\n    return t < {longer}\n")
    monkeypatch.syspath_prepend(tmp_path)
    import deep_masks

    with pytest.raises(InputError, match="deep_masks.py:3. is too deeply nested"):
        compile_function(deep_masks.deep, "mask_mod")
    np.testing.assert_array_equal(seen(deep_masks.mask, 9, 9), expected_seen(deep_masks.mask, 9, 9))
    sys.modules.pop("deep_masks")


@pytest.mark.parametrize("join", [fastattn.and_masks, fastattn.or_masks])
def test_masks_are_made_of_functions(join):
    with pytest.raises(InputError, match=f"{join.__name__}: expected functions \\(b, h, t, s\\), got a int"):
        join(fastattn.and_masks(), 3)


def test_a_variable_that_is_gone_since_the_last_call_is_told(monkeypatch):
    monkeypatch.setitem(globals(), "FLEETING", 3)
    module, inside = types.ModuleType("passing"), 5
    module.length = 4

    def mask(b, h, t, s):
        return (s < FLEETING) | (s < module.length) | (s < inside)  # noqa: F821

    compile_function(mask, "mask_mod")
    del module.length
    with pytest.raises(InputError, match=r"test_function_errors.py:\d+: the name module.length is not defined"):
        compile_function(mask, "mask_mod")
    module.length = 4
    del inside
    with pytest.raises(InputError, match="the name inside is not defined"):
        fastattn.explain_function(mask)
    inside = 5
    monkeypatch.delitem(globals(), "FLEETING")
    with pytest.raises(InputError, match="the name FLEETING is not defined"):
        compile_function(mask, "mask_mod")
