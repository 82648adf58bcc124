"""`plan`: from users to GPUs."""
