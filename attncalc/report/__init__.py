"""Reports: one file a command that builds one, one file a format that writes it."""
