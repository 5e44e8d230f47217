"""The cluster: resources, their properties and conditions on them, events, the copy of another cluster."""
