"""The wire, both directions. Pure: bytes in, values out, and back."""
