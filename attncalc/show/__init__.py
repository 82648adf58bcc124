"""A report as text, JSON, CSV, LaTeX, HTML or a picture. Nothing here knows a question."""
