"""What training and tickets cost, measured: `rivals bench`."""
