"""Conversations by chat templates: the text that transformers' apply_chat_template makes, or that both refuse."""

import random
import re
from pathlib import Path
from typing import Any

import transformers
from tokenizers import Tokenizer, models

from bench.differences import Case
from fastattn.errors import FastattnError
from fastattn.text.chat import ChatTemplate

TEMPLATES = {path.stem: path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("templates/*.jinja")}
TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
TEXTS = ["Hello", "", "  two words \n", "<think>\nlong\n</think>\n\nShort.", "a<|im_end|>b</s>", "é ü 你好 👋🏽", "{{ a }} {% b %}"]
TEXTS += ["'single' & \"double\" <b>", "line\r\nline\n\n", "<tool_response>4</tool_response>", "/no_think Why?", "None", "0"]
PARTS: list[Any] = [{"type": "text", "text": " a "}, {"type": "image"}, {"type": "video", "video": "v.mp4"}, {"text": "b"}]
PARTS += [{"type": "image_url", "image_url": {"url": "http://a/b.png"}}, {"type": "text", "text": "<é>"}]
NUMBER, TEXT = {"type": "integer", "default": 3}, {"type": "string", "description": "Where, é", "enum": ["a", "b"]}
LISTS = {"type": "array", "items": {"type": ["string", "null"]}}
FIELDS = {"n": NUMBER, "place": TEXT, "all": LISTS, "more": {"type": "object", "properties": {"x": NUMBER}, "required": ["x"]}}
FIND = {"name": "find", "description": "Finds <it>", "parameters": {"type": "object", "properties": FIELDS, "required": ["n"]}}
TOOLS = [{"type": "function", "function": one} for one in (FIND, {"name": "now", "description": "", "return": None})]
ARGUMENTS: list[Any] = [{}, {"n": 1, "place": "é<", "all": [None, True, 1.5e-7]}, '{"n": 1}']
SETTINGS: dict[str, list[Any]] = {
    "turns": [1, 2, 4, 7],
    "system": ["", "Be brief.", "  two\n\nlines é /no_think "],
    "roles": [["user"], ["assistant", "user"], ["user", "tool", "assistant"], ["critic", "user"]],
    "parts": ["user", "all"],
    "calls": [1, 2],
    # Of a user or a tool fastattn asks for a content, before a template sees it.
    "null": ["content", "name", "tool_calls", "reasoning_content", "no content"],
    "thinking": ["reasoning_content", "thinking", "reasoning"],
    "tools": [TOOLS, TOOLS[:1], []],
    "documents": [[{"title": "A", "text": "a"}, {"title": "A", "id": 3}], []],
    "variables": [{"enable_thinking": False}, {"enable_thinking": True, "add_vision_id": True}, {"date_string": "1 May"}]
    + [{"custom_tools": TOOLS, "tools_in_user_message": False}, {"reasoning_effort": "high"}, {"bos_token": "<b>"}],
    "prompt": [False],
}
VALUES = """messages messages[0] messages[-1].content messages[1:] messages[::-1] none 0 3.75 -2 true nothing nothing.more
'a b-c' ' x\\n' 'ÄÖ<&>' '12' '' [] [3,1,2] ['b','A','a'] {} {'k':1,'a':[2]} {'b':none} (1,2) range(4) dict(a=1) tools
'a,b,c'.split(',') 'aXbX'.replace('X','-',1) {'a':1}.items() 'abc'[1] [1,2]+[3] 'a'~1~none 7//2 7%3 2**5 -7/2 'ab'*2
1<2<3 'a'in'abc' 1if(false) [1,2]==[1,2.0] not(none) 'x'if(nothing)else'y' namespace(a=1).a ['a',1,none]""".split()
FILTERS = """abs attr('role') batch(2,'-') capitalize center(9) count default('d') default('d',true) dictsort e escape first
dictsort(false,'value') filesizeformat float float(1.5) forceescape format(1) groupby('role') indent indent(2,true) int
int(7) items join join(',') join('|','role') last length list lower map('upper') map(attribute='role') max min
max(attribute='role') pprint reject('none') rejectattr('role','eq','user') replace('a','bb') reverse round round(1,'floor')
safe select select('string') selectattr('content') selectattr('role','in',['user']) slice(2) sort sort(true,true) string
sort(attribute='role') striptags sum sum(attribute='a') title tojson tojson(indent=2) tojson(sort_keys=true) trim trim('a')
truncate(4) truncate(5,true,'…') unique upper urlencode wordcount wordwrap(2) xmlattr map('int',default=1) map('trim')
tojson(ensure_ascii=true,separators=(',',':')) map(attribute='a',default='z') rejectattr('a') min(case_sensitive=true)""".split()
TESTS = """boolean callable defined divisibleby(2) eq(1) even false filter float ge(1) gt(0) in([1,'a']) integer iterable
le(2) lower lt(3) mapping ne('') none number odd sameas(none) sequence string test true undefined upper""".split()
FRAMES = [
    "{{ X }}",
    "{{ X|list }}",
    "{{ X|tojson }}",
    "{%- if X %} yes\n{% elif Y %}perhaps {%- else -%} no {% endif +%}",
    "{% for i in X %}{{ loop.index ~ loop.last }}{{ i }}{% if loop.index > 3 %}{% break %}{% endif %}{% else %}-{% endfor %}",
    "{% for k, v in X %}\n  {{- k }}={{ v -}}\n{% endfor %}",
    "{% for i in messages if X %}{% if loop.first %}{% continue %}{% endif %}{{ loop.revindex }}{{ i.role }}{% endfor %}",
    "{% set x = X %}{{ x }}{% set x %}{{ Y }}{% endset %}{{ x|length }}{{ x is string }}",
    "{% set ns = namespace(a=X, b=[]) %}{% for i in [1, 2] %}{% set ns.b = ns.b + [i] %}{% endfor %}{{ ns.a }}{{ ns.b }}",
    "{% macro m(a, b=X) %}{{ a }}{{ b }}{{ varargs }}{{ kwargs }}{{ caller() if caller }}{% endmacro %}{{ m(Y, c=1) }}",
    "{% macro m() %}<{{ caller(X) }}>{% endmacro %}{% call(a) m() %}{{ a }}{% endcall %}{{ m.name }}",
    "{% with a = X, b = Y %}{{ a ~ b }}{% endwith %}{{ a is defined }}",
    "{% filter upper|trim %} {{ X }} {% endfilter %}{% raw %}{{ x }}{% endraw %}{# no #}",
    "{{ [X, Y]|map('string')|join('; ') }}{{ (X, Y)[0] }}{{ {'a': X}['a'] }}",
    "{{ X == Y }}{{ X != Y }}{{ X and Y }}{{ X or Y }}{{ X if Y }}",
    "{{ X < Y }}",
    "{{ X + Y }}",
    "{{ '%s-%r' % (X, Y) }}{{ '{} {!r:>5}'.format(X, Y) }}",
]
CHOICES: dict[str, dict[str, list[Any]]] = {name: SETTINGS for name in TEMPLATES}
CHOICES |= {f"snippets {name}": {"first": [True], "second": [True], "third": [True]} for name in TEMPLATES}  # as many
ADDRESS = re.compile(" at 0x[0-9a-f]+|0x[0-9a-f]{6,}", re.IGNORECASE)


