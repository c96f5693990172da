"""What the results say: accuracy, forgetting, overlap, cost."""
