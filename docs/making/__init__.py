"""What the documentation computes when it is built: tables of the evidence, source pages, the gallery, the reference."""
