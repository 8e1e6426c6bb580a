"""The console in a browser: sessions of people, their views of the nodes, and the pages; of one node or of many."""
