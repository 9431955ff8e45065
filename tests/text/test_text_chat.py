"""Chat templates: equal to transformers' rendering; hostile ones are refused in one line, within bounds."""

import json
import re
import sys
import tracemalloc

import pytest

from fastattn.errors import CheckpointError, FastattnError, InputError
from fastattn.text.chat import ChatTemplate
from tests import ROOT
from tests.messages import refused
from tests.text.chat_templates import CONVERSATIONS, TEMPLATES, TOKENS

GOLDENS = json.loads((ROOT / "tests" / "goldens" / "chat.json").read_text(encoding="utf-8"))["prompts"]
HELLO = [{"role": "user", "content": "Hello"}]


@pytest.fixture(autouse=True)
def _needs_jinja2(request):
    if "without" not in request.function.__name__:
        pytest.importorskip("jinja2")


def test_conversations_are_rendered_as_by_transformers():
    for name in TEMPLATES:
        template = ChatTemplate(TEMPLATES[name], TOKENS)
        for number, messages in enumerate(CONVERSATIONS):
            expected = GOLDENS[name][number]
            if expected is None:
                with pytest.raises(InputError, match="the chat template refuses these messages: "):
                    template.render(messages, add_generation_prompt=number % 2 == 0)
            else:
                assert template.render(messages, add_generation_prompt=number % 2 == 0) == expected


def test_variables_and_structured_contents_reach_the_template():
    template = ChatTemplate(TEMPLATES["headers"], TOKENS)
    assert "Today: 1 May 2026" in template.render(HELLO, date="1 May 2026")
    assert '[TOOLS][\n    {\n        "name": "<f>"' in template.render(HELLO, tools=[{"name": "<f>"}])
    parts = [{"type": "text", "text": " a "}, {"type": "image"}, {"type": "text", "text": "b"}]
    messages = [{"role": "user", "content": parts}]
    assert ChatTemplate(TEMPLATES["turns"], TOKENS).render(messages) == "<s><turn>user\nab<end>\n<turn>model\n"
    text = "{{ '%s: %5.2f%% (%(a)s)' % ('in 2024', 0.5) if none else 'In 2024: %-9s|%d%%' % ('a', 7) }}"
    assert ChatTemplate(text).render(HELLO) == "In 2024: a        |7%"


ROLELESS, OBJECT = [{"content": "a"}], [HELLO[0] | {"more": OSError}]
CONTENTS = [[{"role": "user", "content": content}] for content in (None, 3, "a\ud800")]
WRONG_MESSAGES = ["hello", HELLO[0], [], [HELLO[0], "hi"], ROLELESS, OBJECT, *CONTENTS]


def test_wrong_messages_are_told_in_one_line():
    for messages in WRONG_MESSAGES:
        with refused(InputError):
            ChatTemplate("{{ messages }}").render(messages)
    with refused(InputError):
        ChatTemplate(r"{{ raise_exception('roles must\nalternate') }}").render(HELLO)
    with refused(InputError, "add_generation_prompt"):
        ChatTemplate("").render(HELLO, add_generation_prompt=1)


def test_data_nested_without_end_is_refused():
    nested = []
    for _ in range(5000):
        nested = [nested]
    with refused(InputError, "nested too deeply"):
        ChatTemplate("").render(HELLO, tools=nested)


