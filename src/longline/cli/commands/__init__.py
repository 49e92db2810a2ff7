"""The commands, in modules of related ones; `cli/main.py` lists them."""
