"""Where the numbers of a training go: CSV, TensorBoard, MLflow, Weights & Biases, or your own."""
