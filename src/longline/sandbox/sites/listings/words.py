"""The texts of the practice listings: places, building types, descriptions."""
# ruff: noqa: RUF001  # much of it is Bulgarian

from __future__ import annotations

CITIES: dict[str, tuple[str, ...]] = {
    "София": (
        "ж.к. Младост 1", "ж.к. Младост 2", "ж.к. Люлин 5", "ж.к. Дружба 1", "ж.к. Надежда 2",
        "Студентски град", "кв. Лозенец", "кв. Изток", "кв. Стрелбище", "кв. Симеоново",
        "кв. Кръстова вада", "Център", "с. Бистрица", "с. Панчарево",
    ),
    "Пловдив": (
        "ж.к. Тракия", "кв. Кючук Париж", "кв. Кършияка", "Център", "кв. Смирненски",
        "кв. Въстанически", "кв. Каменица 1", "кв. Каменица 2", "Старият град", "кв. Прослав",
        "с. Марково", "с. Белащица",
    ),
    "Варна": (
        "ж.к. Младост 1", "кв. Чайка", "кв. Левски", "Център", "кв. Аспарухово", "кв. Виница",
        "ж.к. Владиславово", "м. Евксиноград", "Гръцка махала", "кв. Изгрев", "Свети Никола",
        "кв. Галата",
    ),
    "Бургас": (
        "ж.к. Меден рудник", "ж.к. Славейков", "ж.к. Изгрев", "кв. Сарафово", "Център",
        "ж.к. Лазур", "кв. Ветрен", "ж.к. Възраждане", "м. Отманли", "кв. Крайморие",
        "ж.к. Зорница", "кв. Победа",
    ),
    "Русе": (
        "ж.к. Дружба 1", "ж.к. Дружба 2", "ж.к. Здравец", "ж.к. Възраждане", "Център",
        "кв. Средна кула", "кв. Долапите", "ж.к. Чародейка", "м. Левента", "Широк център",
        "кв. Изток", "Селеметя",
    ),
}  # fmt: skip
"""Cities and their neighbourhoods; some names occur in several cities, some begin like a prefix."""

PREFIXES = ("ж.к. ", "кв. ", "с. ", "м. ")
PRICES = {"София": 2300, "Пловдив": 1500, "Варна": 1750, "Бургас": 1450, "Русе": 1050}
"""Approximate euros per square metre."""

BUILDING_TYPES = ("brick", "panel", "epk", "new")
BUILDINGS = {
    "bg": {"brick": "Тухла", "panel": "Панел", "epk": "ЕПК", "new": "Ново строителство"},
    "en": {
        "brick": "Brick", "panel": "Prefabricated panels", "epk": "Reinforced concrete",
        "new": "New build",
    },
    "de": {"brick": "Ziegel", "panel": "Plattenbau", "epk": "Stahlbeton", "new": "Neubau"},
}  # fmt: skip
ROOMS = {
    "bg": ("Едностаен", "Двустаен", "Тристаен", "Четиристаен", "Петстаен"),
    "en": ("One-room", "Two-room", "Three-room", "Four-room", "Five-room"),
    "de": ("1-Zimmer", "2-Zimmer", "3-Zimmer", "4-Zimmer", "5-Zimmer"),
}
TITLES = {
    "bg": ("Продава {0} апартамент", "Продава апартамент", "{0}, {1}"),
    "en": ("{0} flat", "Flat", "{0} in {1}"),
    "de": ("{0}-Wohnung", "Wohnung", "{0} in {1}"),
}
"""With the rooms, without them, and with the neighbourhood behind either."""
OFFERS = {"bg": "Продава имот", "en": "Property for sale", "de": "Immobilie zu verkaufen"}
"""The title of ads with almost no facts."""

AGENCIES = {
    "bg": ("Имоти Котва", "Дом и Пристан", "Явор Имоти", "Златна Къща", "Агенция Фар", "Покрив 7"),
    "en": ("Anchor Homes", "Lighthouse Estates", "Black Sea Keys", "Yavor & Sons", "Roof Seven"),
    "de": ("Ankerhaus Immobilien", "Leuchtturm Wohnen", "Südost Makler", "Goldenes Dach GmbH"),
}
OPENINGS = {
    "bg": ("Светъл апартамент с изглед", "Просторно жилище с балкон", "Тих дом близо до парк",
           "Апартамент след основен ремонт", "Жилище за ценители"),
    "en": ("A bright flat with a view", "A spacious home with a balcony", "A quiet home by a park",
           "A fully renovated flat", "A home with character"),
    "de": ("Helle Wohnung mit Aussicht", "Geräumige Wohnung mit Balkon", "Ruhig und nah am Park",
           "Frisch sanierte Wohnung", "Wohnung mit Charakter"),
}  # fmt: skip
MIDDLES = {
    "bg": ("две тераси и мазе", "южно изложение", "гараж срещу доплащане", "нова дограма",
           "отопление на ток", "асансьор и контрол на достъпа"),
    "en": ("two terraces and a cellar", "facing south", "a garage at extra cost", "new windows",
           "electric heating", "a lift and a guarded entrance"),
    "de": ("zwei Terrassen und Keller", "Südlage", "Garage gegen Aufpreis", "neue Fenster",
           "Elektroheizung", "Aufzug und Gegensprechanlage"),
}  # fmt: skip
CLOSINGS = {
    "bg": ("Огледи по всяко време.", "Без комисиона от купувача.", "Готов за нанасяне.",
           "Цената подлежи на коментар."),
    "en": ("Viewings at any time.", "No fee for the buyer.", "Ready to move in.",
           "The price is open to offers."),
    "de": ("Besichtigung jederzeit.", "Provisionsfrei.", "Sofort bezugsfertig.",
           "Preis verhandelbar."),
}  # fmt: skip
NEWS = {
    "bg": "Обновена обява: свободен от днес.",
    "en": "Updated: vacant from today.",
    "de": "Aktualisiert: ab sofort frei.",
}

_CYRILLIC = "абвгдежзийклмнопрстуфхцчшщъьюя"
_LATIN = "a b v g d e zh z i y k l m n o p r s t u f h ts ch sh sht a y yu ya"
_LETTERS = dict(zip(_CYRILLIC, _LATIN.split(), strict=True))


def plain_name(neighbourhood: str) -> str:
    """Return the name of a neighbourhood without its prefix."""
    prefix = next((one for one in PREFIXES if neighbourhood.startswith(one)), "")
    return neighbourhood.removeprefix(prefix)


def in_latin(text: str) -> str:
    """Return Bulgarian in Latin letters, as road signs write it."""
    return "".join(_in_latin(char) for char in text)


def _in_latin(char: str) -> str:
    letter = _LETTERS.get(char.lower(), char)
    return letter if char.islower() else letter.capitalize()
