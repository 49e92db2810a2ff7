"""The same thing on several sites: which records are it, by what evidence, and as one view."""
