"""What methods keep of the past: exemplars with labels, and a pool of pictures without."""
