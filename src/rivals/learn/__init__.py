"""The contract of a method, its training, and TWTA."""
