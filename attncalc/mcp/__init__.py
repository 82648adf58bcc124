"""`attncalc mcp`: the questions as tools of a coding agent, by the Model Context Protocol.

`tools.py` makes a tool of each question from its declaration, `calls.py` answers a call in a
process of its own, and `server.py` is the only module that imports the SDK (`attncalc[mcp]`).
"""
