"""The documents against the code: what is written must be true."""
