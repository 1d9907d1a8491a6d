"""Examples to copy: `digits.py` is a supervised training, `demo` kills it and shows what is left."""
