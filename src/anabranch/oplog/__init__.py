"""The one ordered log of this region: what recovery reads, and what other regions will be sent."""
