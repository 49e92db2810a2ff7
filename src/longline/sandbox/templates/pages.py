"""Just enough Markdown for the descriptions on the practice pages."""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Mapping, Sequence
from html import escape
from string import Template as Text

from longline.sandbox.templates.catalogue import Catalogue
from longline.sandbox.templates.template import Template

_IMAGE = re.compile(r"!\[([^\]]*)\]\(([^)\s]+)\)")
_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s]+)\)")
_BOLD = re.compile(r"\*\*(.+?)\*\*")
_ITEM = re.compile(r"(?:\d+\.|[-*]) +")
_MARKS = re.compile(r"!?\[([^\]]*)\]\([^)]*\)|[#*`>]|<[^>]*>")


def to_html(text: str, files: Mapping[int, str]) -> str:
    """Return Markdown as HTML; `files` are the URLs of `fileId:` references."""
    for number, address in files.items():
        text = text.replace(f"(fileId:{number})", f"({address})")
    return "\n".join(_block(block) for block in text.split("\n\n") if block.strip())


def to_text(text: str, length: int) -> str:
    """Return the beginning of a Markdown text as plain words."""
    return " ".join(_MARKS.sub(r"\1", text).split())[:length]


def _block(block: str) -> str:
    head, _, rest = block.partition("\n")
    if head.startswith("#"):
        level = min(6, len(head) - len(head.lstrip("#")) + 1)
        heading = f"<h{level}>{_inline(head.strip('# '))}</h{level}>"
        return heading + ("\n" + _block(rest) if rest else "")
    lines = block.split("\n")
    if all(_ITEM.match(line) for line in lines):
        items = "".join(f"<li>{_inline(_ITEM.sub('', line, count=1))}</li>" for line in lines)
        return f"<ol>{items}</ol>"
    return f"<p>{_inline(block)}</p>"


def _inline(text: str) -> str:
    text = _IMAGE.sub(r'<img alt="\1" src="\2">', escape(text, quote=False))
    return _BOLD.sub(r"<strong>\1</strong>", _LINK.sub(r'<a href="\2">\1</a>', text))


# ---------------- The web site next to the API: template pages, sitemaps, robots.txt and the front

_SUFFIX = " | n8n workflow template"
_OTHERS = 3

_PAGE = Text("""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>$title$suffix</title>
<meta name="description" content="$summary">
<meta property="og:title" content="$title$suffix">
<meta name="twitter:title" content="$title$suffix">
<meta property="og:image" content="$site/images/$id.png">
<link rel="canonical" href="$site$path">
</head>
<body>
<div id="__nuxt"><div id="__layout">
<header><nav><a href="/workflows/">Templates</a>
<a href="/integrations/">Integrations</a></nav></header>
<div role="dialog" class="cookie-dialog"><p>We value your privacy. This practice site uses cookies
for Analytics, Marketing and Preferences.</p>
<button>Accept all</button> <button>Reject</button></div>
<main>
<section class="section-workflow-hero">
<h1>$title</h1>
<p class="byline">Created by <a href="/creators/$username/">$author</a></p>
<p class="published">Published <time datetime="$created">$created</time></p>
<ul class="categories">$categories</ul>
<ul class="integrations">$integrations</ul>
<iframe title="Workflow preview" src="about:blank"></iframe>
</section>
<section class="section-workflow-description">
<div class="rich-text">
$description
</div>
</section>
<section class="section-creator-workflows">
<h2>More templates by $author</h2>
<ul>$others</ul>
</section>
<section class="section-newsletter"><h2>There is nothing you cannot automate</h2></section>
</main>
<footer><p>The practice web of longline</p></footer>
</div></div>
<script>window.__NUXT__={}</script>
</body>
</html>
""")

