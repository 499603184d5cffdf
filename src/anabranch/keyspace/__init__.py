"""Many keys: databases, expiry, glob patterns, scanning, who waits for what. Pure."""
