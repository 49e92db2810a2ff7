"""The made-up texts of the small sites."""

from __future__ import annotations

BEGINNINGS = (
    "A patient hand", "The tide", "An honest ledger", "A small boat", "The second cast",
    "A quiet morning", "The longest line", "A borrowed net", "The weather", "A good knot",
    "The last hook", "An empty basket",
)  # fmt: skip
MIDDLES = (
    "teaches more than", "outlives", "never argues with", "is worth twice", "forgives",
    "remembers", "costs less than",
)  # fmt: skip
ENDINGS = (
    "a hurried plan", "a full harbour", "the captain's opinion", "any map",
    "the noise of the market", "a promise made at night", "yesterday's catch",
)  # fmt: skip
TAGS = ("patience", "sea", "work", "luck", "weather", "craft", "home", "silence")
PLACES = ("Varna", "Bergen", "Porto", "Kiel", "Galway", "Split", "Gdynia", "Brest", "Sozopol")

CATEGORIES = (
    ("lamps", "Lamps"),
    ("chairs", "Chairs"),
    ("kettles", "Kettles"),
    ("ropes", "Ropes & Knots"),
    ("charts", "Charts"),
)
LOOKS = ("Amber", "Cobalt", "Ivory", "Slate", "Copper", "Moss", "Coral", "Indigo")
COLOURS = ("red", "blue", "green", "black", "white")
SERIES = ("Harbour", "Lighthouse", "Anchor", "Gull", "Compass", "Keel", "Mast", "Tide", "Buoy")
REMARKS = (
    "Made by hand in a small workshop.",
    "Holds in any weather, says the weather.",
    "Comes in a box that is larger than it looks.",
    "Our oldest model, unchanged since the beginning.",
    "Quiet, sturdy and a little heavy.",
)

HEADLINES = (
    "Neue Fähre verbindet {a} und {b}",
    "{a} eröffnet Markthalle am Hafen",
    "Sturm verzögert Regatta vor {a}",
    "Fischer aus {a} finden alte Seekarte",
    "Museum in {a} zeigt Boote aus {b}",
)
PARAGRAPHS = (
    "Die Arbeiten begannen im Frühjahr und dauerten länger als geplant.",
    "Viele Besucher kamen schon am ersten Morgen.",
    "Über die Kosten wurde lange gestritten.",
    "Der Hafenmeister lobte die gute Vorbereitung.",
    "Im nächsten Jahr soll es weitergehen.",
)

LABELS = {
    "en": {
        "list": "Catalogue", "next": "Next page", "page": "Page", "price": "Price",
        "added": "Added", "code": "Code", "text": "Description", "back": "Back to the list",
    },
    "de": {
        "list": "Verzeichnis", "next": "Nächste Seite", "page": "Seite", "price": "Preis",
        "added": "Aufgenommen", "code": "Nummer", "text": "Beschreibung", "back": "Zur Liste",
    },
    "fr": {
        "list": "Répertoire", "next": "Page suivante", "page": "Page", "price": "Prix",
        "added": "Ajouté", "code": "Référence", "text": "Description", "back": "Retour à la liste",
    },
    "bg": {
        "list": "Списък", "next": "Следваща страница", "page": "Страница", "price": "Цена",
        "added": "Добавено", "code": "Номер", "text": "Описание", "back": "Към списъка",
    },
}  # fmt: skip
