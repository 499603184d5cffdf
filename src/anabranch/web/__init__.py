"""HTTP: the page, metrics, health, and the availability API. Needs the extra ``anabranch[web]``."""
