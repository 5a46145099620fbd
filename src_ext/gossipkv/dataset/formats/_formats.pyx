"""Formats: batches of records filled from lines, JSON, columns, sequence files and sorted files."""

include "lines.pyx"
include "json_text.pyx"
include "json_lines.pyx"
include "columns.pyx"
include "sequence_file.pyx"
include "sorted_files.pyx"
include "tab_separated.pyx"
