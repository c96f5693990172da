"""What training and tickets cost, in measured seconds and bytes."""
