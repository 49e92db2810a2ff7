"""Amounts and currencies by price-parser's published tests, dates by dateparser's."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from longline.sources.parsing.values import check_form, read_value
from others_frame import Suite, Verdict

_LOCALES = {".": "en", ",": "de"}  # whose decimal mark a case asks for
_NO_NUMBER = "the case expects an amount of 1 from a text without a number"
_ONE_NUMBER = "the only number in a text is its amount, regardless of the surrounding words"
# Differences of policy, each with its reason.
_POLICIES = {
    "Цена: уточняйте (мин. заказ: 1 )": f"{_ONE_NUMBER}; price-parser itself fails this case",
    "July, 2004": f"{_ONE_NUMBER}; price-parser itself fails this case",
    "Free Shipping on Orders $49+.": f"{_ONE_NUMBER}; price-parser itself fails this case",
    "11. 12. 2014, 08:45:39": "a date with points between its parts begins with the day",
}
# The spelling that a case expects, and the currencies that it means.
_SPELLINGS = """
    EUR: € euro
    GBP: £ ￡ stg pound
    CZK: Kč
    RUB: руб. руб Р р. ₽ Rbl
    PLN: zł Zł zl pln
    BRL: R$
    UAH: грн. грн ₴ hrn
    IDR: Rp
    RON: lei LEI Lei
    VND: ₫ đ VNĐ
    HUF: Ft
    TRY: TL ₺
    ILS: ₪ nis ש״ח ש"ח ש'ח
    INR: ₹ र Rs Re ரூ
    PKR: Rs ₨
    LKR: Rs රු ரூ
    CAD: C$ CA$ CAN$ CAD$
    BYN: Br
    ETB: Br ብር
    BGN: лв. лв
    KWD: KD د.ك دينار#كويتي
    MYR: RM
    TWD: NT$ NT 圓
    ZAR: R
    UZS: so'm Sʻ S' som
    USD: US$ US#$
    AUD: A$ AU$ AU#$
    KRW: 원
    JPY: 円 yen
    CNY: 元 yuan 人民币 圆
    EGP: جنيه ج.م E£
    SAR: ريال ر.س
    THB: ฿ บาท
    RSD: Dinara Дин дин din
    CHF: Fr. CHf SFr chf
    MXN: MX$
    IRR: ریال
    AFN: ؋
    ALL: Lek
    AMD: ֏
    AZN: ₼
    BDT: ৳
    BZD: BZ$
    BTN: Nu. Nu
    BAM: KM км
    BIF: FBu Fbu
    BHD: BD .د.ب
    KHR: ៛
    XOF: CFA
    XAF: FCFA
    CRC: ₡
    HRK: kn
    CUC: CUC$
    PHP: ₱
    DJF: Fdj
    DOP: RD$
    ERN: Nfk ናቕፋ نافكا
    GHS: GH₵ ₵
    JMD: J$
    LAK: ₭
    LRD: LD
    LYD: LD ل.د د.ل
    MOP: MOP$
    MWK: MK
    MVR: Rf
    MRU: UM
    MNT: ₮
    NGN: ₦
    PAB: B/.
    PEN: S/. S/
    STN: Db
    TZS: TSh
    TOP: T$
    TTD: TT$
    TND: DT د.ت
    UGX: USh
    UYU: $U
    VUV: VT Vt
    BOB: Bs $b
    VES: Bs
    ZMW: ZK
    ZWL: Z$
    BTC: ₿ BTC Ƀ
    GNF: FG GFr
    DZD: دج د.ج
    GEL: ლ lari ლარი
    IQD: ع.د د.ع
    KES: KSh KShs
    MKD: ден ДЕН mkd
    MGA: Ar
    AED: د.إ
    MZN: MT
    RWF: FRw RF R₣
    SDG: ج.س. ج.س
    JOD: د.أ د.ا دينار#أردني
    MAD: د.م
    OMR: ر.ع
    QAR: ر.ق
    SYP: ل.س
    LBP: ل.ل
    YER: ر.ي
    GYD: G$ GY$
    PTE: Esc
    AOA: kwz
    NZD: nzd
    KZT: тг
    KGS: с som
