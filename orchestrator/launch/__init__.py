"""Starting, watching, ending and judging the processes of an attempt. Free of torch."""
