"""Random statements of Jinja over random expressions: values, filters and tests of these."""

import random
import re

from jinja2.sandbox import ImmutableSandboxedEnvironment

PLAIN = ImmutableSandboxedEnvironment()
VALUES = r"""
messages messages[0] messages[-1].content messages[1:] messages[::-1] none 0 3.75 -2 true nothing nothing.more 'a b-c'
' x\n' 'ÄÖ<&>' '12' '' [] [3,1,2] ['b','A','a'] {} {'k':1,'a':[2]} {'b':none} (1,2) range(4) dict(a=1) tools
'a,b,c'.split(',') 'aXbX'.replace('X','-',1) {'a':1}.items() 'abc'[1] [1,2]+[3] 'a'~1~none 7//2 7%3 2**5 -7/2 'ab'*2
1<2<3 'a'in'abc' 1if(false) [1,2]==[1,2.0] not(none) 'x'if(nothing)else'y' namespace(a=1).a ['a',1,none]
""".split()
FILTERS = r"""
abs attr('role') batch(2,'-') capitalize center(9) count default('d') default('d',true) dictsort e escape first
dictsort(false,'value') filesizeformat float float(1.5) forceescape format(1) groupby('role') indent indent(2,true)
int int(7) items join join(',') join('|','role') last length list lower map('upper') map(attribute='role') max min
max(attribute='role') pprint reject('none') rejectattr('role','eq','user') replace('a','bb') reverse round
round(1,'floor') safe select select('string') selectattr('content') selectattr('role','in',['user']) slice(2) sort
sort(true,true) string sort(attribute='role') striptags sum sum(attribute='a') title tojson tojson(indent=2)
tojson(sort_keys=true) trim trim('a') truncate(4) truncate(5,true,'…') unique upper urlencode wordcount wordwrap(2)
xmlattr map('int',default=1) map('trim') tojson(ensure_ascii=true,separators=(',',':')) map(attribute='a',default='z')
rejectattr('a') min(case_sensitive=true)
""".split()
TESTS = r"""
boolean callable defined divisibleby(2) eq(1) even false filter float ge(1) gt(0) in([1,'a']) integer iterable le(2)
lower lt(3) mapping ne('') none number odd sameas(none) sequence string test true undefined upper
""".split()
FRAMES = r"""
{{ X }}
{{ X|list }}
{{ X|tojson }}
{%- if X %} yes\n{% elif Y %}perhaps {%- else -%} no {% endif +%}
{% for i in X %}{{ loop.index }}{{ i }}{% if loop.index > 3 %}{% break %}{% endif %}{% else %}-{% endfor %}
{% for k, v in X %}\n  {{- k }}={{ v -}}\n{% endfor %}
{% for i in messages if X %}{% if loop.first %}{% continue %}{% endif %}{{ loop.revindex }}{% endfor %}
{% set x = X %}{{ x }}{% set x %}{{ Y }}{% endset %}{{ x|length }}{{ x is string }}
{% set ns = namespace(a=X, b=[]) %}{% for i in [1, 2] %}{% set ns.b = ns.b + [i] %}{% endfor %}{{ ns.a ~ ns.b }}
{% macro m(a, b=X) %}{{ a }}{{ b }}{{ varargs }}{{ kwargs }}{{ caller() if caller }}{% endmacro %}{{ m(Y, c=1) }}
{% macro m() %}<{{ caller(X) }}>{% endmacro %}{% call(a) m() %}{{ a }}{% endcall %}{{ m.name }}
{% with a = X, b = Y %}{{ a ~ b }}{% endwith %}{{ a is defined }}
{% filter upper|trim %} {{ X }} {% endfilter %}{% raw %}{{ x }}{% endraw %}{# no #}
{{ [X, Y]|map('string')|join('; ') }}{{ (X, Y)[0] }}{{ {'a': X}['a'] }}
{{ X == Y }}{{ X != Y }}{{ X and Y }}{{ X or Y }}{{ X if Y }}
{{ X < Y }}
{{ X + Y }}
{{ '%s-%r' % (X, Y) }}{{ '{} {!r:>5}'.format(X, Y) }}
""".strip().splitlines()


def statement(rng: random.Random) -> str:
    return re.sub(r"\b[XY]\b", lambda _: _expression(rng), rng.choice(FRAMES).replace("\\n", "\n"))


def _expression(rng: random.Random) -> str:
    """The first of three random expressions that jinja2 renders by itself, else the last one."""
    for _ in range(3):
        expression = rng.choice(VALUES)
        for _ in range(rng.choice((0, 0, 1, 1, 1, 2))):
            expression = f"{expression}|{rng.choice(FILTERS)}"
        expression = f"({expression} is {rng.choice(TESTS)})" if rng.random() < 0.2 else f"({expression})"
        try:
            text = PLAIN.from_string("{{ " + expression + " }}").render(messages=[{"role": "user", "content": "a"}])
        except Exception:  # noqa: BLE001 - of whatever kind
            continue
        if "object" not in text.lower():  # such a text has an address
            return expression
    return expression
