"""What a monitoring system is configured with: rules, dashboard, manifests."""
