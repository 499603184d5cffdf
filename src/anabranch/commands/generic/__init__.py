"""Keys of any type, and databases: DEL, EXPIRE, SCAN, DUMP and similar commands."""
