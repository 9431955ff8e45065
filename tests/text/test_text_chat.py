"""Chat templates: equal to transformers' rendering; hostile ones are refused in one line, within bounds."""

import json
import re
import sys
import tracemalloc

import pytest

from fastattn.errors import CheckpointError, FastattnError, InputError
from fastattn.text.chat import ChatTemplate
from tests import ROOT
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


def test_goldens_are_those_of_the_transformers_installed_here():
    pytest.importorskip("transformers")
    from tests.goldens.make_chat import rendered

    for name, source in TEMPLATES.items():
        for number, messages in enumerate(CONVERSATIONS):
            assert rendered(source, messages, number % 2 == 0) == GOLDENS[name][number]


def test_variables_and_structured_contents_reach_the_template():
    template = ChatTemplate(TEMPLATES["headers"], TOKENS)
    assert "Today: 1 May 2026" in template.render(HELLO, date="1 May 2026")
    assert '[TOOLS][\n    {\n        "name": "<f>"' in template.render(HELLO, tools=[{"name": "<f>"}])
    parts = [{"type": "text", "text": " a "}, {"type": "image"}, {"type": "text", "text": "b"}]
    messages = [{"role": "user", "content": parts}]
    assert ChatTemplate(TEMPLATES["turns"], TOKENS).render(messages) == "<s><turn>user\nab<end>\n<turn>model\n"
    text = "{{ '%s: %5.2f%% (%(a)s)' % ('in 2024', 0.5) if none else 'In 2024: %-9s|%d%%' % ('a', 7) }}"
    assert ChatTemplate(text).render(HELLO) == "In 2024: a        |7%"


WRONG_MESSAGES = {
    "messages must be a list of messages, got str": "hello",
    "messages must be a list of messages, got dict; give its values()": HELLO[0],
    "messages should hold at least one message": [],
    'messages should hold {"role": ..., "content": ...}, number 1 is \'hi\'': [HELLO[0], "hi"],
    'message 0 should have a str as "role", got None': [{"content": "a"}],
    'message 0 should have a str as "content", got None': [{"role": "user", "content": None}],
    'message 0 should have a str as "content", got 3': [{"role": "user", "content": 3}],
    "the text holds a lone surrogate (U+D800) at character 1": [{"role": "user", "content": "a\ud800"}],
    "messages should hold plain data, got a object": [HELLO[0] | {"more": object()}],
}


def test_wrong_messages_are_told_in_one_line():
    for message in WRONG_MESSAGES:
        with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
            ChatTemplate("{{ messages }}").render(WRONG_MESSAGES[message])


def test_data_nested_without_end_is_refused():
    nested = []
    for _ in range(5000):
        nested = [nested]
    with pytest.raises(InputError, match="nested too deeply"):
        ChatTemplate("").render(HELLO, tools=nested)


