"""The charts of each command's answer, as plain data of attncalc/plot/."""
