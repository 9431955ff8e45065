"""Terms come out as asked, what is to be kept is, and the rest is what it was."""

import pytest

from fastattn import FastattnError, Translator
from fastattn.errors import InputError
from fastattn.translation.glossary import GlossaryTranslator
from tests.cli.commands import run

TEXTS = [
    "The government bought a new car.",
    "Good morning.",
    "The car is red. My friend saw the car in the city, near the river.",
    "",
    "Cars are not a car's friends.",
]


@pytest.fixture(scope="module")
def translator(pulled):
    with Translator(pulled("en-pt"), threads=2, processes=1) as made:
        yield made


def test_terms_come_out(translator):
    found = translator.with_glossary({"car": "viatura", "government": "estado"}).translate(TEXTS)
    plain = translator.translate(TEXTS)
    assert "viatura" in found[0] and "estado" in found[0].lower()
    assert found[2].lower().count("viatura") == 2 and "rio" in found[2] and "amigo" in found[2]
    assert found[1] == plain[1] and found[3] == "" and "viatura" in found[4]
    assert all("viatura" not in text for text in plain)


def test_terms_are_words(translator):
    glossed = translator.with_glossary({"car": "viatura", "WHO": "OMS"})
    for text in ("The carpet is old.", "Who is there?"):
        assert glossed.translate(text) == translator.translate(text)
    assert (
        "OMS" in glossed.translate("The WHO met in the city.")
        and "viatura" in glossed.translate("THE CAR IS RED.").lower()
    )


def test_what_is_kept(translator):
    found = translator.with_glossary(keep=[r"Acme \w+", r"\d+-\d+", "\U0001f600"]).translate(
        ["We buy Acme Turbo for 10-12 people \U0001f600.", "Good morning."]
    )
    assert "Acme Turbo" in found[0] and "10-12" in found[0] and "\U0001f600" in found[0]
    assert found[1] == translator.translate("Good morning.")


def test_details_and_lines(translator):
    glossed = translator.with_glossary({"car": "viatura"})
    answer = glossed.translate("The car is red.\n\n  My car.\n", details=True)
    lines = answer.text.split("\n")
    assert len(lines) == 4 and lines[1] == "" and lines[2].startswith("  ") and answer.text.count("iatura") == 2
    assert answer.hypotheses == [answer.text] and len(answer.scores) == 1 and len(answer.parts) == 2


def test_many_texts_keep_their_order(translator):
    texts = [f"The car has {n} doors." if n % 3 else f"There are {n} of them." for n in range(21, 91)]
    glossed = translator.with_glossary({"car": "viatura"})
    found = glossed.translate(texts)
    assert found[::9] == [glossed.translate(text) for text in texts[::9]]
    assert all(("viatura" in text.lower()) == bool(n % 3) for n, text in enumerate(found, 21))


def test_a_chain(pulled, translator):
    with Translator(pulled("pt-en"), threads=2, processes=1) as first:
        chain = Translator.chain(first, translator)
        glossed = GlossaryTranslator(chain, {"carro": "viatura"}).translate("O carro \u00e9 novo.")
        assert "viatura" in glossed.lower()


def test_what_is_no_glossary(translator):
    for options, message in [
        ({"glossary": {"": "a"}}, "should not be empty"),
        ({"glossary": {"a": " "}}, "should not be empty"),
        ({"glossary": {"a": 1}}, "a term's translation must be a str, got int"),
        ({"keep": ["("]}, "should be a regular expression"),
    ]:
        with pytest.raises(InputError, match=message):
            translator.with_glossary(**options)


def test_what_cannot_be_combined(translator):
    glossed = translator.with_glossary({"car": "viatura"})
    for name, value in (("target_prefix", "O"), ("num_hypotheses", 2)):
        with pytest.raises(InputError, match=f"^{name} cannot be combined with a glossary$"):
            glossed.translate("The car.", details=True, **{name: value})
    with pytest.raises(FastattnError):
        glossed.translate(["The car.", 3])
    found = list(glossed.translate_iter(["The car.", "\ud800", "Hi."], return_exceptions=True))
    assert isinstance(found[1], FastattnError) and isinstance(found[2], str)


def test_files_from_the_command_line(pulled, tmp_path):
    (tmp_path / "terms.tsv").write_text("# terms\n\ncar\tviatura\n", encoding="utf-8")
    arguments = ("translate", "-m", str(pulled("en-pt")), "--glossary", str(tmp_path / "terms.tsv"), "--keep", "Acme")
    done = run(*arguments, "The car is from Acme.")
    assert done.exit_code == 0 and "viatura" in done.stdout.lower() and "Acme" in done.stdout
    (tmp_path / "page.html").write_text("<p>The <b>car</b> is red.</p>")
    done = run(*arguments, "-i", str(tmp_path / "page.html"))
    assert "<b>viatura</b>" in done.stdout.lower()
