"""Whether a page is a ban or a challenge instead of an answer, and how one can tell.

A sign counts by where it stands: in what a reader sees, on a page that has little else to say, with
a status that refuses. A site that is merely closed, down, busy or wants a login is none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from longline.http.messages import FIRST_ERROR, Page
from longline.http.visible import View, seen

# ---------------- The signs of a ban or a challenge, by what they are worth; whoever uses them

REFUSALS = frozenset({401, 403, 405, 406, 412, 418, 420, 423, 429, 430, 444, 456, 503, 999})
"""Statuses with which sites turn machines away; most who send them mean something else."""
PAUSES = frozenset({429, 503})

HEADERS = {
    "cf-mitigated": re.compile("challenge"),
    "x-amzn-waf-action": re.compile("challenge|captcha"),
    "x-vercel-mitigated": re.compile("challenge|deny"),
}
"""Headers that are sent with nothing but a challenge, and their values."""
HEADERS_OF_REFUSALS = ("x-dd-b", "x-datadome-cid")
"""Headers that say the same, but only with a refusing status."""


def _any(phrases: Iterable[str]) -> re.Pattern[str]:
    pattern = "|".join(rf"(?<!\w)(?:{phrase})(?!\w)" for phrase in phrases)
    return re.compile(pattern, re.IGNORECASE)


ASKS = _any(
    [
        (
            r"(?:please )?(?:verify|confirm|prove|make sure|check)(?:ing)?(?: that| if| whether)?"
            r" you(?:'re| are) (?:a |not a |an actual )?(?:human|robot|bot)"
        ),
        r"(?:complete|solve|pass) the (?:security check|captcha|challenge)(?: below)?",
        r"checking your browser before",
        r"checking if the site connection is secure",
        r"press (?:&|and) hold",
        r"(?:enter|type) the characters you see",
        r"pardon our interruption",
        r"please enable js and disable any ad ?blocker",
        r"please turn javascript on and reload the page",
        r"bestätigen sie(?: bitte)?,? dass sie (?:ein mensch|kein roboter|kein bot) sind",
        r"(?:vérifiez|confirmez|prouvez) que vous (?:êtes (?:un )?humain|n'êtes pas un robot)",
        (
            r"(?:verifique|confirme|demuestre|verifica|confirma) que (?:usted )?"
            r"(?:(?:es|eres) (?:un )?humano|no (?:es|eres) un robot)"
        ),
        r"(?:потвърдете|докажете|уверете ни), че (?:не сте робот|сте човек)",
    ]
)
"""Orders to prove that one is human."""

BANS = _any(
    [
        (
            r"your (?:ip(?:[ -]address)?|address|network|computer|connection|access)"
            r"(?: \(?[\da-f.:]{7,}\)?)?(?: address)?,? (?:has been|is|was)"
            r"(?: temporarily| permanently)? (?:blocked|banned|blacklisted)"
        ),
        (
            r"you(?:'ve| have) been(?: temporarily| permanently)? (?:blocked|banned)"
            # Networks of people say this of one person who does not want another.
            r"(?! from (?:viewing|following|messaging)| by (?:this|the) (?:user|author|account))"
        ),
        r"unusual (?:traffic|activity) (?:from|coming from) your (?:computer )?network",
        r"(?:unusual|suspicious) (?:traffic|activity) (?:has been|was) detected",
        r"we (?:have )?detected (?:unusual|suspicious|automated) (?:traffic|activity|requests)",
        r"access to this (?:page|site|website) has been (?:denied|blocked)",
        r"you are using automation tools",
        r"request unsuccessful\. incapsula incident id",
        r"the requested url was rejected",
        r"request(?: was| has been)? blocked by (?:our |the |a )?(?:security|firewall|waf)",
        r"blocked by (?:network security|mod_security|cloudflare)",
        r"error code: 10(?:06|07|08|10|12|20)",
        r"ihre ip(?:-adresse)? (?:wurde|ist)(?: vorübergehend)? (?:gesperrt|blockiert)",
        r"ungewöhnliche[nr]? (?:datenverkehr|zugriffe|aktivität)",
        r"votre (?:adresse )?ip (?:a été|est)(?: temporairement)? (?:bloquée?|bannie?)",
        r"trafic inhabituel",
        r"(?:su|tu) (?:dirección )?ip (?:ha sido|está)(?: temporalmente)? (?:bloquead[ao])",
        r"tráfico inusual",
        r"(?:вашият )?ip адрес(?:ът ви)? (?:е|беше)(?: временно)? (?:блокиран|забранен)",  # noqa: RUF001 - Bulgarian
        r"достъпът ви (?:е|беше)(?: временно)? (?:блокиран|ограничен|спрян)",  # noqa: RUF001 - Bulgarian
        r"необичаен трафик",
    ]
)
"""Statements that we are shut out."""

HINTS = _any(
    [
        r"access denied",
        r"request blocked",
        r"are you (?:a )?(?:robot|human)",
        r"(?:i'm|i am|you are|you're) not a robot",
        r"human verification",
        r"just a moment\.\.\.",
        r"attention required! \| cloudflare",
        r"enable javascript and cookies to continue",
        r"too many requests from (?:your|this) (?:ip|network)(?: address)?",
        r"zugriff verweigert",
        r"(?:ich bin )?kein roboter",
        r"accès refusé",
        r"je ne suis pas un robot",
        r"acceso denegado",
        r"no soy un robot",
        r"достъпът е отказан|отказан достъп",  # noqa: RUF001 - Bulgarian
        r"не съм робот",
    ]
)
"""What such pages say, and others too."""

OWN_AFFAIRS = _any(
    [
        r"(?:log|sign)(?:ged|ning|ing)? ?in",
        r"(?:not|un)[ -]?authori[sz]ed",
        r"(?:have|has|need) (?:no |the )?(?:permission|rights|privileges)",
        r"do(?:n't| not) have (?:\w+ )*(?:permission|access)",
        r"(?:api[ -]?key|credentials|password|token|members? only|subscri(?:be|ption))",
        r"(?:country|region)",
        r"anmelden|berechtigung|connect(?:ez-vous|er)|autorisation|iniciar sesión|permiso",
        r"вход|нямате права",
    ]
)
"""What a site says that asks for a login or a right, or that is shut to a whole country."""

REFERENCES = _any(
    [
        r"reference #\s?[\da-f.]+",
        r"(?:cloudflare )?ray id",
        r"incident id",
        r"support id",
        r"your ip(?: address)?:? [\da-f.:]{7,}",
        r"generated by cloudfront",
    ]
)
"""What the gatekeepers of big networks print under a refusal."""

EXPLAINS = _any(
    [r"why", r"how", r"what", r"when", r"fix(?:ed|ing)?", r"explained", r"guide", r"faq"]
)
"""What a heading says above a page about bans."""

ONLY_IN_CHALLENGES = {
    "a challenge form (#challenge-form)": "#challenge-form, form[action*='__cf_chl']",
    "a challenge in progress (#challenge-running)": "#challenge-running, #cf-challenge-running,"
    " #challenge-stage, #cf-please-wait, #trk_jschal_js",
    "a captcha to hold (#px-captcha)": "#px-captcha, #px-captcha-wrapper",
    "a captcha of DataDome": "iframe[src*='captcha-delivery.com']",
    "a frame of Incapsula": "iframe[src*='_Incapsula_Resource']",
    "a challenge of Akamai": "#sec-if-cpt-container, #sec-cpt-if,"
    " meta[http-equiv='refresh' i][content*='bm-verify']",
    "a form that checks a captcha": "form[action*='validateCaptcha'], #distilCaptchaForm",
    "a refresh to a challenge": "meta[http-equiv='refresh' i][content*='__cf_chl'],"
    " meta[http-equiv='refresh' i][content*='captcha' i],"
    " meta[http-equiv='refresh' i][content*='_Incapsula_Resource']",
    "a check of DDoS-Guard": "#link-ddg, #ddg-captcha",
}
"""Elements that stand on no other page, by what they are."""

WIDGETS = (
    ".g-recaptcha:not([data-size='invisible']), .h-captcha:not([data-size='invisible']),"
    " .cf-turnstile, iframe[src*='/recaptcha/'], iframe[src*='hcaptcha.com'],"
    " iframe[src*='challenges.cloudflare.com'], #captcha-form, form[action*='captcha' i],"
    " input[name*='captcha' i]:not([type='hidden']), form img[src*='captcha' i], #captcha-container"
)
"""Captchas as they also stand below honest forms."""

SCRIPTS = re.compile(
    r"_cf_chl_opt|/orchestrate/(?:chl_page|jsch|captcha)/|captcha-delivery\.com/c\.js"
    r"|ct\.datado\.me/|captcha\.px-c(?:dn|loud)\.net|/captcha/captcha\.js\?a=c"
    r"|sucuri_cloudproxy_js|AwsWafIntegration\.(?:checkForceRefresh|forceRefreshToken)"
    r"|/_Incapsula_Resource\?SWJIYLWA"
)
"""Scripts of which a page may consist that has nothing else to show."""

IN_DATA = re.compile(
    r"captcha-delivery\.com/|\"(?:blockscript|captcha_?url|challenge_?url)\"\s*:", re.IGNORECASE
)
"""What programs are told instead of a challenge page."""

STEMS = (
    *(b"captcha", b"challenge", b"turnstile", b"cf_chl", b"incapsula", b"bm-verify", b"-cpt"),
    *(b"link-ddg", b"cloudproxy", b"awswaf", b"datado", b"a robot", b"human", b"not a bot"),
    *(b"your browser before", b"our interruption", b"enable js", b"blocked", b"banned"),
    *(b"been denied", b"was rejected", b"unusual", b"suspicious", b"automated"),
    *(b"kein robot", b"ein mensch", b"gesperrt", b"blockiert", b"ungew\xc3\xb6hnlich"),
    *(b"un robot", b"humain", b"bloqu", b"banni", b"inhabituel", b"inusual"),
)
"""Nearly every page that can be a challenge holds one of these, in small letters."""
CYRILLIC_STEMS = tuple(
    word.encode(charset)
    for word in ("робот", "човек", "локиран", "достъпът", "необичаен")
    for charset in ("utf-8", "cp1251")
)

SHORT = 1_200
"""A challenge says less than so many characters; an article about challenges says more."""
_TINY = 400
_SHORT_DATA = 4_000  # characters of JSON, XML and plain text
_SNIFFED = 65_536
_UNAUTHORISED = 401
_REFUSES_US = REFUSALS - PAUSES - {_UNAUTHORISED}
_LARGEST = 300_000  # bytes; more is no challenge
_MOST_ELEMENTS = 200  # with an end of their own, at the beginning of a challenge
_FILLED_IN = "input, textarea, select"
_NOT_FILLED_IN = frozenset({"hidden", "submit", "button", "checkbox", "radio", "image", "reset"})


def find_block(page: Page, expects: Sequence[str] = ()) -> str | None:
    """Return the evidence that a page blocks us, in words; None when there is none.

    `expects` are CSS selectors of which an HTML answer of the source has at least one: a page that
    has one is not blocked, and on a page that lacks them all lighter signs are enough.
    """
    if not is_suspect(page, expects):
        return None
    if _is_html(page):
        return _find_in_html(page, expects)
    return _find_in_headers(page) or _find_in_data(page)


def is_suspect(page: Page, expects: Sequence[str] = ()) -> bool:
    """Say quickly whether it is worth a closer look; True says nothing about the page."""
    if page.status in REFUSALS or any(name in page.headers for name in HEADERS):
        return True
    if len(page.body) > _LARGEST or not _is_html(page):
        return False
    # Whoever expects something reads the page anyway, and its tree is kept.
    return not _has_any(page, expects) if expects else _smells(page.body)


def _smells(body: bytes) -> bool:
    if body.count(b"</", 0, _SNIFFED) > _MOST_ELEMENTS:
        return False
    start = body[:_SNIFFED].lower()
    if any(stem in start for stem in STEMS):
        return True
    return not start.isascii() and any(stem in start for stem in CYRILLIC_STEMS)


def _has_any(page: Page, selectors: Sequence[str]) -> bool:
    return any(page.first(selector) is not None for selector in selectors)


def _find_in_html(page: Page, expects: Sequence[str]) -> str | None:
    if _has_any(page, expects):
        return None
    view = seen(page)
    strong = _find_in_headers(page) or _find_in_elements(page, view) or _find_in_text(page, view)
    if strong is not None or not expects:
        return strong
    weak = _find_weak(page, view)
    return weak and f"{weak}, and nothing of what is expected ({', '.join(expects)})"


def _find_in_headers(page: Page) -> str | None:
    for name, values in HEADERS.items():
        value = page.headers.get(name, "").lower()
        if values.search(value):
            return f"{name}: {value}"
    if page.status in REFUSALS:
        for name in HEADERS_OF_REFUSALS:
            if name in page.headers:
                return f"status {page.status} and the header {name}"
    return None


def _find_in_elements(page: Page, view: View) -> str | None:
    """Look for a challenge that is the main thing on the page."""
    if len(view.text) >= SHORT:
        return None
    for what, selector in ONLY_IN_CHALLENGES.items():
        if page.first(selector) is not None:
            return what
    if len(view.text) >= _TINY:
        return None
    if page.first(WIDGETS) is not None and not _has_fields(page):
        return "a captcha and little else"
    return _find_in_scripts(page)


def _find_in_scripts(page: Page) -> str | None:
    """Look for a page that is a script and nothing to read."""
    scripts = page.css("script")
    for script in scripts:
        found = SCRIPTS.search(script.attributes.get("src") or script.text())
        if found is None:
            continue
        # Incapsula adds its script to honest pages too, whose own scripts draw them.
        if "_Incapsula_" in found.group() and len(scripts) > 1:
            continue
        return f"a page that is only the script of a challenge ({found.group().strip('/?')})"
    return None


def _find_in_text(page: Page, view: View) -> str | None:
    is_refusal = page.status in REFUSALS
    # Who says when to come back wants fewer requests, not none.
    is_pause = page.status in PAUSES and "retry-after" in page.headers
    said = _said(page, ASKS, view) or (None if is_pause else _said(page, BANS, view))
    if said is not None:
        return f"status {page.status} and the text {said!r}" if is_refusal else f"the text {said!r}"
    if is_refusal and not is_pause:
        return _find_denial(page, view)
    return None


def _said(page: Page, phrases: re.Pattern[str], view: View) -> str | None:
    """Return what is said where it counts: loudly or on a short page, and on a good one both."""
    is_refusal = page.status in REFUSALS
    if not is_refusal and (len(view.text) >= SHORT or EXPLAINS.search(view.heads)):
        return None
    loud = phrases.search(view.heads)
    is_heard = len(view.text) < (SHORT if is_refusal else _TINY)
    said = loud or (phrases.search(view.text) if is_heard else None)
    return said.group() if said else None


def _find_denial(page: Page, view: View) -> str | None:
    """Look for a refusal of us, and not of anybody without a login or a right."""
    if len(view.text) >= SHORT or page.status == _UNAUTHORISED:
        return None
    hint = HINTS.search(view.heads) or HINTS.search(view.text)
    if hint is None:
        return None
    text = f"status {page.status} and the text {hint.group()!r}"
    reference = REFERENCES.search(view.text)
    if reference:
        return f"{text} with {reference.group()!r}"
    # One who is busy may say much of this; that is the pace's business.
    is_other = page.status in PAUSES or OWN_AFFAIRS.search(view.text)
    return None if is_other else text


def _find_weak(page: Page, view: View) -> str | None:
    """Look for what proves nothing on a page that may be an answer."""
    if page.status >= FIRST_ERROR and page.status not in _REFUSES_US:
        return None
    is_short = len(view.text) < SHORT
    is_other = EXPLAINS.search(view.heads) or OWN_AFFAIRS.search(view.text)
    for phrases in () if is_other else (ASKS, BANS, HINTS):
        said = phrases.search(view.heads) or (phrases.search(view.text) if is_short else None)
        if said:
            return f"the text {said.group()!r}"
    if is_short and page.first(WIDGETS) is not None and not _has_fields(page):
        return "a captcha"
    return None


def _find_in_data(page: Page) -> str | None:
    """Look into an answer for programs: only one that refuses, and briefly."""
    if page.status not in REFUSALS or len(page.body) > _SHORT_DATA:
        return None
    text = page.text
    found = IN_DATA.search(text)
    if found is None and not (page.status in PAUSES and "retry-after" in page.headers):
        found = ASKS.search(text) or BANS.search(text)
    return f"status {page.status} and the text {found.group()!r}" if found else None


def _has_fields(page: Page) -> bool:
    """Whether there is something to fill in besides the captcha: a login, a search, a message."""
    return any(_is_field(node.attributes) for node in page.css(_FILLED_IN))


def _is_field(attributes: Mapping[str, str | None]) -> bool:
    name = f"{attributes.get('name') or ''} {attributes.get('id') or ''}".lower()
    kind = (attributes.get("type") or "text").lower()
    return kind not in _NOT_FILLED_IN and "captcha" not in name and "hidden" not in attributes


def _is_html(page: Page) -> bool:
    kind = page.headers.get("content-type", "")
    if not kind:
        return page.body[:200].lstrip()[:1] == b"<"
    return "html" in kind.lower()
