"""Java, jars and processes on this machine, for Spark and for the workshop's clusters."""
