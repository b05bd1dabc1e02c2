"""Request, facts and inventory in; every byte per rank, a verdict and the nearest fix out. Pure."""
