"""Tables, plots and one page, made from the files of runs alone; torch is never imported."""
