"""The signs of a ban or a challenge, by what they are worth; whoever uses them weighs them.

Each is made of what such pages are known to say or to hold. None decides alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

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
