"""What is watched while jobs run: here, whether a source still looks as it always did."""
