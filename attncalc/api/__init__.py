"""One call per question, with the options of the command line: `kv_cache("llama2-70b",
context=4096)`.

The command line reads its options here too, so that both have the same defaults and the same
errors.
"""
