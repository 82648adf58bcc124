"""`explain`: a term of the field on one screen."""
