"""What every figure needs: style, drawing, discovery, the report."""
