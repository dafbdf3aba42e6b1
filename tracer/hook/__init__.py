"""Start-up hook that runs inside the traced interpreter (never imported by the rest)."""
