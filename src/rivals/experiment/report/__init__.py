"""Tables, plots and one page from the results of runs; never imports torch."""
