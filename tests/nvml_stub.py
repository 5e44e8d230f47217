"""A stand-in for NVIDIA's library with two GPUs, compiled for a test. The first says more than the second."""

import subprocess
from pathlib import Path

CARDS = r"""
#include <stdio.h>
#include <string.h>
typedef struct { unsigned long long total, free, used; } memory_t;
typedef struct { unsigned int gpu, memory; } rates_t;
typedef struct { unsigned int pid; unsigned long long used; unsigned int gi, ci; } process_t;
static int cards[2] = {0, 1};
#define CARD(d) (*(int *)(d))
int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned int *n) { *n = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned int i, void **d) { *d = &cards[i]; return i > 1; }
int nvmlDeviceGetMinorNumber(void *d, unsigned int *n) { *n = 1 - CARD(d); return 0; }
int nvmlDeviceGetUUID(void *d, char *s, unsigned int n) { snprintf(s, n, "GPU-%d", CARD(d)); return 0; }
int nvmlDeviceGetName(void *d, char *s, unsigned int n) { (void)d; snprintf(s, n, "NVIDIA A100"); return 0; }
int nvmlDeviceGetMemoryInfo(void *d, memory_t *m) { m->total = 1000; m->used = 10 + CARD(d); return 0; }
int nvmlDeviceGetUtilizationRates(void *d, rates_t *r) { r->gpu = 50; r->memory = 25; return CARD(d) ? 3 : 0; }
int nvmlDeviceGetPowerUsage(void *d, unsigned int *p) { *p = 250500 + CARD(d); return 0; }
int nvmlDeviceGetTemperature(void *d, int sensor, unsigned int *t) { (void)d; *t = 60 + sensor; return 0; }
int nvmlDeviceGetComputeRunningProcesses_v3(void *d, unsigned int *n, process_t *p) {
    *n = CARD(d) ? 1 : 0; p[0].pid = 4242; return 0; }
"""

FINER = r"""
typedef struct { unsigned int version, supported; } support_t;
typedef struct { unsigned int id; int result; double value; char *names[3]; } metric_t;
typedef struct { unsigned int version, count; void *before, *now; metric_t metrics[]; } question_t;
static int samples;
int nvmlGpmQueryDeviceSupport(void *d, support_t *s) { s->supported = CARD(d) == 0; return 0; }
int nvmlGpmSampleAlloc(void **s) { *s = &samples + ++samples; return 0; }
int nvmlGpmSampleFree(void *s) { (void)s; samples--; return 0; }
int nvmlGpmSampleGet(void *d, void *s) { (void)d; return s == 0; }
int nvmlGpmMetricsGet(question_t *q) {
    if (q->before == q->now) return 1;
    for (unsigned int i = 0; i < q->count; i++) {
        q->metrics[i].value = q->metrics[i].id; q->metrics[i].result = q->metrics[i].id == 61 ? 3 : 0; }
    return 0; }
"""
"""Counters that newer cards have: each reads its own number, but what NVLink sends is not counted."""


def build(folder: Path, *, finer: bool = False) -> str:
    """Compile it, with the finer counters or without, and give its path."""
    (folder / "stub.c").write_text(CARDS + (FINER if finer else ""))
    library = folder / "libnvml.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, folder / "stub.c"], check=True, timeout=60)
    return str(library)
