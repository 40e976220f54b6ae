"""What every study needs: cells and chunks, storage, the runner, fingerprints, discovery."""
