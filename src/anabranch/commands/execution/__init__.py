"""Running a request: sessions, the context of a command, dispatch, work in slices."""
