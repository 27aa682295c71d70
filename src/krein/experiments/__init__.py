"""What is run to be shown: each experiment is a function that returns values; the command line prints them."""
