"""What each layer and head of a decoder looks at, and the pictures of it."""

import json
import re
from html import unescape

import numpy as np
import pytest

from fastattn import Translator
from fastattn.errors import InputError
from tests.cli.commands import run
from tests.serve.test_page import browser

TEXT = "My brother bought a new car."


@pytest.fixture(scope="module")
def translator(pulled):
    with Translator(pulled("en-pt"), "float32", threads=1, processes=1) as made:
        yield made


def test_they_are_the_attention_that_a_translation_returns(translator):
    """The model aligns by the first head of its last layer."""
    answer = translator.translate(TEXT, details=True, return_attention=True, beam_size=1)
    (part,) = answer.parts
    looks = translator.looks(TEXT, answer.text)
    layers, heads, T, S = looks.weights_LHTS.shape
    assert (T, S) == (len(part.tokens) + 1, len(part.source) + 1) and min(layers, heads) > 1
    assert looks.target == [*part.tokens, "</s>"] and looks.source == [*part.source, "</s>"]
    np.testing.assert_allclose(looks.weights_LHTS[-1, 0, :-1, :-1], part.attention[0], atol=2e-5)
    np.testing.assert_allclose(looks.weights_LHTS.sum(axis=-1), 1, atol=1e-5)


def test_a_page_has_each_layer_and_head(translator):
    looks = translator.looks(TEXT, "Meu irm\u00e3o comprou um carro novo.")
    page = looks.plot().html
    layers, heads, T, S = looks.weights_LHTS.shape
    names = re.findall("<option>(.*?)</option>", page)
    assert names[0].startswith("mean of") and names[1:] == [
        f"layer {n}, head {h}" for n in range(layers) for h in range(heads)
    ]
    rows = json.loads(unescape(re.search('data-rows="([^"]*)"', page)[1]))
    assert rows == looks.target and "http" not in re.sub('xmlns="[^"]*"', "", page)


def test_lines_for_a_terminal(translator):
    looks = translator.looks("My car.", "Meu carro.")
    lines = looks.plot().to_text(0).split("\n")
    assert len(lines) == 1 + len(looks.target) + 1 + len(looks.source) and lines[-len(looks.source)] == "   0 \u2581My"
    assert all(line.strip().startswith(token) for line, token in zip(lines[1:], looks.target))


def test_what_cannot_be_looked_at(translator, pulled):
    for source, target in (("", "a"), ("a", "")):
        with pytest.raises(InputError, match="neither of them empty"):
            translator.looks(source, target)


def test_the_command_line(pulled, tmp_path):
    arguments = ("translate", "-m", str(pulled("en-pt")), "--show-attention")
    done = run(*arguments, str(tmp_path / "a.html"), TEXT)
    assert done.exit_code == 0 and "layer 0, head 1" in (tmp_path / "a.html").read_text(encoding="utf-8")
    assert run(*arguments, str(tmp_path / "a.svg"), TEXT).exit_code == 0
    assert (tmp_path / "a.svg").read_text(encoding="utf-8").startswith("<svg")
    shown = run(*arguments, "-", TEXT).stdout
    assert shown.startswith("Meu irm\u00e3o comprou um carro novo.\n") and "\u2588" in shown


@pytest.mark.parametrize(
    "arguments, message",
    [
        (("a.png", TEXT), "wants a name that ends in .html or .svg"),
        (("a.html", TEXT, "b"), "is for one TEXT and one model"),
        (("a.html", "--keep", "x", TEXT), "is for one TEXT and one model"),
        (("no/a.html", TEXT), "the folder no does not exist"),
    ],
)
def test_what_is_wrong(pulled, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    done = run("translate", "-m", str(pulled("en-pt")), "--show-attention", *arguments)
    assert done.exit_code == 2 and message in done.stderr and "Traceback" not in done.stderr


@pytest.mark.slow
def test_the_page_in_a_browser(translator, tmp_path):
    """Each cell tells its weight, of the head that was picked; no error, nothing from elsewhere."""
    looks = translator.looks(TEXT, "Meu irm\u00e3o comprou um carro novo.")
    looks.plot().save(tmp_path / "a.html")
    with browser(900) as driver:
        from selenium.webdriver.common.keys import Keys
        from selenium.webdriver.support.ui import Select

        driver.get((tmp_path / "a.html").as_uri())
        canvas, output = (driver.find_element("css selector", name) for name in ("canvas", "output"))
        picker = Select(driver.find_element("css selector", "select"))
        layers, heads, T, S = looks.weights_LHTS.shape
        assert len(picker.options) == 1 + layers * heads
        for layer, head in ((0, 0), (layers - 1, heads - 1)):
            picker.select_by_visible_text(f"layer {layer}, head {head}")
            canvas.send_keys(*[Keys.ARROW_UP] * (T + 1), *[Keys.ARROW_LEFT] * (S + 1))
            for t in range(T):
                for s in range(S):
                    told = re.match(r"(\S+) \(row .(.*)., column .(.*).\)", output.text)
                    assert (told[2], told[3]) == (looks.target[t], looks.source[s])
                    assert abs(float(told[1]) - looks.weights_LHTS[layer, head, t, s]) < 1e-3
                    canvas.send_keys(Keys.ARROW_RIGHT)
                canvas.send_keys(Keys.ARROW_DOWN, *[Keys.ARROW_LEFT] * S)
        requests = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
        addresses = {
            one["params"]["request"]["url"] for one in requests if one["method"] == "Network.requestWillBeSent"
        }
        assert addresses == {(tmp_path / "a.html").as_uri()} and driver.get_log("browser") == []
