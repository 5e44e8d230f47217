"""From a waiting job to its launch: the decision of a scheduling pass, its limits on nodes, the launch itself."""
