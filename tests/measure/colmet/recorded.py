"""Messages of Colmet, byte by byte as its formats say: numbers are little endian in records, big endian in maps."""

HOST = b"dahu-17".ljust(255, b"\0")


def name(backend: str) -> bytes:
    return f"{backend}_default".encode().ljust(255, b"\0")


JOB_4071 = bytes.fromhex("e70f000000000000")
NODE = bytes(8)
AT_1700000000 = bytes.fromhex("00f1536500000000")


def u64(*numbers: str) -> bytes:
    """Join numbers that are written as hexadecimal, eight bytes each."""
    return b"".join(bytes.fromhex(number).ljust(8, b"\0") for number in numbers)


NOTHING = b"\xff" * 8  # −1
TASKSTATS = (
    name("taskstats") + HOST + JOB_4071 + AT_1700000000
    + u64("05", "00ca9a3b")  # cpu_count 5, cpu_delay_total 1 s
    + u64("00", "00", "00", "00")  # block I/O and swapping in
    + u64("0094357700", "002f685900")  # cpu_run_real_total 2 s, cpu_run_virtual_total 1.5 s
    + bytes.fromhex("9cf05365")  # ac_btime 1699999900, four bytes
    + u64("00e1f505")  # ac_etime 100 s
    + u64("80841e00", "40420f00")  # ac_utime 2 s, ac_stime 1 s
    + u64("0a", "03")  # minor and major faults
    + u64("40420f00", "80841e00")  # coremem 1 MB·s, virtmem 2 MB·s
    + u64("0010", "0020", "07", "08")  # read_char 4096, write_char 8192, 7 reads, 8 writes
    + u64("0040", "0080", "00")  # read_bytes 16384, write_bytes 32768, nothing cancelled
    + u64("64", "c8")  # switches: 100 and 200
    + u64("80841e00", "40420f00", "0094357700")  # scaled times
    + u64("00", "00")  # waiting for memory
)  # fmt: skip
JOBPROC = (
    name("jobprocstats") + HOST + JOB_4071 + AT_1700000000
    + u64("01", "02", "03", "04", "05", "06", "07")  # I/O of live processes: less than taskstats knows
    + u64("0004", "20", "0008")  # VmRSS 1024 kB, RssShmem 32 kB, VmSize 2048 kB
)  # fmt: skip
PERFHW = name("perfhwstats") + HOST + JOB_4071 + AT_1700000000 + u64("e803", "d007") + NOTHING * 3
RAPL = (
    name("RAPLstats") + HOST + NODE + AT_1700000000
    + u64("40420f00", "12345678")  # package: 1 J more, and the range of its counter
    + u64("00", "00")  # core: not supported by the hardware
    + u64("20a10700", "12345678")  # dram: 0.5 J more
    + NOTHING * 18  # no further processor
    + b"[4071, 4080]".ljust(8192, b"\0")
)  # fmt: skip
TEMPERATURE = name("temperaturestats") + HOST + NODE + AT_1700000000 + u64("2d", "00") + NOTHING * 4
IPMI = name("ipmipowerstats") + HOST + NODE + AT_1700000000 + u64("2c01") + b"[]".ljust(8192, b"\0")
PROCSTATS = (
    name("procstats") + HOST + NODE + AT_1700000000
    + u64("e803", "d007")  # up 1000 s, idle 2000 s
    + u64("0004", "0002") + u64("00") * 36  # meminfo in kB: 1024 in all, 512 free
    + u64("02", "04", "00", "00", "05", "01")  # vmstat
    + u64("6400", "00", "c800", "0010", "00", "00", "00", "0a", "14")  # ticks; 10 stolen, 20 of guests
    + u64("01", "02", "03", "00")  # interrupts, switches, processes, blocked
    + bytes.fromhex("0000003f 0000803f 0000c03f 00004040 0000c842")  # loads 0.5, 1, 1.5; 3 of 100 threads
    + b"[4071]".ljust(8192, b"\0")
)  # fmt: skip
RECORDS = TASKSTATS + JOBPROC + PERFHW + PROCSTATS + RAPL + TEMPERATURE + IPMI

# {4071: ["dahu-17", 1700000000000 cut to 32 bits, [["Memory", …], ["Cpu", …], ["Perfhw", …]]]}
RUST = bytes.fromhex(
    "81 cd0fe7 93"
    "a7 64616875 2d3137"
    "d2 cfe56800"
    "93"
    "93 a6 4d656d6f7279 93 12 13 11 93 ce00100000 ce00200000 cf7ffffffffffff000"
    "93 a3 437075 93 22 23 24 93 0a 02 ce3b9aca00"
    "93 a6 506572666877 92 26 36 92 cd03e8 ce1dcd6500".replace(" ", "")
)

# A map: {4071: ["dahu-17", 1700000000000, 1, [[4071, "memory", ["20", "26"], [4096, 512]], …]]}
VERSIONED = bytes.fromhex(
    "81 cd0fe7 94"
    "a7 64616875 2d3137"
    "cf 0000018bcfe56800"
    "01"
    "92"
    "94 cd0fe7 a6 6d656d6f7279 92 a2 3230 a2 3236 92 cd1000 cd0200"
    "94 cd0fe7 a6 706572666877 91 a2 3430 91 07".replace(" ", "")
)
