"""What compiled programs cost: time of calls and of compiles, memory."""
