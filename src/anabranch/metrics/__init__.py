"""Plain figures that the hot path may touch; formatting them is somebody else's job."""
