"""Currencies and units as people write them: what values are read by, and `form` is checked by."""

from __future__ import annotations

from collections.abc import Mapping

_ISO_4217 = """
    AED AFN ALL AMD ANG AOA ARS AUD AWG AZN BAM BBD BDT BGN BHD BIF BMD BND BOB BRL BSD BTN BWP
    BYN BZD CAD CDF CHF CLP CNY COP CRC CUP CVE CZK DJF DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP
    GEL GHS GIP GMD GNF GTQ GYD HKD HNL HTG HUF IDR ILS INR IQD IRR ISK JMD JOD JPY KES KGS KHR
    KMF KRW KWD KYD KZT LAK LBP LKR LRD LSL LYD MAD MDL MGA MKD MMK MNT MOP MRU MUR MVR MWK MXN
    MYR MZN NAD NGN NIO NOK NPR NZD OMR PAB PEN PGK PHP PKR PLN PYG QAR RON RSD RUB RWF SAR SBD
    SCR SDG SEK SGD SHP SLE SOS SRD SSP STN SYP SZL THB TJS TMT TND TOP TRY TTD TWD TZS UAH UGX
    USD UYU UZS VES VND VUV WST XAF XCD XOF XPF YER ZAR ZMW ZWG
"""
CURRENCIES = frozenset(_ISO_4217.split())
"""Codes of ISO 4217."""
_WORDS = "ALL ANG BAM BOB COP CUP GEL ILS LAK MAD MOP MUR NAD PEN SAR SOS TOP TRY"
CODE_WORDS = frozenset(_WORDS.split())
"""Codes that are words as well, so that only one next to the number counts."""
# What CLDR has not: common spellings, and the meaning of those that it gives to several currencies.
_OWN_SIGNS = """
    EUR € GBP £ GBP ￡ INR ₹ KRW ₩ TRY ₺ UAH ₴ ILS ₪ VND ₫ VND đ THB ฿ RUB ₽ KZT ₸ NGN ₦ PHP ₱
    CRC ₡ BRL R$ USD US$ CAD C$ CAD CA$ CAD CAN$ CAD CAD$ AUD A$ AUD AU$ AUD AUD$ NZD NZ$ HKD HK$
    SGD S$ MXN MX$ TWD NT$ USD USD$ JMD J$ GYD G$ GYD GY$ TTD TT$ UYU $U ZWL Z$ EGP E£
    PLN zł CZK Kč HUF Ft RON lei BGN лв BGN лева
"""
CURRENCY_SIGNS = dict(zip(_OWN_SIGNS.split()[1::2], _OWN_SIGNS.split()[::2], strict=True))
"""Signs and words that one currency has, as they are written most often."""
_OWN_WORDS = """
    EUR: euro euros eur евро ευρώ
    RUB: руб рубль рубля рублей р rub rbl
    UAH: грн гривна гривень гривен гривні hrn
    PLN: zł zl zloty złoty złotych złote
    CZK: kč kc koruna korun koruny
    HUF: forint
    RON: lei leu
    BGN: лв лева лев
    TRY: tl lirası
    MYR: rm ringgit
    IDR: rp rupiah
    RSD: din dinara дин динара
    MKD: ден
    KZT: тг тенге
    GEL: lari ლარი ლ
    UZS: soʻm so'm сум сўм
    KGS: сом
    ILS: nis ש"ח ש״ח ש'ח
    KRW: 원 won
    JPY: 円 yen
    CNY: yuan rmb 人民币
    THB: บาท baht
    VND: đ vnđ
    CHF: sfr
    INR: र
    LKR: රු
    ETB: ብር
    KES: ksh kshs
    AOA: kwz
    GHS: ₵
    KWD: kd د.ك
    BHD: bd د.ب
    TND: د.ت
    JOD: jd د.أ د.ا
    IQD: ع.د د.ع
    LYD: ld ل.د د.ل
    DZD: دج د.ج
    MAD: د.م
    AED: د.إ
    SAR: ر.س
    QAR: ر.ق
    OMR: ر.ع
    YER: ر.ي
    EGP: ج.م
    SDG: ج.س
    LBP: ل.ل
    SYP: ل.س
    GBP: stg
    BTC: btc ₿
"""
CURRENCY_WORDS = {
    word: code
    for line in _OWN_WORDS.strip().splitlines()
    for code, words in [line.strip().split(": ")]
    for word in words.split()
} | {"دينار كويتي": "KWD", "دينار أردني": "JOD", "دينار بحريني": "BHD", "دينار تونسي": "TND"}
"""Words for one currency, in lower case; they count next to the number."""
# Several countries use these; which is meant, only the locale can say.
_SHARED_WORDS = """
    dollar dollars pound pounds franc francs frank franken krone kroner kronor krona krónur peso
    pesos rupee rupees rupia dinar dinars dirham dirhams riyal rial shilling shillings fr frs
    تومان ريال درهم جنيه دينار 元 圆 圓 bs rs sh cfa lira dh dhs
"""
ELSEWHERE = {("RUB", "BY"): "BYN", ("RON", "MD"): "MDL", ("CAD", "NI"): "NIO"}
"""What a word for a currency means in a region that uses it for its own."""
# Names whose code is not decided here: they are kept as they are written.
_OTHER_NAMES = """
    afghani ariary balboa birr bolivar bolivars bolívar bolívares boliviano bolivianos cedi
    cedis colones colón córdoba cordobas dalasi denar denars dram drams escudo escudos florin
    florins gourde gourdes guarani guaraní guaranies guaraníes guilder guilders gulden hryvnia
    hryvnias hryvnya kina koruna korunas króna kuna kunas kwacha kwanza kyat lari lats lek
    lempira lempiras leone leones leva litas loti manat metical meticais naira nairas nakfa
    ngultrum ouguiya pataca patacas peseta pesetas pula quetzal quetzales quid rand rands
    reais riel riels ringgit rouble roubles rubel ruble rubles rufiyaa rupiah rupie rupien
    roupie roupies schilling schillinge shekel shekels sheqel sheqalim soles somoni taka tala
    tenge tögrög tugrik vatu yen yuan zloty zlotys złotys доллар доллара долларов долара
    доларів фунт фунта фунтов франк франка франков крон крона кроны тенге сум сумов сомони
    манат драм драмов лари шекель шекеля шекелей юань юаня юаней иена иены иен злотый злотых
    форинт форинтов
"""
SHARED_WORDS = frozenset((_SHARED_WORDS + _OTHER_NAMES).split()) - frozenset(CURRENCY_WORDS)
"""Words for the currencies of several countries, in lower case; they count next to the number."""
UNCLEAR_DECIMALS = frozenset(["dinar", "dinars", "دينار", "rial", "riyal", "ریال", "ريال"])
"""Shared words for currencies of which some have three decimals."""
_DOLLARS = "US CA AU NZ SG HK TW"
_PESOS = {"MX": "MXN", "AR": "ARS", "CL": "CLP", "CO": "COP"}
SHARED_SIGNS: Mapping[str, Mapping[str, str]] = {
    "$": {**{region: f"{region}D" for region in _DOLLARS.split()}, **_PESOS},
    "kr": {"sv": "SEK", "da": "DKK", "nb": "NOK", "nn": "NOK", "no": "NOK", "is": "ISK"},
    "¥": {"ja": "JPY", "zh": "CNY"},
}
"""Signs that several countries use, with the currency of each language or country."""

