"""What the AIE2P array and its tools can do: limits, each with its source."""
