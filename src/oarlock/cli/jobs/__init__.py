"""The commands about jobs, one module each."""

COMMANDS = (
    "oarcp",
    "oardel",
    "oarhold",
    "oarmonitor",
    "oarmonitor_graph_gen",
    "oarprint",
    "oarresume",
    "oarsh",
    "oarstat",
    "oarsub",
    "oarwalltime",
)
