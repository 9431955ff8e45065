"""Text that is the same in every language: addresses, code, format directives, template variables, emoji."""

import re

_BRANCH = r"\{[^{}]*\}"  # of an ICU message such as {count, plural, one {# item} other {# items}}
for _ in range(4):  # levels of braces within a branch
    _BRANCH = rf"\{{(?:[^{{}}]|{_BRANCH})*\}}"
ICU_MESSAGE = re.compile(rf"\{{\s*[\w.-]+\s*,\s*(?:plural|select|selectordinal)\s*,(?:[^{{}}]|{_BRANCH})*\}}")
INVARIANT = re.compile(
    ICU_MESSAGE.pattern + r"|"
    r"\b(?:https?|ftp)://[^\s<>\"'`]*[^\s<>\"'`.,;:!?)\]]|\bwww\.[^\s<>\"'`]*[\w/]"
    r"|(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)+"
    r"|``(?=\S)(?:[^`\n]|`(?!`))+(?<=\S)``+|`(?=\S)[^`\n]*[^`\s]`"
    r"|_x[0-9A-Fa-f]{4}_|&(?:amp|lt|gt|nbsp|quot|[lr]rm|#\d{1,7});"
    r"|\{\{[^{}\n]+\}\}(?!\})|\{%[^{}\n]*%\}|\{:?[ \t]?[#.][^{}\n]*\}"
    r"|%(?:\(\w+\)|\d+\$)?[-+#0]*\d*(?:\.\d+)?(?:hh|h|ll|l|z|j|t)?[diouxXeEfgGcs@](?![a-z])|%\(\w+\)[ra]\b"
    r"|%[A-Z][A-Z\d_]+%|%%|%(?:\d+\$)?#@[\w.]+@|%arg\b"
    r"|[$%#]?\{{1,4} ?[\w.!\[\]-]*(?:[:,][-+.,:\w%<>^=#!]*)? ?\}{1,4}|\b__\w+?__\b"
    r"|[\U0001F000-\U0001FAFF\u2600-\u27BF\u2B50\u2B55][\U0001F3FB-\U0001F3FF\uFE0F\u200D\U0001F000-\U0001FAFF]*"
)


def branch_spans(message: str) -> list[tuple[int, int]]:
    """[start, end) of the text of each branch of an ICU message, without a number sign that begins the text."""
    return [
        (match.start() + 2 + len(match[0]) - 1 - len(re.sub(r"^\s*#\s+", "", match[0][1:])), match.end())
        for match in re.finditer(_BRANCH, message[1:])
    ]
