"""`python -m longline`: the command line, where the command itself is not on the path."""

from longline.cli.main import main

main()