MUCH = "does too much"
DOUBLED = "{% set ns = namespace(x='a', y='a') %}{% for i in range(99) %}{% set ns.x = PAIR %}{% endfor %}"
LISTS, TUPLES = DOUBLED.replace("PAIR", "[ns.x, ns.x]"), DOUBLED.replace("PAIR", "(ns.x, ns.x)")
BOTH = LISTS.replace("{% endfor %}", "{% set ns.y = [ns.y, ns.y] %}{% endfor %}")
LONG = "{% set x = 'a' * 200000 %}"
HOSTILE = [
    ("{% for a in range(9999) %}{% for b in range(9999) %}x{% endfor %}{% endfor %}", MUCH),
    ("{% for a in range(9999) if range(99999)|map('string')|list|length == 3 %}{% endfor %}", MUCH),
    ("{% for a in range(9999) %}{{ range(99999)|sort|first }}{% endfor %}", MUCH),
    ("{% for a in range(9999) %}{% set y = (range(9999)|list)[::-1] %}{% endfor %}", MUCH),
    ("{% set x %}{% for a in range(99999) %}" + "y" * 10000 + "{% endfor %}{% endset %}", MUCH),
    ("{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}", MUCH),
    ("{% macro f(n) %}{{ f(n) }}{% endmacro %}{{ f(1) }}", "nested too deeply"),
    ("{% block a %}{{ self.a() }}{% endblock %}", "nested too deeply"),
    ("{% for m in [[1]] recursive %}{{ loop([[1]]) }}{% endfor %}", "nested too deeply"),
    ("{{ " + "(" * 5000 + ")" * 5000 + " }}", "nested too deeply"),
    ("{{ 1" + " + 1" * 5000 + " }}", "nested too deeply"),
    ("{% for a in [1] %}" * 30 + "{% endfor %}" * 30, "too many statically nested blocks"),
    ("x" * 70000, "has 70,000 characters, more than 65,536"),
    ("{{ range(10**9) }}", "Range too big"),
    ("{{ 'a' * 10**10 }}", MUCH),
    ("{{ (10**10) * 'a' }}", MUCH),
    ("{{ [1] * 10**10 }}", MUCH),
    ("{{ 10 ** 100000 }}", "a number is too great"),
    ("{{ 2 ** (9 ** 99) }}", "a number is too great"),
    ("{% set ns = namespace(x=10) %}{% for i in range(99) %}{% set ns.x = ns.x * ns.x %}{% endfor %}", "too great"),
    ("{{ " + "9" * 5000 + " }}", "limit"),
    (DOUBLED.replace("PAIR", "ns.x ~ ns.x"), MUCH),
    (DOUBLED.replace("PAIR", "ns.x + ns.x"), MUCH),
    (LISTS + "{{ ns.x }}", MUCH),
    (LISTS + "{{ ns.x|tojson }}", MUCH),
    (LISTS + "{{ ns.x|string|length }}", MUCH),
    (LISTS + "{{ ns.x|join }}", MUCH),
    (LISTS + "{{ ns.x ~ '' }}", MUCH),
    (LISTS + "{{ ns.x == [1] }}", MUCH),
    (LISTS + "{{ ns.x is eq([1]) }}", MUCH),
    (BOTH + "{{ 1 != ns.x == ns.y }}", MUCH),
    (BOTH + "{% for i in [1, 2] %}{{ loop.changed(ns.x if loop.first else ns.y) }}{% endfor %}", MUCH),
    (LISTS + "{{ raise_exception(ns.x) }}", MUCH),
    (LISTS + "{{ 1 in ns.x }}", MUCH),
    (LISTS + "{{ ns.x.index(1) }}", MUCH),
    (LISTS + "{{ '%s' % ns.x }}", MUCH),
    (LISTS + "{{ ns.x|replace('a', 'b') }}", MUCH),
    (TUPLES + "{% set d = {ns.x: 1} %}", MUCH),
    (TUPLES + "{% set d = dict([(ns.x, 1)]) %}", MUCH),
    (TUPLES + "{{ messages[0][ns.x] }}", MUCH),
    (TUPLES + "{{ messages[0].get(ns.x) }}", MUCH),
    ("{% set ns = namespace(x=[]) %}{% for i in range(999) %}{% set ns.x = ns.x + ['a' * 99999] %}{% endfor %}", MUCH),
    (LONG + "{{ x.replace('', x) }}", MUCH),
    (LONG + "{{ x|replace('', x) }}", MUCH),
    (LONG + "{{ x|replace(old='', new=x) }}", MUCH),
    (LONG + "{{ x.join(x) }}", MUCH),
    (LONG + "{{ x|join(d=x) }}", MUCH),
    (LONG + "{{ '%(a)s' * 9999 % {'a': x} }}", MUCH),
    (LONG + "{{ (x * 9).split('a')|length }}", MUCH),
    ("{{ 'a'.center(10**10) }}", MUCH),
    ("{{ 'a'|center(9999999999) }}", MUCH),
    ("{{ '{:>9999999999}'.format(1) }}", "a width in a format"),
    ("{{ '{a:>99999999}'.format_map({'a': 1}) }}", "a width in a format"),
    ("{{ '%9999999999d' % 1 }}", "a width in a format"),
    ("{{ '%(a)9999999999d' % {'a': 1} }}", "a width in a format"),
    ("{{ '%(a(b)c)9999999999d' % {'a(b)c': 1} }}", "a width in a format"),
    ("{{ '%5.9999999999f' % 1.5 }}", "a width in a format"),
    ("{% set x = ('1' * 200000)|int(0, 2) %}{{ x // (x - 1) }}", "a number is too great"),
    ("{{ '%*d' % (9999999999, 1) }}", "a width in a format"),
    ("{{ messages|tojson(indent=999999999) }}", "tojson takes an indent below 100"),
    ("{{ messages|tojson(separators=('a' * 99999, 'b')) }}", "separators of at most 8 characters"),
    ("{{ strftime_now('%c' * 999) }}", "at most 100 characters"),
    ("{{ ''.__class__.__mro__ }}", "attribute '__class__' of 'str' object is unsafe"),
    ("{{ raise_exception.__globals__['sys'] }}", "attribute '__globals__' of 'function' object is unsafe"),
    ("{{ namespace(__class__=1) }}", "a namespace takes no name such as '__class__'"),
    ("{{ messages.append(1) }}", "attribute 'append' of 'list' object is unsafe"),
    ("{{ lipsum() }}", "'lipsum' is undefined"),
    ("{% include 'a' %}", "no loader"),
    ("{% import 'os' as os %}", "no loader"),
    ("{{ a.b.c }}", "'a' is undefined"),
    ("{% for %}", "line 1: Expected an expression"),
    ("a\n\n{{ 'a'|nothing }}", "line 3: No filter named 'nothing'"),
]  # fmt: skip


