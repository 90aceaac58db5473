"""Workers in other processes: lines over sockets, and what serves and calls over them."""
