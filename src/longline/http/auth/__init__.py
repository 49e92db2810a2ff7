"""The kinds of authentication, a file a kind; `authentication.py` is the link that uses them."""
