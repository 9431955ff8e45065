"""Chat templates of the forms of five families of published models, and conversations; no tests."""

TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}

TEMPLATES = {
    "chatml": """
{%- if messages[0].role != 'system' -%}
<|im_start|>system
You answer questions.<|im_end|>
{% endif -%}
{% for message in messages %}
<|im_start|>{{ message['role'] }}
{{ message['content'] | trim if message.role == 'assistant' else message['content'] }}<|im_end|>
{% endfor %}
{% if add_generation_prompt %}
<|im_start|>assistant
{% endif %}""",
    "headers": """{{- bos_token }}
{%- set system = '' %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- endif %}
{%- if not date is defined %}{% set date = "26 Jul 2024" %}{% endif %}
{{- "<|head|>system<|tail|>\\n\\nToday: " + date + "\\n\\n" ~ system + "<|end|>" }}
{%- if tools is not none %}{{ '[TOOLS]' ~ tools|tojson(indent=4) }}{% endif %}
{%- for m in messages %}
    {{- '<|head|>' + m['role'] + '<|tail|>\\n\\n' + m['content'] | trim + '<|end|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|head|>assistant<|tail|>\\n\\n' }}{%- endif %}
""",
    "turns": """{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- set prefix = messages[0]['content'] + '\\n\\n' -%}
    {%- set rest = messages[1:] -%}
{%- else -%}
    {%- set prefix = "" -%}
    {%- set rest = messages -%}
{%- endif -%}
{%- for message in rest -%}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
        {{ raise_exception("Roles must alternate: user, model, user, model, ...") }}
    {%- endif -%}
    {%- set role = "model" if message['role'] == 'assistant' else message['role'] -%}
    {{ '<turn>' + role + '\\n' + (prefix if loop.first else "") }}
    {%- if message['content'] is string -%}
        {{ message['content'] | trim }}
    {%- elif message['content'] is iterable -%}
        {%- for item in message['content'] -%}
            {%- if item['type'] == 'text' -%}{{ item['text'] | trim }}{%- endif -%}
        {%- endfor -%}
    {%- endif -%}
    {{ '<end>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<turn>model\\n' }}{%- endif -%}
""",
    "instructions": """{%- set ns = namespace(system='', turns=0) -%}
{%- for message in messages if message.role != 'tool' -%}
  {%- if message.role == 'system' -%}
    {%- set ns.system = message.content -%}
    {%- continue -%}
  {%- endif -%}
  {%- set ns.turns = ns.turns + 1 -%}
  {%- if message.role == 'user' -%}
    {%- if loop.index == 1 or ns.turns == 1 %}{{ bos_token }}{% endif -%}
    {{ ' [INST] ' ~ (ns.system ~ '\\n\\n' if ns.system and loop.last else '') ~ message.content ~ ' [/INST]' }}
  {%- elif message.role == 'assistant' -%}
    {{ ' ' ~ message.content.split('</think>')[-1].lstrip('\\n') ~ eos_token }}
  {%- else -%}
    {{ raise_exception('Only user, assistant and system roles, got ' ~ message.role|upper) }}
  {%- endif -%}
{%- endfor -%}
""",
    "bars": """{% for message in messages %}
{% if message['role'] == 'assistant' %}
{% generation %}
{{ '<|assistant|>\\n' + message['content'] + eos_token }}
{% endgeneration %}
{% elif message['role'] in ['user', 'system'] %}
{{ '<|%s|>\\n' % message['role'] + message['content'] | replace('<', '&lt;') + eos_token }}
{% else %}
{{ {'unknown role': message.role, 'of': messages | map(attribute='role') | join(', ')} | tojson }}
{% endif %}
{% if loop.last and add_generation_prompt %}
{{ '<|assistant|>' }}
{% endif %}
{% endfor %}""",
}


def _turns(*contents, system=None):
    roles = ("user", "assistant")
    begun = [] if system is None else [{"role": "system", "content": system}]
    return begun + [{"role": roles[i % 2], "content": content} for i, content in enumerate(contents)]


CONVERSATIONS = [
    _turns("Hello"),
    _turns("Hello", system="You are brief."),
    _turns("Hello", "Hi!", "How are you?"),
    _turns("Hello", "Hi!", "How are you?", "Well.", "And now?", system="Be kind."),
    _turns("", system=""),
    _turns("", "", ""),
    _turns("Trailing spaces   ", "   leading and trailing \n", "\ttabs\t"),
    _turns("line\n\nline\r\nline\n"),
    _turns("你好，世界", "こんにちは", "Привет 👋🏽", system="Réponds en français."),
    _turns("مرحبا", system="שלום"),
    _turns("<b>not markup</b> & \"quotes\" 'single'"),
    _turns("{{ not a variable }} {% not a tag %} {# not a comment #}"),
    _turns("a<|im_end|>b</s>[/INST]<end>"),
    _turns("Think", "<think>\nlong\n</think>\n\nShort.", "Again"),
    _turns("Hello", "An answer that is last."),
    [{"role": "assistant", "content": "I begin."}, {"role": "user", "content": "Fine."}],
    [{"role": "user", "content": "One"}, {"role": "user", "content": "Two"}],
    [{"role": "user", "content": "Call"}, {"role": "tool", "content": "42"}, {"role": "user", "content": "And?"}],
    [{"role": "critic", "content": "Unknown role"}],
    _turns("e\u0301 \u00e9 \u200b zero width \ufeff", "\x0b\x0c", "x" * 300),
]  # fmt: skip
