"""`kv`: the KV cache."""
