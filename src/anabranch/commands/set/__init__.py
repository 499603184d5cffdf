"""Sets: SADD, SREM, SINTER and similar commands."""
