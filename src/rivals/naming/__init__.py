"""Which task does a picture belong to? Rules, statistics, and what is none of these."""
