"""Scripts and functions: EVAL, SCRIPT, FUNCTION, FCALL."""
