"""messages= in the place of prompts: the template's prompt, whose special tokens are not doubled."""

from dataclasses import replace

import pytest

from fastattn.errors import InputError
from fastattn.generation.generator import Generator
from tests.generation.language_models import checkpoint

pytest.importorskip("jinja2")
TEMPLATE = "{{ bos_token }}{% for m in messages %}{{ m.role[0] }}: {{ m.content }}\n{% endfor %}{{ shown }}a:"
HELLO = [{"role": "user", "content": "the end"}]
OTHER = [{"role": "system", "content": "an end"}, *HELLO]


@pytest.fixture(scope="module")
def generator():
    made = checkpoint()
    text = replace(made.text, chat_template=TEMPLATE, special_tokens={"bos_token": "<s>"})
    return Generator.from_checkpoint(replace(made, input=text))


def test_a_conversation_is_the_prompt_that_its_template_makes(generator):
    prompts = ["u: the end\na:", "s: an end\nu: the end\na:"]
    alone = generator.generate(prompts, max_new_tokens=8)  # the tokenizer begins them with <s>
    assert generator.generate(messages=[HELLO, OTHER], max_new_tokens=8) == alone
    assert generator.generate(messages=HELLO, max_new_tokens=8) == alone[0]
    assert generator.submit(messages=OTHER, max_new_tokens=8).result() == alone[1]
    assert "".join(generator.stream(messages=HELLO, max_new_tokens=8)) == alone[0]
    found = generator.generate(messages=HELLO, max_new_tokens=8, details=True)
    assert found.prompt_length == generator.generate(prompts[0], max_new_tokens=8, details=True).prompt_length


def test_variables_reach_the_template(generator):
    shown = generator.generate(messages=HELLO, template_variables={"shown": "an "}, max_new_tokens=8)
    assert shown == generator.generate("u: the end\nan a:", max_new_tokens=8)


def test_wrong_calls_are_refused(generator):
    for arguments, message in [
        ({}, "give either prompts or messages"),
        ({"prompts": "a", "messages": HELLO}, "give either prompts or messages"),
        ({"prompts": "a", "template_variables": {}}, "template_variables need messages"),
        ({"messages": HELLO, "template_variables": 3}, "template_variables should be a dict, got int"),
        ({"messages": []}, "messages should hold at least one message"),
        ({"messages": [3]}, 'messages should hold {"role": ..., "content": ...}, number 0 is 3'),
    ]:
        with pytest.raises(InputError) as caught:
            generator.generate(**arguments)
        assert str(caught.value) == message


def test_a_checkpoint_without_a_template_takes_no_messages():
    with pytest.raises(InputError, match="the checkpoint has no chat template: give prompts, not messages"):
        Generator.from_checkpoint(checkpoint()).generate(messages=HELLO)


def test_special_tokens_that_are_asked_for_are_added(generator):
    once = generator.generate(messages=HELLO, max_new_tokens=1, details=True).prompt_length
    twice = generator.generate(messages=HELLO, max_new_tokens=1, details=True, special_tokens=True).prompt_length
    assert twice == once + 1


def test_conversations_are_read_one_after_another(generator):
    alone = [generator.generate(messages=each, max_new_tokens=8) for each in (HELLO, OTHER)]
    assert list(generator.generate_iter(messages=iter([HELLO, OTHER]), max_new_tokens=8)) == alone
    bad = generator.generate_iter(messages=[HELLO, 5], max_new_tokens=8, return_exceptions=True)
    assert next(bad) == alone[0] and isinstance(next(bad), InputError)
    with pytest.raises(InputError, match="give either prompts or messages"):
        generator.generate_iter(["a"], messages=[HELLO])
