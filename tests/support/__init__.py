"""What several kinds of tests share: real servers and a raw client."""
