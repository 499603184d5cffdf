"""Sets: SADD, SREM, SINTER and their kin."""
