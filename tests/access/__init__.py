"""Who may do what at which address: the table `matrix.txt`, compared with the addresses that there are, and tried."""
