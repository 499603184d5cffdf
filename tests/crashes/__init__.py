"""Random crashes of a server whose disk fails, checked by a model of what everybody was told."""
