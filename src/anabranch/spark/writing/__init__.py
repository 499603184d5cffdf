"""From rows of a table to entries of a stream, once each."""
