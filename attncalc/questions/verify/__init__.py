"""`verify`: real torch layers, measured and compared with the formulas."""
