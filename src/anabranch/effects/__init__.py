"""Effects: changes that commands have decided, as data, and the functions that apply them."""
