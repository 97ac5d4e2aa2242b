"""What is wrong with this host, and the command that mends it. Needs neither torch nor a database."""
