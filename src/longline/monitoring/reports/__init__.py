"""Reports of jobs and digests of all sources, as text, Markdown, HTML and JSON."""
