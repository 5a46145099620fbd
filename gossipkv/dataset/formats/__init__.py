"""The file formats that a source may hold: each module turns the bytes of one file into batches of records."""
