"""`compare`: one model's attention as every kind, or several models side by side."""
