"""Plain figures for the hot path; other packages format them."""
