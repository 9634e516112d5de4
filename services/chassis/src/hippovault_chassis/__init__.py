"""What every HippoVault process shares, and only that."""
