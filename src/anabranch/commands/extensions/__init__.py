"""Commands that Redis does not have: AB.*, for streams by position and for regions."""
