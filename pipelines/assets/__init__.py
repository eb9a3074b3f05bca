"""Assets: one function of training or audit each, with counts and the log range read in their metadata."""
