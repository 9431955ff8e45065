"""What to say of an option that a function does not have: its name here, or the nearest one that there is."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from fastattn.errors import described

NONE: Mapping[str, str] = MappingProxyType({})


def unknown_option(function: str, name: str, known: Iterable[str], foreign: Mapping[str, str] = NONE) -> str:
    """The message of the TypeError for a keyword argument ``name``.

    function  as the caller wrote it, without parentheses
    known     the names of its options
    foreign   by other libraries' names, what to write here, such as {"is_causal": "causal=True"}
    """
    message = f"{function}() got an unexpected keyword argument {described(name)}"
    if name in foreign:
        return f"{message}; here it is {foreign[name]}"
    import difflib  # only here: it takes half a millisecond

    close = difflib.get_close_matches(name, known, n=1)
    return f"{message}; did you mean {close[0]}?" if close else message