MUCH = "does too much"
DOUBLED = "{% set ns = namespace(x='a', y='a') %}{% for i in range(99) %}{% set ns.x = PAIR %}{% endfor %}"
LISTS, TUPLES = DOUBLED.replace("PAIR", "[ns.x, ns.x]"), DOUBLED.replace("PAIR", "(ns.x, ns.x)")
BOTH = LISTS.replace("{% endfor %}", "{% set ns.y = [ns.y, ns.y] %}{% endfor %}")
LONG = "{% set x = 'a <' * 99999 %}"
OF_LISTS = (
    *("ns.x", "ns.x|tojson", "ns.x|string|length", "ns.x|join", "ns.x ~ ''", "ns.x == [1]", "ns.x is eq([1])"),
    *("raise_exception(ns.x)", "1 in ns.x", "ns.x.index(1)", "'%s' % ns.x", "ns.x|replace('a', 'b')"),
)
OF_LONG = (
    *("x.replace('', x)", "x|replace('', x)", "x|replace(old='', new=x)", "x.join(x)", "x|join(d=x)", "x|striptags"),
    *("(x * 9).split('a')|length", "'%(a)s' * 9999 % {'a': x}", "x|wordwrap(1, wrapstring=x)"),
    *(r"('a\n' * 9999)|indent(9999999)", r"('a\n' * 9999)|indent('a' * 99999)", "[1]|batch(10**10, 0)|list"),
    *("[1]|slice(10**10)|list", "'a'.zfill(10**10)", "'a'.ljust(10**10)", "'a'.rjust(10**10)"),
    *(r"('\t' * 999).expandtabs(10**8)", r"('\t' * 999).expandtabs(tabsize=10**8)"),
    *("([[x]] * 9999)|sum(start=[])|length", "('{0}' * 9999).format(x)", "('%s' * 9999)|format(x)"),
    "('{a}' * 9999).format_map({'a': x})",
)
FORMAT, POWER, UNSAFE = "a width in a format", "a number is too great", "attribute '%s' of '%s' object is unsafe"
HOSTILE = {
    MUCH: [
        "{% for a in range(9999) %}{% for b in range(9999) %}x{% endfor %}{% endfor %}",
        "{% for a in range(9999) if range(99999)|map('string')|list|length == 3 %}{% endfor %}",
        "{% for a in range(9999) %}{{ range(99999)|sort|first }}{% endfor %}",
        "{% for a in range(9999) %}{% set y = (range(9999)|list)[::-1] %}{% endfor %}",
        "{% set x %}{% for a in range(99999) %}" + "y" * 10000 + "{% endfor %}{% endset %}",
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
        "{% set ns = namespace(x=[]) %}{% for i in range(999) %}{% set ns.x = ns.x + ['a' * 99999] %}{% endfor %}",
        *(DOUBLED.replace("PAIR", pair) for pair in ("ns.x ~ ns.x", "ns.x + ns.x")),
        *(LISTS + "{{ " + one + " }}" for one in OF_LISTS),
        BOTH + "{{ 1 != ns.x == ns.y }}",
        BOTH + "{% for i in [1, 2] %}{{ loop.changed(ns.x if loop.first else ns.y) }}{% endfor %}",
        *(TUPLES + "{% set d = " + one + " %}" for one in ("{ns.x: 1}", "dict([(ns.x, 1)])")),
        *(TUPLES + "{{ messages[0]" + one + " }}" for one in ("[ns.x]", ".get(ns.x)")),
        *(LONG + "{{ " + one + " }}" for one in OF_LONG),
        *("{{ 'a'.center(10**10) }}", "{{ 'a'|center(9999999999) }}"),
        *("{{ 'a' * 10**10 }}", "{{ (10**10) * 'a' }}", "{{ [1] * 10**10 }}"),
    ],
    "nested too deeply": [
        "{% macro f(n) %}{{ f(n) }}{% endmacro %}{{ f(1) }}",
        "{% block a %}{{ self.a() }}{% endblock %}",
        "{% for m in [[1]] recursive %}{{ loop([[1]]) }}{% endfor %}",
        *("{{ " + "(" * 5000 + ")" * 5000 + " }}", "{{ 1" + " + 1" * 5000 + " }}"),
    ],
    "too many statically nested blocks": ["{% for a in [1] %}" * 30 + "{% endfor %}" * 30],
    "has 70,000 characters, more than 65,536": ["x" * 70000],
    "Range too big": ["{{ range(10**9) }}"],
    POWER: [
        *("{{ 10 ** 100000 }}", "{{ 2 ** (9 ** 99) }}", "{% set x = ('1' * 200000)|int(0, 2) %}{{ x // (x - 1) }}"),
        "{% set ns = namespace(x=10) %}{% for i in range(99) %}{% set ns.x = ns.x * ns.x %}{% endfor %}",
    ],
    "limit": ["{{ " + "9" * 5000 + " }}"],
    FORMAT: [
        *("{{ '{:>9999999999}'.format(1) }}", "{{ '{a:>99999999}'.format_map({'a': 1}) }}"),
        *("{{ '%9999999999d' % 1 }}", "{{ '%(a)9999999999d' % {'a': 1} }}", "{{ '%5.9999999999f' % 1.5 }}"),
        *("{{ '%(a(b)c)9999999999d' % {'a(b)c': 1} }}", "{{ '%*d' % (9999999999, 1) }}"),
        *("{{ '{:>{}}'.format(1, 999999999) }}", "{{ ('{:>999999999}'|e).format(1) }}"),
        "{{ '%999999999d'|format(1) }}",
    ],
    "round takes a precision of at most 100": ["{{ 5|round(-999999999) }}", "{{ 5|round(999999999, 'floor') }}"],
    "tojson takes an indent below 100": ["{{ messages|tojson(indent=999999999) }}"],
    "separators of at most 8 characters": ["{{ messages|tojson(separators=('a' * 99999, 'b')) }}"],
    "at most 100 characters": ["{{ strftime_now('%c' * 999) }}"],
    UNSAFE % ("__class__", "str"): ["{{ ''.__class__.__mro__ }}"],
    UNSAFE % ("__globals__", "function"): ["{{ raise_exception.__globals__['sys'] }}"],
    "a namespace takes no name such as '__class__'": ["{{ namespace(__class__=1) }}"],
    UNSAFE % ("append", "list"): ["{{ messages.append(1) }}"],
    "'lipsum' is undefined": ["{{ lipsum() }}"],
    "no loader": ["{% include 'a' %}", "{% import 'os' as os %}"],
    "'a' is undefined": ["{{ a.b.c }}"],
    "line 1: Expected an expression": ["{% for %}"],
    "line 3: No filter named 'nothing'": ["a\n\n{{ 'a'|nothing }}"],
}


