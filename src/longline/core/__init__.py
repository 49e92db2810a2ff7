"""What every package uses: errors, the data model, time, threads, JSON text, files."""
