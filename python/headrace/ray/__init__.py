"""Ray: `headrace docs ray`."""
