"""The methods that TWTA is compared with, and the controls; imported when they are asked for."""