SECONDS = {
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds", "sek", "sekunde", "sekunden"), 1),
    **dict.fromkeys(("seconde", "secondes", "segundo", "segundos", "secondi", "sekund"), 1),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes", "minuten", "minuto", "minutos"), 60),
    **dict.fromkeys(("minuti", "minuut", "minut", "minuty"), 60),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours", "std", "stunde", "stunden"), 3600),
    **dict.fromkeys(("heure", "heures", "hora", "horas", "ora", "ore", "uur", "godz"), 3600),
    **dict.fromkeys(("d", "day", "days", "tag", "tage", "tagen", "jour", "jours"), 86400),
    **dict.fromkeys(("día", "días", "dia", "dias", "giorno", "giorni", "dag", "dagen"), 86400),
    **dict.fromkeys(("w", "week", "weeks", "woche", "wochen", "semaine", "semaines"), 604800),
    **dict.fromkeys(("semana", "semanas", "settimana", "settimane", "weken"), 604800),
}
"""Seconds of a unit of time."""

AREAS = {
    **dict.fromkeys(("m²", "m2", "m^2", "qm", "sqm", "sq m", "sq.m", "sq. m", "mq", "m.q."), "m²"),
    **dict.fromkeys(("square metres", "square meters", "square metre", "square meter"), "m²"),
    **dict.fromkeys(("quadratmeter", "mètres carrés", "metros cuadrados"), "m²"),
    **dict.fromkeys(("кв.м", "кв. м", "кв м", "м²", "м2", "квадратни метра"), "m²"),
    **dict.fromkeys(("km²", "km2", "sq km", "square kilometres", "square kilometers"), "km²"),
    **dict.fromkeys(("cm²", "cm2"), "cm²"),
    **dict.fromkeys(("ha", "hectare", "hectares", "hektar", "hectáreas", "ettari"), "ha"),
    **dict.fromkeys(("ft²", "ft2", "sqft", "sq ft", "sq. ft", "sq.ft", "square feet"), "ft²"),
    **dict.fromkeys(("square foot", "sf"), "ft²"),
    **dict.fromkeys(("yd²", "yd2", "sq yd", "square yards"), "yd²"),
    **dict.fromkeys(("mi²", "mi2", "sq mi", "square miles"), "mi²"),
    **dict.fromkeys(("acre", "acres", "ac"), "acre"),
}
"""The usual name of a unit of area."""
