"""How mkdocstrings shows our docstrings: a column of arguments becomes a list."""

import re

import griffe

# "threads    the most threads to use": a name or several, two blanks or more, and what they are.
ARGUMENT = re.compile(r"(\w+(?:, \w+)*) {2,}(\S.*)")


class Arguments(griffe.Extension):
    """Rewrites each docstring while griffe reads the sources."""

    def on_object(self, *, obj: griffe.Object, **_: object) -> None:
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)


def as_markdown(docstring: str) -> str:
    """The docstring with a list item for each argument; stars are signs of formulas, never emphasis."""
    lines: list[str] = []
    inside = False  # a list of arguments
    for line in docstring.replace("*", r"\*").splitlines():
        argument = ARGUMENT.fullmatch(line)
        if argument and not inside:
            lines.append("")
        elif inside and not argument and not line.startswith("   "):
            lines.append("")
            inside = False
        inside = inside or bool(argument)
        lines.append(f"- `{argument[1]}`: {argument[2]}" if argument else f"  {line.strip()}" if inside else line)
    return "\n".join(lines)
