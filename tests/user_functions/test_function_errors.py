"""Functions that cannot be compiled: one line that says what, with the function's own line."""

import cmath
import functools
import importlib.util
import math
import os
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
from tests.user_functions.kernels import expected_seen, modified, seen

OTHER = types.ModuleType("other")
OTHER.tanh = cmath.tanh
# What these functions find outside.
GIVEN = {"TEXT": "text", "BIG": 2**70, "COMPLEX": np.zeros(3, complex), "CUBE": np.zeros((3, 3, 3), np.float32)}
GIVEN |= {"NESTED": [[1, 2], [3]], "OTHER": OTHER, "np": np, "math": math, "os": os, "sys": sys}
# Name -> the body of a score_mod, what is not supported there, and what is said besides.
REFUSED = {
    "try_to": ("try:\n    return score\nexcept ValueError:\n    return 0", "a try"),
    "of_a_slice": ("return score + CUBE[0, :, s]", "a slice"),
    "not_here": ("return np.sinc(score)", "a call of np.sinc"),
    "a_method": ("return score.clip(0)", "score used as a function or a module"),
    "a_list": ("return [score]", "a list"),
    "some_path": ("if s > t:\n    return score", "a path without a return"),
    "by_is": ("return score if s is t else 0", "the operator is"),
    "elsewhere": ("return os.getpid()", "a call of os.getpid"),
    "two_of_one": ("return np.exp(score, score)", "a call of np.exp with 2 arguments"),
    "among_names": ("return score if s in NESTED else 0", "an in", ": write it out, x in (1, 3)"),
    "over_an_array": ("for x in CUBE:\n    score += x\nreturn score", "a loop over something other than a range"),
    "to_two": ("x, y = score, s\nreturn x + y", "an assignment to something other than a variable", ": assign one"),
    "wrong_call": ("return two(score, 1, 2)", "a call of two with other arguments than x, y"),
    "a_string": ('return "a"', "the constant 'a'"),
    "yielding": ("yield score", "a statement without effect"),
    "step": ("for i in range(0, s, h):\n    score += i\nreturn score", "a range whose step is no number other than 0"),
    "standstill": (
        "for i in range(0, 3, 0):\n    score += i\nreturn score",
        "a range whose step is no number other than 0",
    ),
    "of_three": ("return np.maximum(score, 1.0, s)", "a call of np.maximum with 3 arguments"),
    "big_constant": ("return score + 2**3 + 9223372036854775808", "a number of more than 64 bits"),
}
NO = ", which is not supported here"
# Name -> the body, what is said, and in what line, from the definition on, unless it is the next.
FAULTS = {
    "inner_fault": ("return two(score, CUBE)", "no add of float32 and an array of 3 axes", -3),  # that of ``two``
    "unknown_name": ("return score + missing", "the name missing is not defined"),
    "of_text": ("return score + TEXT", "expected TEXT to be a number, an array of numbers or a function, got a str"),
    "of_many_bits": ("return score + BIG", "BIG should fit in 64 bits, got 1180591620717411303424"),
    "of_complex": (
        "return score + COMPLEX[s]",
        "expected COMPLEX to be a number, an array of numbers or a function, got an array of complex128",
    ),
    "of_nested": (
        "return score + NESTED[s]",
        "expected NESTED to be a number, an array of numbers or a function, got a list",
    ),
    "too_few": ("return score + CUBE[s]", "no add of float32 and an array of 2 axes"),
    "too_many": ("return score + CUBE[s, s, s, s]", "4 indices for an array of 3 axes"),
    "not_anywhere": ("return np.nothing(score)", "module numpy has no nothing"),
    "an_array": ("return CUBE", "it returns an array of 3 axes", 0),
    "itself": ("return itself(score, b, h, t, s)", "it calls itself", 0),
    "shifted": ("return score << 2", "no shift_left of float32 and int64"),
    "of_an_object": (
        "return score if s < sys.flags.hash_randomization else 0",
        f"attribute sys.flags.hash_randomization{NO}: give its value a name outside",
    ),
    "like_numpy": ("return OTHER.tanh(score)", f"a call of OTHER.tanh{NO}: write np.tanh"),
    "by_names": ("return np.clip(score, min=0, max=1)", f"a call of np.clip with names of arguments{NO}"),
    "digits": ("return round(score, 2)", f"a call of round with 2 arguments{NO}"),
    "two_kinds": (
        "found = CUBE[h]\nwhile t < 0:\n    found = score\nreturn found",
        "a variable is of another kind on another path",
        4,
    ),
    "thrice": ("return np.hypot(score, t, s)", f"a call of numpy.hypot{NO}"),
    "split": ("return math.frexp(score) + math.modf(score)[0]", f"a call of math.modf{NO}"),
    "by_a_float": ("return CUBE[score, 1, 1]", "an array of 3 axes has no index of float32 and int64 and int64"),
    "bits_of_a_float": ("return score & 1", "no bit_and of float32 and int64"),
    "factorial": ("return math.factorial(s)", f"a call of math.factorial{NO}"),
} | {name: (body, f"{name} has {what}{NO}{''.join(more)}") for name, (body, what, *more) in REFUSED.items()}
TWO = "def two(x, y):\n    return x + y\n\n\n"


@pytest.fixture(scope="module")
def module(tmp_path_factory):
    """All of FAULTS, in a file."""
    path = tmp_path_factory.mktemp("faults") / "faults.py"
    texts = (
        f"def {name}(score, b, h, t, s):\n{textwrap.indent(body, '    ')}\n" for name, (body, *_) in FAULTS.items()
    )
    path.write_text("".join([TWO, *texts]))
    spec = importlib.util.spec_from_file_location("faults", path)
    made = importlib.util.module_from_spec(spec)
    vars(made).update(GIVEN)
    spec.loader.exec_module(made)
    return made


EVERYWHERE = "try_to", "inner_fault"  # found while it is rewritten, and while its types are


def test_a_fault_is_told_in_one_line_with_its_place(module):
    """By all that takes a function; of most faults one of them is asked."""
    for name, (_, message, *line) in FAULTS.items():
        function = getattr(module, name)
        ways = [
            partial(fastattn.explain_function, function),
            partial(modified, function, np.zeros((2, 2), np.float32)),
            partial(fastattn.attention, *[np.zeros((1, 2, 1, 4), np.float32)] * 3, score_mod=function),
        ]
        for way in ways if name in EVERYWHERE else ways[:1]:
            with pytest.raises(InputError) as raised:
                way()
            text = str(raised.value)
            assert text.startswith("score_mod: ") and message in text and "\n" not in text
            assert f"{module.__file__}:{function.__code__.co_firstlineno + sum(line or [1])}" in text


class Callable:
    def __call__(self, score, b, h, t, s):
        return score

    def method(self, score, b, h, t, s):
        return score


def test_what_is_no_function_is_refused():
    for given in (3, None, Callable(), Callable().method, functools.partial(max, 1), np.exp, print):
        for kind in ("score_mod", "mask_mod"):
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


def test_other_parameters_are_refused():
    for function, kind in PARAMETERS:
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


def test_masks_are_made_of_functions():
    for join in (fastattn.and_masks, fastattn.or_masks):
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
