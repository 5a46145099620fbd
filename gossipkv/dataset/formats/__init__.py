"""What source files say: each format is a module whose `batches(reader, options)` yields the records of one file."""