@pytest.mark.parametrize("message", sorted({message for _, message in HOSTILE}))
def test_hostile_templates_are_refused_in_one_line(message, monkeypatch):
    from fastattn.text import sandbox

    monkeypatch.setattr(sandbox, "ALLOWED", 1 << 20)  # the rules are the same, the tests faster
    for source in (source for source, expected in HOSTILE if expected == message):
        with pytest.raises(CheckpointError, match=re.escape(message)) as caught:
            ChatTemplate(source).render(HELLO)
        assert str(caught.value).startswith("chat template: ") and len(str(caught.value).splitlines()) == 1, source
        assert len(str(caught.value)) < 350, source


def test_what_a_template_may_take_is_bounded_by_what_goes_in():
    tracemalloc.start()
    try:
        with pytest.raises(CheckpointError, match=MUCH):
            ChatTemplate(DOUBLED.replace("PAIR", "ns.x + ns.x")).render(HELLO)
        assert tracemalloc.get_traced_memory()[1] < 1 << 26
    finally:
        tracemalloc.stop()
    content = "word " * 400_000
    assert (
        len(
            ChatTemplate("{{ messages[0].content|trim|replace('w', 'v') }}" * 6).render(
                [HELLO[0] | {"content": content}]
            )
        )
        == 6 * len(content) - 6
    )
    many = HELLO * 3000
    assert ChatTemplate("{% for m in messages %}{{ messages|length == loop.length }}{% endfor %}").render(many)


def test_the_refusal_of_a_template_is_one_line():
    with pytest.raises(InputError, match="^the chat template refuses these messages: roles must alternate$"):
        ChatTemplate(r"{{ raise_exception('roles must\nalternate') }}").render(HELLO)
    with pytest.raises(InputError, match="add_generation_prompt must be True or False, got 1"):
        ChatTemplate("").render(HELLO, add_generation_prompt=1)


def test_without_jinja2_one_line_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    monkeypatch.delitem(sys.modules, "fastattn.text.sandbox", raising=False)
    with pytest.raises(
        FastattnError, match=r"^conversations need the extra: pip install 'fastattn\[chat\]' \(.*jinja2"
    ):
        ChatTemplate("")
