"""The language of texts: named when it is clear, and null with the reason when it is not."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import version
from typing import Any

import pytest

from longline.core.errors import BadOption, MissingExtra
from longline.pipeline.enrich import Addition, Enrich, Enrichers, make_enricher
from tests.pipeline.drafts import draft

GERMAN = "Helle Zweizimmerwohnung mit Balkon, frisch renoviert, nahe am Park."
FRENCH = "Appartement lumineux avec deux chambres et un grand balcon, près du parc."
TWO_SLAVIC = "Тристаен апартамент, южно изложение"  # clear only if few are possible


def judged(text: Any, **options: Any) -> Addition:
    return make_enricher("language", {"fields": "text", **options}).enrich({"text": text})


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("en", "Bright two-bedroom flat near the park, newly renovated, with balcony and lift."),
        ("bg", "Продава двустаен апартамент в центъра на града, след основен ремонт."),
        ("de", GERMAN),
        ("es", "Piso luminoso de dos dormitorios con balcón, recién reformado, cerca del parque."),
        ("ru", "Продаётся светлая двухкомнатная квартира с балконом, после ремонта."),
    ],
)
def test_a_clear_text_gets_its_code_and_the_library_as_its_origin(code: str, text: str) -> None:
    added = judged(text)

    assert added.fields == {"language": code}
    assert added.notes == ()
    assert added.origin is not None
    assert added.origin.startswith("language")
    assert f"py3langid {version('py3langid')}" in added.origin


@pytest.mark.parametrize(
    ("text", "data"),
    [
        (None, {"0", "20"}),
        (12, {"0", "20"}),
        ("3/6, 120 m2, € 95.000", {"1", "20"}),
        ("https://homes.test/a-quiet-flat-by-the-park ann@homes.test", {"0", "20"}),
        ("Дом с садом и гаражом на тихой улице", {"bg"}),
        ("1234 abcdefg qwrtpsdf zxcvbnm hjklqw", {"language"}),
        ("呢間屋好靚，我哋好鍾意喺度住，你哋嚟睇下啦，真係好抵買㗎。", {"yue"}),
    ],
)
def test_a_text_in_doubt_is_null_with_the_reason(text: Any, data: set[str]) -> None:
    added = judged(text)

    assert added.fields == {"language": None}
    assert added.notes[0].field == "language"
    assert data <= set(re.findall(r"\w+", added.notes[0].text))


def test_a_url_does_not_decide_the_language() -> None:
    address = "https://homes.test/this-is-the-house-that-you-have-been-looking-for"

    assert judged(f"{GERMAN} {address}").fields == {"language": "de"}


def test_half_a_character_and_a_nul_are_judged_with_the_rest() -> None:
    assert judged(f"\ud83d\x00 {GERMAN}").fields == {"language": "de"}


def test_a_word_without_an_end_is_looked_through_once() -> None:
    word = "a" * 300_000  # looked through from each letter, it takes minutes

    assert judged(f"{GERMAN} ann@homes.test {word}").fields.keys() == {"language"}


def test_several_fields_are_judged_together() -> None:
    enricher = make_enricher("language", {"fields": ["title", "text", "price"], "into": "lang"})

    added = enricher.enrich({"title": "Helle Wohnung", "text": "nahe am ruhigen Park", "price": 7})

    assert added.fields == {"lang": "de"}


def test_few_languages_are_distinguished_more_reliably() -> None:
    assert judged(TWO_SLAVIC).fields == {"language": None}
    assert judged(TWO_SLAVIC, among=["bg", "de", "en"]).fields == {"language": "bg"}


def test_a_language_that_is_not_among_the_candidates_is_null() -> None:
    added = judged(FRENCH, among=["es", "en"])

    assert added.fields == {"language": None}
    (note,) = added.notes
    assert note.field == "language"
    assert {"fr", "es", "en"} <= set(re.findall(r"\w+", note.text))


def test_the_minimum_certainty_can_be_set() -> None:
    assert judged("Zimmer frei", letters=5, least=0.1).fields == {"language": "de"}
    assert judged(GERMAN, least=1.0).fields == {"language": None}


@pytest.mark.parametrize(
    ("options", "option", "datum"),
    [
        ({"fields": []}, "fields", "1"),
        ({"among": ["Bulgarian", "en"]}, "among.0", "match"),
        ({"among": ["gr", "en"]}, "among", "'gr'"),
        ({"least": 2}, "least", "1"),
    ],
)
def test_options_that_cannot_work_are_refused(
    options: dict[str, Any], option: str, datum: str
) -> None:
    with pytest.raises(BadOption) as refused:
        judged("", **options)

    assert refused.value.option == option
    assert datum in refused.value.problem


def test_a_choice_of_one_language_is_refused() -> None:
    with pytest.raises(BadOption, match="among"):
        judged("", among=["bg"])


def test_without_the_library_the_error_names_the_extra_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "py3langid", None)

    with pytest.raises(MissingExtra) as missing:
        judged(GERMAN)

    assert missing.value.extra == "language"


def test_the_library_is_loaded_only_when_used() -> None:
    program = "import sys, longline.pipeline.enrich; print({'py3langid', 'numpy'} & {*sys.modules})"

    result = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )

    assert result.stdout == "set()\n"


def test_a_manifest_enables_it_and_collected_values_stay() -> None:
    stage = Enrich.from_manifest(Enrichers.model_validate({"language": {"fields": "text"}}))

    new = stage(draft({"text": GERMAN}))
    old = stage(draft({"text": GERMAN, "language": "gsw"}, language="page"))

    assert (new.data["language"], new.provenance["language"]) == ("de", judged(GERMAN).origin)
    assert (old.data["language"], old.provenance["language"]) == ("gsw", "page")
