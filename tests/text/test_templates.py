"""What a chat template may use beside transformers' own functions: all of jinja2's sandbox, within bounds."""

import re
import time

import pytest
from jinja2.sandbox import ImmutableSandboxedEnvironment

from fastattn.errors import CheckpointError, InputError
from fastattn.text.chat import ChatTemplate

HELLO = [{"role": "user", "content": "a b  c\n\td"}, {"role": "assistant", "content": "Yes."}]
EXPRESSIONS = """
messages[0].content|indent(3)
messages[0].content|indent('> ', first=true, blank=true)
3.14159|round(2)
7.5|round(method='floor')
[1, 2, 3]|sum
messages|map(attribute='content')|map('length')|sum
[[1], [2]]|sum(start=[])
'%s and %d'|format('a', 3)
'{} {:>5} {a[0]}'.format('x', 2, a=[7])
'{a}-{b}'.format_map({'a': 1, 'b': 2})
('<b>{}</b>'|e).format('<')
[1, 2, 3, 4, 5]|batch(2, 0)|list
[1, 2, 3, 4, 5]|slice(2)|list
messages|groupby('role')|list
messages|groupby('role')|map('first')|list
messages[0].content|wordcount
messages[0].content|wordwrap(3)
messages[0].content|truncate(5)
'x'|center(9) ~ '|'
'7'.zfill(5) ~ '7'.ljust(4) ~ '7'.rjust(4) ~ '7'.center(5) ~ 'a\tb'.expandtabs(4)
{'a': 1}.copy()
[1, 2].copy()
12345678|filesizeformat
'<b>x</b> y'|striptags
'a b&c'|urlencode
{'class': 'x'}|xmlattr
messages|pprint
messages[0]|attr('role')
5 .bit_length() ~ 0.5.is_integer()
'a1_'.isidentifier() ~ 'a'.isprintable()
""".strip().splitlines()


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_an_expression_gives_what_jinja2_gives(expression):
    source = "{{ " + expression + " }}"
    theirs = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True).from_string(source)
    assert ChatTemplate(source).render(HELLO) == theirs.render(messages=HELLO)


def test_cycler_and_joiner_are_there():
    source = "{% set c, j = cycler('a', 'b'), joiner('; ') %}{% for m in messages %}{{ j() }}{{ c.next() }}{% endfor %}"
    assert ChatTemplate(source).render(HELLO) == "a; b"


LONG = "{% set x = 'a <' * 99999 %}"
HOSTILE = {
    "the template makes or does too much": """
{{ ('a\n' * 9999)|indent(9999999) }}
{{ ('a\n' * 9999)|indent('a' * 99999) }}
{{ [1]|batch(10**10, 0)|list }}
{{ [1]|slice(10**10)|list }}
{{ 'a'.zfill(10**10) }}
{{ 'a'.ljust(10**10) }}
{{ 'a'.rjust(10**10) }}
{{ ('\t' * 999).expandtabs(10**8) }}
{{ ('\t' * 999).expandtabs(tabsize=10**8) }}
{{ ([[x]] * 9999)|sum(start=[])|length }}
{{ x|striptags }}
{{ x|wordwrap(1, wrapstring=x) }}
{{ ('{0}' * 9999).format(x) }}
{{ ('%s' * 9999)|format(x) }}
{{ ('{a}' * 9999).format_map({'a': x}) }}
""",
    "a width in a format should be written out and below 100": """
{{ '{:>{}}'.format(1, 999999999) }}
{{ ('{:>999999999}'|e).format(1) }}
{{ '%999999999d'|format(1) }}
""",
    "round takes a precision of at most 100": "{{ 5|round(-999999999) }}\n{{ 5|round(999999999, 'floor') }}",
}


@pytest.mark.parametrize("message", HOSTILE)
def test_what_would_take_long_is_refused_at_once(message, monkeypatch):
    from fastattn.text import sandbox

    monkeypatch.setattr(sandbox, "ALLOWED", 1 << 20)
    for line in HOSTILE[message].strip().replace("}}\n{{", "}}\0{{").split("\0"):
        begun = time.thread_time()
        with pytest.raises(CheckpointError, match=re.escape(message)):
            ChatTemplate(LONG + line).render(HELLO)
        assert time.thread_time() - begun < 30, line  # of hours


CALLS = [{"type": "function", "function": {"name": "f", "arguments": {}}}]
NULLS = {
    "{{ 'content' in messages[0] }} {{ messages[0].content }}": "False ",
    "{{ 'name' in messages[0] }} {{ messages[0].name is defined }}": "False False",
    # Published templates that tell a null from a text, and fail without either.
    "{{ 'null' if messages[0]['content'] is none else 'text ' + messages[0]['content'] }}": "null",
    "{{ raise_exception('no') if messages[0].content is none else messages[0].content.strip() }}": None,
}


@pytest.mark.parametrize("source", NULLS)
def test_nulls_are_left_out_but_for_contents_that_a_template_needs(source):
    messages = [{"role": "assistant", "content": None, "name": None, "tool_calls": CALLS}]
    if NULLS[source] is None:
        with pytest.raises(InputError, match="refuses these messages: no"):
            ChatTemplate(source).render(messages)
    else:
        assert ChatTemplate(source).render(messages) == NULLS[source]


def test_reasoning_has_the_names_that_templates_read():
    template = ChatTemplate("{{ messages[0].thinking }}, {{ messages[0].reasoning_content }}")
    for name in ("reasoning_content", "thinking", "reasoning"):
        nulls = dict.fromkeys(("reasoning_content", "thinking", "reasoning"))
        assert (
            template.render([HELLO[1] | {name: "Hm."}])
            == template.render([HELLO[1] | nulls | {name: "Hm."}])
            == "Hm., Hm."
        )
    assert template.render([HELLO[1] | {"thinking": "A", "reasoning_content": "B"}]) == "A, B"