_HOME = Text("""<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><title>The practice web of longline</title></head>
<body>
<h1>The practice web</h1>
<p>$count made-up templates to collect, in the shapes of a real template catalogue.
Nothing here leaves your machine.</p>
<ul>
$links
</ul>
</body>
</html>
""")
_HOME_LINKS = (
    ("/sitemap_index.xml", "every template page"),
    ("/robots.txt", "rules for crawlers"),
    ("/api/templates/search?rows=20&page=1", "the list, page by page"),
    ("/api/templates/categories", "the categories"),
    ("/api/templates/workflows/{id}", "a template in full"),
    ("/api/workflows/templates/{id}", "its workflow alone"),
    ("/api/workflows/{id}", "the form with the date of its last change"),
    ("/workflows/{id}", "its page"),
    ("/youtube/watch?v=practice-00", "the stand-in for videos"),
    ("/__practice__/tally", "requests that this server received"),
)


def template_page(template: Template, catalogue: Catalogue, site: str) -> str:
    """Return the page of a template; the last sections are about others and not part of it."""
    detail = template.detail
    user = detail.get("user") or {}
    description = detail.get("description") or ""
    files = {image["id"]: image["url"] for image in detail.get("image") or []}
    return _PAGE.substitute(
        id=template.id,
        site=site,
        path=catalogue.path(template.id),
        suffix=_SUFFIX,
        title=escape(template.name),
        summary=escape(to_text(description, 160)),
        username=escape(user.get("username") or ""),
        author=escape(user.get("name") or ""),
        created=escape(detail.get("createdAt") or ""),
        categories=_links("/workflows/categories/", _slugs(detail.get("categories") or [])),
        integrations=_links("/integrations/", template.integrations),
        description=to_html(description, files),
        others=_others(template.id, catalogue),
    )


def home_page(catalogue: Catalogue) -> str:
    """Return the front page, for people."""
    first = str(catalogue.ids[0]) if len(catalogue) else "1"
    rows = ((path.replace("{id}", first), text) for path, text in _HOME_LINKS)
    links = "\n".join(
        f'<li><a href="{escape(path)}">{escape(path)}</a>: {text}</li>' for path, text in rows
    )
    return _HOME.substitute(count=len(catalogue), links=links)


def sitemap_index(site: str) -> str:
    """Return the list of sitemaps; there is one."""
    return _xml_document(
        "sitemapindex", f"<sitemap><loc>{site}/sitemap-workflows.xml</loc></sitemap>"
    )


def sitemap(catalogue: Catalogue, site: str) -> str:
    """Return the address of every template page."""
    rows = (f"<url><loc>{site}{catalogue.path(number)}</loc></url>" for number in catalogue.ids)
    return _xml_document("urlset", "\n".join(rows))


def robots(site: str, *, disallow: bool) -> str:
    """Return robots.txt; with `disallow` it disallows the API, but not the pages."""
    rule = "Disallow: /api/" if disallow else "Allow: /"
    return f"User-agent: *\n{rule}\n\nSitemap: {site}/sitemap_index.xml\n"


def picture(number: int) -> bytes:
    """Return a PNG of one pixel, in a colour of its own."""
    colour = bytes((number * 37 % 256, number * 91 % 256, number * 151 % 256))
    header = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    chunks = (b"IHDR", header), (b"IDAT", zlib.compress(b"\0" + colour)), (b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(_png_chunk(name, data) for name, data in chunks)


def _png_chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def _xml_document(root: str, inside: str) -> str:
    space = "http://www.sitemaps.org/schemas/sitemap/0.9"
    return (
        f'<?xml version="1.0" encoding="UTF-8"?>\n<{root} xmlns="{space}">\n{inside}\n</{root}>\n'
    )


def _slugs(categories: Sequence[dict[str, str]]) -> list[tuple[str, str]]:
    names = [category["name"] for category in categories]
    return [(name.lower().replace(" ", "-"), name) for name in names]


def _links(folder: str, rows: Sequence[tuple[str, str]]) -> str:
    return "".join(
        f'<li><a href="{folder}{escape(slug)}/">{escape(name)}</a></li>' for slug, name in rows
    )


def _others(template: int, catalogue: Catalogue) -> str:
    step = max(1, len(catalogue) // 7)
    places = [(template + step * n) % len(catalogue) for n in range(1, _OTHERS + 1)]
    numbers = [catalogue.ids[place] for place in places if catalogue.ids[place] != template]
    return "".join(
        f'<li><a href="{catalogue.path(n)}">{escape(catalogue.title(n))}</a></li>' for n in numbers
    )