def compare(case: Case, folder: Path) -> str:
    rng, chosen = random.Random(case.seed), case.chosen
    source, messages = TEMPLATES.get(case.base) or _snippets(case), _messages(rng, chosen)
    given = {"tools": chosen.get("tools"), "documents": chosen.get("documents"), **chosen.get("variables", {})}
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel({"a": 0})), **TOKENS)
    options = {"add_generation_prompt": chosen.get("prompt", True)} | given
    try:
        expected = tokenizer.apply_chat_template(messages, chat_template=source, tokenize=False, **options)
    except Exception as error:  # noqa: BLE001 - of whatever kind: it is theirs
        expected, refusal = None, f"{type(error).__name__}: {error}"
    try:
        ours = ChatTemplate(source, TOKENS).render(messages, **options)
    except FastattnError as error:
        ours, refusal = None, str(error)
    # Both leave nulls out; fastattn gives a template that fails without it a content that is null.
    if expected is None and ours is not None and any(one.get("content", "") is None for one in messages):
        return ""
    shown = messages if case.base in TEMPLATES else source
    if None in (ours, expected):
        return "" if ours == expected else f"{shown}: {ours!r}, theirs {expected!r}, {refusal}"
    same = ADDRESS.sub("", ours) == ADDRESS.sub("", expected)
    return "" if same else f"{shown}: {ours!r}, theirs {expected!r}"


def _snippets(case: Case) -> str:
    """A statement of random expressions for each choice, and one where there is none."""

    def expression(rng: random.Random) -> str:
        made = rng.choice(VALUES)
        for _ in range(rng.choice((0, 1, 1, 2, 3))):
            made = f"{made}|{rng.choice(FILTERS)}"
        return f"({made} is {rng.choice(TESTS)})" if rng.random() < 0.2 else f"({made})"

    rngs = [random.Random(f"{case.seed} {name}") for name in case.chosen or ("first",)]
    return "\n".join(re.sub(r"\b[XY]\b", lambda _: expression(rng), rng.choice(FRAMES)) for rng in rngs)


def _messages(rng: random.Random, chosen: Any) -> list[dict[str, Any]]:
    roles = chosen.get("roles", ["user", "assistant"])
    messages: list[dict[str, Any]] = [{"role": "system", "content": chosen["system"]}] if "system" in chosen else []
    for i in range(chosen.get("turns", 3)):
        message = {"role": roles[i % len(roles)], "content": rng.choice(TEXTS)}
        is_answer = message["role"] == "assistant"
        if chosen.get("parts") in (message["role"], "all"):
            message["content"] = rng.sample(PARTS, rng.randint(0, 3))
        if message["role"] == "tool":
            message |= {"tool_call_id": "abcdef120", "name": "find"}
        if is_answer and "thinking" in chosen and rng.random() < 0.7:
            message[chosen["thinking"]] = rng.choice(TEXTS)
        if is_answer and "calls" in chosen and rng.random() < 0.7:
            made = [{"name": rng.choice(["find", "now"]), "arguments": rng.choice(ARGUMENTS)} for _ in range(chosen["calls"])]
            message["tool_calls"] = [{"id": f"abcdef12{n}", "type": "function", "function": one} for n, one in enumerate(made)]
        if is_answer and chosen.get("null") == "no content" and "tool_calls" in message:
            del message["content"]
        elif is_answer and chosen.get("null", "no content") != "no content":
            message[chosen["null"]] = None
        messages.append(message)
    return messages
