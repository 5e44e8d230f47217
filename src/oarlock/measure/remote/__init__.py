"""An engine that others keep (Prometheus, VictoriaMetrics, Mimir): series are written there, and read back."""
