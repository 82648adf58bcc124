"""`params`: parameters."""
