"""`schema`: JSON Schemas of what commands print, and of files that users write."""
