"""What RFC 9309 says about robots.txt, as a table, with the sections."""

from __future__ import annotations

from dataclasses import dataclass

KEPT_BYTES = 500 * 1024


@dataclass(frozen=True, slots=True)
class Case:
    """A robots.txt, a path, and whether `longline` may ask for it."""

    name: str
    robots: str | bytes
    path: str
    is_allowed: bool

    @property
    def body(self) -> bytes:
        return self.robots if isinstance(self.robots, bytes) else self.robots.encode()


def yes(name: str, robots: str | bytes, path: str) -> Case:
    return Case(name, robots, path, is_allowed=True)


def no(name: str, robots: str | bytes, path: str) -> Case:
    return Case(name, robots, path, is_allowed=False)


def everyone(*rules: str) -> str:
    return "\n".join(["User-agent: *", *rules, ""])


def padded(rule: str, size: int) -> bytes:
    """Return rules of exactly this many bytes, comments first, the rule last."""
    end = f"\n{rule}".encode()
    start = b"User-agent: *\nAllow: /\n#"
    return start + b"x" * (size - len(start) - len(end)) + end


OURS_AND_ALL = "User-agent: longline\nDisallow: /ours\n\nUser-agent: *\nDisallow: /all\n"
SCATTERED = (
    "User-agent: longline\nDisallow: /one\n\nUser-agent: other\nDisallow: /other\n\n"
    "User-agent: LongLine\nDisallow: /two\n"
)
SEVERAL = "User-agent: other\nUser-agent: longline\nUser-agent: third\nDisallow: /x\n"
PAGES = everyone("Allow: /p", "Disallow: /")
FOLDERS = everyone("Allow: /folder", "Disallow: /folder")
HTML = everyone("Allow: /page", "Disallow: /*.htm")
ROOT_ONLY = everyone("Allow: /$", "Disallow: /")
FISH = everyone("Disallow: /fish")
FISH_STAR = everyone("Disallow: /fish*")
FISH_SLASH = everyone("Disallow: /fish/")
PHP = everyone("Disallow: /*.php")
PHP_END = everyone("Disallow: /*.php$")
FISH_PHP = everyone("Disallow: /fish*.php")

AGENTS = [  # 2.2.1
    yes("nothing at all", "", "/x"),
    yes("no group for us", "User-agent: other\nDisallow: /\n", "/x"),
    no("the group for everyone", everyone("Disallow: /"), "/x"),
    no("a group of our own", OURS_AND_ALL, "/ours"),
    yes("a group of our own replaces that for everyone", OURS_AND_ALL, "/all"),
    no("a name in other letters", "User-agent: LONGLINE\nDisallow: /\n", "/x"),
    no("a name with a version", "User-agent: longline/0.1\nDisallow: /\n", "/x"),
    yes("the beginning of our name is not our name", "User-agent: long\nDisallow: /\n", "/x"),
    yes("our name and more is not our name", "User-agent: longlinebot\nDisallow: /\n", "/x"),
    yes("our name within another is not our name", "User-agent: a-longline\nDisallow: /\n", "/x"),
    no("the first of our groups", SCATTERED, "/one"),
    no("the second of our groups", SCATTERED, "/two"),
    yes("the group between our groups", SCATTERED, "/other"),
    no("several agents share a group", SEVERAL, "/x"),
    no(
        "an empty line between agents", "User-agent: longline\n\nUser-agent: b\nDisallow: /\n", "/x"
    ),
    no("an empty line between agent and rule", "User-agent: longline\n\n\nDisallow: /\n", "/x"),
    yes(
        "an empty group of our own",
        "User-agent: longline\nDisallow:\n" + everyone("Disallow: /"),
        "/x",
    ),
    no("two groups for everyone", everyone("Disallow: /a") + everyone("Disallow: /b"), "/b"),
    yes(
        "rules before the first agent apply to none",
        "Disallow: /\nUser-agent: *\nAllow: /a\n",
        "/x",
    ),
    yes("an agent without a name", "User-agent:\nDisallow: /\n", "/x"),
    yes(
        "the group of another after ours",
        "User-agent: longline\nDisallow: /a\nUser-agent: b\nDisallow: /\n",
        "/x",
    ),
]

