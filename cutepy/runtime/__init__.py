"""What compiled programs run on: their loader, CUDA under the names by which they call it, or its stand-in."""
