"""A source in Python: title, author and categories of the templates of the practice web."""

from longline import Item, Options, Source, layer


class Pages(Source):
    """Every template page that the sitemap lists."""

    name = "pages"

    class Options(Options):
        """Options of the source, for --set."""

        site: str = "http://127.0.0.1:8765"

    async def discover(self, visit):
        sitemap = await visit.fetch(f"{self.options.site}/sitemap-workflows.xml")
        for place in sitemap.css("loc"):
            url = place.text()
            yield Item(key=url.rsplit("/", 2)[1].partition("-")[0], url=url)

    @layer()
    async def page(self, visit):
        page = await visit.fetch(visit.item.url)
        return {
            "title": page.first_text("h1"),
            "author": page.first_text(".byline a"),
            "categories": [link.text() for link in page.css(".categories a")],
        }