RULES = [  # 2.2.2
    yes("an empty Disallow", everyone("Disallow:"), "/x"),
    yes("an empty Disallow after spaces", everyone("Disallow:   "), "/x"),
    no("an empty Allow allows nothing", everyone("Disallow: /", "Allow:"), "/x"),
    yes("the longest wins, allowing", PAGES, "/page"),
    no("the longest wins, disallowing", PAGES, "/other"),
    yes("order does not matter", everyone("Disallow: /", "Allow: /p"), "/page"),
    no(
        "order does not matter the other way round",
        everyone("Allow: /a", "Disallow: /a/b"),
        "/a/b/c",
    ),
    yes("Allow wins a tie", FOLDERS, "/folder/page"),
    yes("Allow wins a tie from behind", everyone("Disallow: /folder", "Allow: /folder"), "/folder"),
    no("a longer wildcard beats a shorter path", HTML, "/page.htm"),
    yes("no rule matches", FISH, "/Catfish"),
    no("a prefix matches itself", FISH, "/fish"),
    no("a prefix matches a longer name", FISH, "/fish.html"),
    no("a prefix matches what is below", FISH, "/fish/salmon.html"),
    no("a prefix matches with a query", FISH, "/fish?id=anything"),
    yes("paths are case-sensitive", FISH, "/Fish.asp"),
    yes("a prefix begins at the root", FISH, "/desert/fish"),
    yes("a folder is not its name", FISH_SLASH, "/fish"),
    no("a folder with a query", FISH_SLASH, "/fish/?id=1"),
    yes("robots.txt itself is always allowed", everyone("Disallow: /"), "/robots.txt"),
    yes("robots.txt with a query too", everyone("Disallow: /"), "/robots.txt?x=1"),
    no("robots.txt of a folder is a page like any", everyone("Disallow: /"), "/a/robots.txt"),
    no("a query decides", everyone("Disallow: /a?x="), "/a?x=1"),
    yes("another query", everyone("Disallow: /a?x="), "/a?y=1"),
    no("a parameter anywhere", everyone("Disallow: /*?*sort="), "/list?page=2&sort=up"),
    yes("a fragment is not sent", everyone("Disallow: /*end"), "/a#end"),
    no("an address without a path", everyone("Disallow: /$"), ""),
    no("dots in an address are resolved before it is sent", FISH, "/open/../fish"),
    no("escaped dots as well", FISH, "/open/%2e%2E/fish"),
    no("a double slash is kept", everyone("Disallow: //x"), "//x"),
    yes("a rule without a slash matches nothing", everyone("Disallow: fish"), "/fish"),
    no(
        "only the page itself is allowed, not its folder",
        everyone("Disallow: /a/", "Allow: /a/index.html"),
        "/a/",
    ),
    yes(
        "the page that is allowed",
        everyone("Disallow: /a/", "Allow: /a/index.html"),
        "/a/index.html",
    ),
]

SPECIAL = [  # 2.2.3
    no("a star at the end changes nothing", FISH_STAR, "/fishheads/yummy.html"),
    no("a star may match nothing", FISH_STAR, "/fish"),
    no("a star at the beginning", everyone("Disallow: */private"), "/a/b/private/c"),
    no("a star within", PHP, "/folder/filename.php?parameters"),
    no("a star before more", PHP, "/filename.php/"),
    yes("a star keeps case", PHP, "/windows.PHP"),
    no("the end", PHP_END, "/folder/filename.php"),
    yes("the end is not before a query", PHP_END, "/filename.php?parameters"),
    yes("the end is not before a slash", PHP_END, "/filename.php/"),
    yes("the end is not before a digit", PHP_END, "/filename.php5"),
    yes("the end is not a dollar sign", PHP_END, "/filename.php$x"),
    no("a star between", FISH_PHP, "/fishheads/catfish.php?parameters"),
    yes("a star between keeps case", FISH_PHP, "/Fish.PHP"),
    no("two stars in a row", everyone("Disallow: /a**b"), "/axxb"),
    no("stars may meet the same letters", everyone("Disallow: /*a*a$"), "/xaxa"),
    yes("stars share no letters", everyone("Disallow: /*aa*aa$"), "/xaaa"),
    yes("the root alone", ROOT_ONLY, "/"),
    no("but nothing below", ROOT_ONLY, "/page.htm"),
    no(
        "an escaped star is a star",
        everyone("Disallow: /file-with-a-%2A.html"),
        "/file-with-a-*.html",
    ),
    yes(
        "an escaped star is no wildcard",
        everyone("Disallow: /file-with-a-%2A.html"),
        "/file-with-a-b.html",
    ),
    no("an escaped dollar sign", everyone("Disallow: /foo-%24"), "/foo-$"),
    no("a dollar sign within", everyone("Disallow: /a$b"), "/a$bc"),
    no("all that a star may match to the end", everyone("Disallow: /a*$"), "/abc"),
    no("a comment ends a rule", everyone("Disallow: /a # not b"), "/a%20b"),
]