"""
_MEANINGS = {
    (code.strip(), spelling.replace("#", " "))
    for line in _SPELLINGS.strip().splitlines()
    for code, _, spellings in [line.partition(": ")]
    for spelling in spellings.split()
}


@dataclass(frozen=True, slots=True)
class _Price:
    hint: str | None
    text: str
    currency: str | None
    amount: float | None
    mark: str | None


def _prices(folder: Path) -> Iterator[_Price]:
    source = (folder / "tests" / "test_price_parsing.py").read_text("utf-8")
    for statement in ast.parse(source).body:
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.List):
            for call in statement.value.elts:
                if isinstance(call, ast.Call) and (price := _price(call)):
                    yield price


def _price(call: ast.Call) -> _Price | None:
    hint, text, currency, _, amount, *rest = [_constant(argument) for argument in call.args]
    named = {keyword.arg: _constant(keyword.value) for keyword in call.keywords}
    mark = rest[0] if rest else named.get("decimal_separator")
    number = None if amount is None else float(amount)
    return None if text is None else _Price(hint, text, currency, number, mark)


def _constant(node: ast.expr) -> Any:
    if isinstance(node, ast.Call):  # Decimal("1.11")
        return ast.literal_eval(node.args[0])
    return ast.literal_eval(node)


def _read(price: _Price) -> dict[str, Any] | None:
    """Read a price as a manifest would: the hint is its `form` when it is a currency."""
    form = price.hint.strip() if price.hint else None
    try:
        check_form("money", form)
    except ValueError:
        form = None
    try:
        read: dict[str, Any] = read_value(
            "money", price.text, locale=_LOCALES.get(price.mark or ""), form=form
        )
    except ValueError:
        return None
    return read


def judge_amounts(folder: Path) -> list[Verdict]:
    """Compare the amounts; a text without one is right when it is refused."""
    return [_judge(price, "amount", price.amount, operator.eq) for price in _prices(folder)]


def judge_currencies(folder: Path) -> list[Verdict]:
    """Compare the currencies, where the amount is read or none is expected."""
    return [_judge(price, "currency", price.currency, _is_same) for price in _prices(folder)]


def _judge(
    price: _Price, part: str, expected: object, is_same: Callable[[Any, Any], bool]
) -> Verdict:
    got = (_read(price) or {}).get(part)
    reason = _POLICIES.get(price.text, "")
    if price.amount and not any(char.isdecimal() for char in price.text):
        reason = _NO_NUMBER
    kind: Literal["right", "refused", "wrong", "policy"]
    if is_same(got, expected):
        kind = "right"
    elif reason:
        kind = "policy"
    else:
        kind = "refused" if got is None else "wrong"
    return Verdict(price.text, str(expected), str(got), kind, reason)


def _is_same(got: str | None, expected: str | None) -> bool:
    if got is None or expected is None:
        return got is expected
    as_written = {expected.strip("."), expected.strip(".").lower(), expected.upper()}
    return got.strip(".") in as_written or (got, expected) in _MEANINGS


def judge_dates(folder: Path) -> list[Verdict]:
    """Compare the dates of dateparser's tests that have a text and a time."""
    source = (folder / "tests" / "test_date_parser.py").read_text("utf-8")
    return [verdict for node in ast.walk(ast.parse(source)) if (verdict := _judge_date(node))]


def _judge_date(node: ast.AST) -> Verdict | None:
    if not (isinstance(node, ast.Call) and getattr(node.func, "id", "") == "param"):
        return None
    if len(node.args) < 2 or node.keywords:  # noqa: PLR2004  # the text and the moment
        return None
    text, moment = node.args[0], node.args[1]
    is_text = isinstance(text, ast.Constant) and isinstance(text.value, str)
    is_moment = isinstance(moment, ast.Call) and getattr(moment.func, "id", "") == "datetime"
    if not is_text or not is_moment or len(node.args) > 2 or moment.keywords:  # type: ignore[attr-defined]  # noqa: PLR2004
        return None
    case = text.value  # type: ignore[attr-defined]
    wanted = datetime(*[ast.literal_eval(part) for part in moment.args])  # type: ignore[attr-defined]  # noqa: DTZ001
    return _compared(case, wanted)


def _compared(case: str, wanted: datetime) -> Verdict:
    """Read a date, and the time of day as well where there is one."""
    read_day, read_moment = _read_moment("date", case), _read_moment("datetime", case)
    got = read_moment or read_day
    if read_moment and (moment := datetime.fromisoformat(read_moment)).tzinfo:
        # The tests of dateparser convert what has an offset to UTC.
        got = moment.astimezone(UTC).replace(tzinfo=None).isoformat()
    expected = wanted.isoformat() if read_moment else wanted.date().isoformat()
    if got != expected and case in _POLICIES:
        return Verdict(case, expected, str(got), "policy", _POLICIES[case])
    if got is None:
        return Verdict(case, wanted.isoformat(), "None", "refused")
    return Verdict(case, expected, got, "right" if got == expected else "wrong")


def _read_moment(kind: str, case: str) -> str | None:
    try:
        return str(read_value(kind, case))
    except ValueError:
        return None


SUITES = [
    Suite("amounts", "price-parser", "0.5.1", judge_amounts, least_right=0.95),
    Suite("currencies", "price-parser", "0.5.1", judge_currencies, least_right=0.85),
    Suite("dates", "dateparser", "1.5.0", judge_dates),
]
