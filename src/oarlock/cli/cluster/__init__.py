"""The commands about resources, queues, rules and accounts, one module each, and how hosts are asked for theirs."""

COMMANDS = (
    "oar_resources_add",
    "oar_resources_init",
    "oaraccounting",
    "oaradmissionrules",
    "oarnodes",
    "oarnodesetting",
    "oarnotify",
    "oarproperty",
    "oarremoveresource",
)