@pytest.mark.parametrize("message", HOSTILE)
def test_hostile_templates_are_refused_in_one_line(message, monkeypatch):
    from fastattn.text import sandbox

    monkeypatch.setattr(sandbox, "BUDGET", 1 << 20)  # the rules are the same, the tests faster
    for source in HOSTILE[message]:
        with pytest.raises(CheckpointError, match=re.escape(message)) as caught:
            ChatTemplate(source).render(HELLO)
        assert str(caught.value).startswith("chat template: ") and len(str(caught.value).splitlines()) == 1, source
        assert len(str(caught.value)) < 350, source


TALK = [{"role": "user", "content": "a b  c\n\td"}, {"role": "assistant", "content": "Yes."}]
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
messages|groupby('role')|map('first')|list
messages[0].content|wordcount
messages[0].content|wordwrap(3)
messages[0].content|truncate(5)
'x'|center(9) ~ '|'
'7'.zfill(5) ~ '7'.ljust(4) ~ '7'.rjust(4) ~ '7'.center(5) ~ 'a\tb'.expandtabs(4)
{'a': 1}.copy()
12345678|filesizeformat
'<b>x</b> y'|striptags
'a b&c'|urlencode
{'class': 'x'}|xmlattr
messages|pprint
messages[0]|attr('role')
5 .bit_length() ~ 0.5.is_integer()
'a1_'.isidentifier() ~ 'a'.isprintable()
""".strip().splitlines()


def test_an_expression_gives_what_jinja2_gives():
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    theirs = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    for expression in EXPRESSIONS:
        source = "{{ " + expression + " }}"
        assert ChatTemplate(source).render(TALK) == theirs.from_string(source).render(messages=TALK), expression
    source = "{% set c, j = cycler('a', 'b'), joiner('; ') %}{% for m in messages %}{{ j() }}{{ c.next() }}{% endfor %}"
    assert ChatTemplate(source).render(TALK) == "a; b"


CALLS = [{"type": "function", "function": {"name": "f", "arguments": {}}}]
NULLS = {
    "{{ 'content' in messages[0] }} {{ messages[0].content }}": "False ",
    "{{ 'name' in messages[0] }} {{ messages[0].name is defined }}": "False False",
    # Published templates that tell a null from a text, and fail without either.
    "{{ 'null' if messages[0]['content'] is none else 'text ' + messages[0]['content'] }}": "null",
}
NO_NULL = "{{ raise_exception('no') if messages[0].content is none else messages[0].content.strip() }}"


def test_nulls_are_left_out_but_for_contents_that_a_template_needs():
    messages = [{"role": "assistant", "content": None, "name": None, "tool_calls": CALLS}]
    for source, expected in NULLS.items():
        assert ChatTemplate(source).render(messages) == expected
    with refused(InputError, "no"):
        ChatTemplate(NO_NULL).render(messages)


def test_reasoning_has_the_names_that_templates_read():
    template = ChatTemplate("{{ messages[0].thinking }}, {{ messages[0].reasoning_content }}")
    nulls = dict.fromkeys(("reasoning_content", "thinking", "reasoning"))
    for name in nulls:
        for others in ({}, nulls):
            assert template.render([TALK[1] | others | {name: "Hm."}]) == "Hm., Hm."
    assert template.render([TALK[1] | {"thinking": "A", "reasoning_content": "B"}]) == "A, B"


def test_what_a_template_may_take_is_bounded_by_what_goes_in():
    tracemalloc.start()
    try:
        with pytest.raises(CheckpointError, match=MUCH):
            ChatTemplate(DOUBLED.replace("PAIR", "ns.x + ns.x")).render(HELLO)
        assert tracemalloc.get_traced_memory()[1] < 1 << 26
    finally:
        tracemalloc.stop()
    content = "word " * 400_000
    template = ChatTemplate("{{ messages[0].content|trim|replace('w', 'v') }}" * 6)
    assert len(template.render([HELLO[0] | {"content": content}])) == 6 * len(content) - 6
    many = HELLO * 3000
    assert ChatTemplate("{% for m in messages %}{{ messages|length == loop.length }}{% endfor %}").render(many)


def test_without_jinja2_one_line_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    monkeypatch.delitem(sys.modules, "fastattn.text.sandbox", raising=False)
    with pytest.raises(
        FastattnError, match=r"^conversations need the extra: pip install 'fastattn\[chat\]' \(.*jinja2"
    ):
        ChatTemplate("")
