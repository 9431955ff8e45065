"""Chat templates of the forms of five families of published models, and conversations; no tests."""

from pathlib import Path

TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}

TEMPLATES = {
    path.stem: path.read_text(encoding="utf-8") for path in sorted(Path(__file__).with_name("templates").iterdir())
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