ENCODING = [  # 2.2.2, its table of examples, and 2.3
    no("a plain query", everyone("Disallow: /foo/bar?baz=quz"), "/foo/bar?baz=quz"),
    no(
        "an address in a query",
        everyone("Disallow: /foo/bar?baz=https://foo.bar"),
        "/foo/bar?baz=https%3A%2F%2Ffoo.bar",
    ),
    no(
        "an escaped address in a rule",
        everyone("Disallow: /foo/bar?baz=https%3A%2F%2Ffoo.bar"),
        "/foo/bar?baz=https://foo.bar",
    ),
    no("letters beyond ASCII in a rule", everyone("Disallow: /foo/bar/ツ"), "/foo/bar/%E3%83%84"),
    no(
        "letters beyond ASCII in an address",
        everyone("Disallow: /foo/bar/%E3%83%84"),
        "/foo/bar/ツ",
    ),
    no("letters beyond ASCII in both", everyone("Disallow: /привет"), "/привет/мир"),
    no("escapes in small letters", everyone("Disallow: /foo/bar/%e3%83%84"), "/foo/bar/%E3%83%84"),
    no("needless escapes in a rule", everyone("Disallow: /foo/bar/%62%61%7A"), "/foo/bar/baz"),
    no("needless escapes in an address", everyone("Disallow: /foo/bar/baz"), "/foo/bar/%62%61%7A"),
    yes("an escaped slash is no slash", everyone("Disallow: /a/b"), "/a%2Fb"),
    no("an escaped slash", everyone("Disallow: /a%2fb"), "/a%2Fb"),
    no("a space", everyone("Disallow: /a b"), "/a%20b"),
    no("a percent sign of its own", everyone("Disallow: /100%"), "/100%25"),
    no("bytes that are not UTF-8", b"User-agent: *\nDisallow: /caf\xe9\n", "/caf%E9"),
    yes(
        "bytes that are not UTF-8 are not all the same",
        b"User-agent: *\nDisallow: /caf\xe9\n",
        "/caf%E8",
    ),
]

LINES = [  # 2.2, 2.2.4, 2.3, 2.5
    no("a byte order mark", b"\xef\xbb\xbfUser-agent: *\nDisallow: /\n", "/x"),
    no("lines that end in CR LF", "User-agent: *\r\nDisallow: /\r\n", "/x"),
    no("lines that end in CR", "User-agent: *\rDisallow: /\r", "/x"),
    no("no end of the last line", "User-agent: *\nDisallow: /", "/x"),
    no("fields in capitals", "USER-AGENT: *\nDISALLOW: /\n", "/x"),
    no("fields in small letters", "user-agent: *\ndisallow: /\n", "/x"),
    no("spaces around everything", "  User-agent :  *  \n\tDisallow\t:\t/x\t\n", "/x"),
    no("no space after the colon", "User-agent:*\nDisallow:/\n", "/x"),
    no("comments everywhere", "# hello\nUser-agent: * # all\n# more\nDisallow: / # go\n", "/x"),
    yes("a rule that is a comment", everyone("#Disallow: /"), "/x"),
    no(
        "a sitemap ends no group",
        everyone("Disallow: /a", "Sitemap: http://x.test/s.xml", "Disallow: /b"),
        "/b",
    ),
    no(
        "a sitemap between agents",
        "User-agent: longline\nSitemap: /s.xml\nUser-agent: b\nDisallow: /\n",
        "/x",
    ),
    no(
        "an unknown line between agents",
        "User-agent: longline\nNoindex: /x\nUser-agent: b\nDisallow: /\n",
        "/x",
    ),
    no(
        "a crawl delay between agents",
        "User-agent: longline\nCrawl-delay: 1\nUser-agent: b\nDisallow: /\n",
        "/x",
    ),
    no(
        "an unknown line between rules",
        everyone("Disallow: /a", "Whatever: 1", "Disallow: /b"),
        "/b",
    ),
    no("nonsense between rules", everyone("Disallow: /a", "<html>", "Disallow: /b"), "/b"),
    no("a rule with a colon", everyone("Disallow: /a:b"), "/a:b"),
    yes("other line ends are no line ends", everyone("Disallow: /a\u2028Disallow: /b"), "/b"),
    yes(
        "a page instead of a robots.txt", "<!DOCTYPE html><html><body>Disallow</body></html>", "/x"
    ),
    no("a misspelt field that is meant well", everyone("Dissallow: /"), "/x"),
    no("a forgotten colon", everyone("Disallow /x"), "/x"),
    no("the last rule that is read", padded("Disallow: /page", KEPT_BYTES) + b"\n#", "/page"),
    yes("half a rule is no rule", padded("Disallow: /page", KEPT_BYTES + 1), "/pagoda"),
    yes(
        "what is behind the limit is not read",
        padded("#\nDisallow: /page", KEPT_BYTES + 16),
        "/page",
    ),
]

CASES = [*AGENTS, *RULES, *SPECIAL, *ENCODING, *LINES]
