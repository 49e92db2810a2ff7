"""The language of texts: named when it is clear, and null with the reason when it is not."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from typing import Any

import pytest

from longline.config.manifests.pipeline import Enrichers
from longline.errors import BadOption, MissingExtra
from longline.model import Note
from longline.pipeline.enrich import Enrich
from longline.pipeline.enrichers.base import Addition
from longline.pipeline.enrichers.language import LanguageEnricher
from pipeline.drafts import draft

GERMAN = "Helle Zweizimmerwohnung mit Balkon, frisch renoviert, nahe am Park."
FRENCH = "Appartement lumineux avec deux chambres et un grand balcon, près du parc."
TWO_SLAVIC = "Тристаен апартамент, южно изложение"  # clear only if few are possible
ORIGIN = f"language, machine-made of text by py3langid {version('py3langid')}"


def judged(text: Any, **options: Any) -> Addition:
    return LanguageEnricher.with_options(**{"fields": "text", **options}).enrich({"text": text})


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
def test_a_clear_text_is_given_its_code_and_whoever_said_so(code: str, text: str) -> None:
    added = judged(text)

    assert added.fields == {"language": code}
    assert (added.notes, added.origin) == ((), ORIGIN)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (None, "too little text: 0 of at least 20 letters"),
        (12, "too little text: 0 of"),
        ("3/6, 120 m2, € 95.000", "too little text: 1 of"),
        ("https://homes.test/a-quiet-flat-by-the-park ann@homes.test", "too little text: 0 of"),
        ("Дом с садом и гаражом на тихой улице", "no language is clear: bg is likeliest, 0."),
        ("1234 abcdefg qwrtpsdf zxcvbnm hjklqw", "it looks like no language at all"),
        (
            "呢間屋好靚，我哋好鍾意喺度住，你哋嚟睇下啦，真係好抵買㗎。",
            "it looks like yue, which has",
        ),
    ],
)
def test_a_text_in_doubt_is_null_with_the_reason(text: Any, why: str) -> None:
    added = judged(text)

    assert added.fields == {"language": None}
    assert added.notes[0].field == "language"
    assert why in added.notes[0].text


def test_an_address_does_not_speak_for_its_text() -> None:
    address = "https://homes.test/this-is-the-house-that-you-have-been-looking-for"

    assert judged(f"{GERMAN} {address}").fields == {"language": "de"}


def test_half_a_character_and_a_nul_are_judged_with_the_rest() -> None:
    assert judged(f"\ud83d\x00 {GERMAN}").fields == {"language": "de"}


def test_a_word_without_an_end_is_looked_through_once() -> None:
    word = "a" * 300_000  # looked through from each letter, it takes minutes

    assert judged(f"{GERMAN} ann@homes.test {word}").fields.keys() == {"language"}


def test_several_fields_are_judged_together() -> None:
    enricher = LanguageEnricher.with_options(fields=["title", "text", "price"], into="lang")

    added = enricher.enrich({"title": "Helle Wohnung", "text": "nahe am ruhigen Park", "price": 7})

    assert added.fields == {"lang": "de"}


def test_few_languages_are_told_apart_more_surely() -> None:
    assert judged(TWO_SLAVIC).fields == {"language": None}
    assert judged(TWO_SLAVIC, among=["bg", "de", "en"]).fields == {"language": "bg"}


def test_a_language_that_was_not_named_is_not_bent_into_one() -> None:
    added = judged(FRENCH, among=["es", "en"])

    assert added.fields == {"language": None}
    assert added.notes == (Note("language", "it looks like fr, which is not among es, en"),)


def test_a_user_says_how_sure_is_sure_enough() -> None:
    assert judged("Zimmer frei", letters=5, least=0.1).fields == {"language": "de"}
    assert judged(GERMAN, least=1.0).fields == {"language": None}


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"fields": []}, "at least 1 item"),
        ({"among": ["bg"]}, "at least two languages"),
        ({"among": ["Bulgarian", "en"]}, "match"),
        ({"among": ["gr", "en"]}, "py3langid knows no language 'gr'"),
        ({"least": 2}, "less than or equal to 1"),
    ],
)
def test_options_that_cannot_work_are_told(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(BadOption, match=problem):
        judged("", **options)


def test_without_the_library_the_command_that_mends_it_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "py3langid", None)

    with pytest.raises(MissingExtra, match=r"pip install 'longline\[language\]'"):
        judged(GERMAN)


def test_nobody_loads_the_library_who_does_not_ask_for_it() -> None:
    program = "import sys, longline.pipeline.enrich; print({'py3langid', 'numpy'} & {*sys.modules})"

    told = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )

    assert told.stdout == "set()\n"


def test_a_manifest_names_it_and_what_the_site_said_stays() -> None:
    stage = Enrich.from_written(Enrichers.model_validate({"language": {"fields": "text"}}))

    new = stage(draft({"text": GERMAN}))
    old = stage(draft({"text": GERMAN, "language": "gsw"}, language="page"))

    assert (new.data["language"], new.provenance["language"]) == ("de", ORIGIN)
    assert (old.data["language"], old.provenance["language"]) == ("gsw", "page")
