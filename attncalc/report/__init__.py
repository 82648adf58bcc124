"""Reports: one file per command that builds a report, one file per format that writes it."""
