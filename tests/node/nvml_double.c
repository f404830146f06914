/* A double of libnvidia-ml.so.1 for the tests: the ABI of the calls that the reporter makes, answers from a text file.
 *
 * NVML_DOUBLE_STATE names the file. It is read again at nvmlInit, at the device count and at each handle, so a test
 * changes the machine while a process looks at it. Lines ("#" begins a comment; \xNN is a byte in a text):
 *
 *   init CODE | init hang | init crash        what nvmlInit answers
 *   init slow MILLISECONDS                    how long it takes; each is a byte more in the file NVML_DOUBLE_INITS
 *   generation N                              another N is a driver reload: every call answers 1 until nvmlInit
 *   count N           driver TEXT             fail FUNCTION CODE (for all GPUs)
 *   gpu I uuid|serial|name TEXT               gpu I pci DOMAIN:BUS:DEVICE (hexadecimal)
 *   gpu I handle CODE                         what the handle call answers
 *   gpu I lost 1 | hang FUNCTION | crash FUNCTION
 *   gpu I fail FUNCTION CODE
 *   gpu I temperature|power|util|mem_total|mem_used|sram|recovery|reasons|replay|fabric_state|fabric_status|
 *         fabric_mask|links_up|links_down|links_unread NUMBER
 *   gpu I ecc VOLATILE_CORR VOLATILE_UNC AGGREGATE_CORR AGGREGATE_UNC
 *   (of its links none is up where both are 0; a GPU without links fails nvmlDeviceGetNvLinkState with 3)
 *   gpu I remap CORRECTABLE UNCORRECTABLE PENDING FAILURE
 *   gpu I xid NUMBER                          one event for nvmlEventSetWait, each time the number changes
 */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_GPUS 64
#define MAX_FAILS 48
typedef unsigned long long u64;

struct fail { int gpu; char fn[64]; int code; };
struct gpu {
    char uuid[96], serial[64], name[96];
    unsigned domain, bus, device;
    int handle, lost;
    char hang[64], crash[64];
    long long temperature, power, util, mem_total, mem_used, sram, recovery, reasons, replay;
    long long fabric_state, fabric_status, fabric_mask, links_up, links_down, links_unread, xid;
    u64 ecc[4];
    unsigned remap[4];
};
static struct gpu gpus[MAX_GPUS];
static struct fail fails[MAX_FAILS];
static int nfails, count, init_code, init_ms, generation, ready_generation, ready;
static long long xid_seen[MAX_GPUS];
static char driver[80];

static void stop_here(const char *how) {
    if (!strcmp(how, "hang")) for (;;) pause();
    if (!strcmp(how, "crash")) kill(getpid(), SIGSEGV);
}

static void text(char *to, size_t room, const char *from) {
    size_t n = 0;
    unsigned byte;
    while (*from && *from != '\n' && n + 1 < room) {
        if (sscanf(from, "\\x%2x", &byte) == 1) { to[n++] = (char)byte; from += 4; }
        else to[n++] = *from++;
    }
    to[n] = 0;
}

static void load(void) {
    char line[512], key[64], rest[384], fn[64];
    int i, code, used;
    const char *path = getenv("NVML_DOUBLE_STATE");
    FILE *f = path ? fopen(path, "r") : NULL;
    memset(gpus, 0, sizeof gpus);
    nfails = count = init_code = init_ms = generation = 0;
    strcpy(driver, "580.95.05");
    if (!f) { init_code = 9; return; }
    while (fgets(line, sizeof line, f)) {
        if (line[0] == '#') continue;
        if (sscanf(line, "gpu %d %63s %n", &i, key, &used) == 2 && i >= 0 && i < MAX_GPUS) {
            struct gpu *g = &gpus[i];
            snprintf(rest, sizeof rest, "%s", line + used);
            long long v = strtoll(rest, NULL, 0);
            if (!strcmp(key, "uuid")) text(g->uuid, sizeof g->uuid, rest);
            else if (!strcmp(key, "serial")) text(g->serial, sizeof g->serial, rest);
            else if (!strcmp(key, "name")) text(g->name, sizeof g->name, rest);
            else if (!strcmp(key, "pci")) sscanf(rest, "%x:%x:%x", &g->domain, &g->bus, &g->device);
            else if (!strcmp(key, "handle")) g->handle = (int)v;
            else if (!strcmp(key, "lost")) g->lost = (int)v;
            else if (!strcmp(key, "hang")) sscanf(rest, "%63s", g->hang);
            else if (!strcmp(key, "crash")) sscanf(rest, "%63s", g->crash);
            else if (!strcmp(key, "fail") && sscanf(rest, "%63s %d", fn, &code) == 2 && nfails < MAX_FAILS) {
                fails[nfails].gpu = i; fails[nfails].code = code; strcpy(fails[nfails++].fn, fn);
            }
            else if (!strcmp(key, "ecc")) sscanf(rest, "%llu %llu %llu %llu", g->ecc, g->ecc + 1, g->ecc + 2, g->ecc + 3);
            else if (!strcmp(key, "remap"))
                sscanf(rest, "%u %u %u %u", g->remap, g->remap + 1, g->remap + 2, g->remap + 3);
#define NUMBER(f) else if (!strcmp(key, #f)) g->f = v;
            NUMBER(temperature) NUMBER(power) NUMBER(util) NUMBER(mem_total) NUMBER(mem_used) NUMBER(sram)
            NUMBER(recovery) NUMBER(reasons) NUMBER(replay) NUMBER(fabric_state) NUMBER(fabric_status)
            NUMBER(fabric_mask) NUMBER(links_up) NUMBER(links_down) NUMBER(links_unread) NUMBER(xid)
        }
        else if (!strncmp(line, "init hang", 9)) init_code = -1;
        else if (!strncmp(line, "init crash", 10)) init_code = -2;
        else if (sscanf(line, "init slow %d", &init_ms) == 1) continue;
        else if (sscanf(line, "init %d", &init_code) == 1) continue;
        else if (sscanf(line, "generation %d", &generation) == 1) continue;
        else if (sscanf(line, "count %d", &count) == 1) continue;
        else if (!strncmp(line, "driver ", 7)) text(driver, sizeof driver, line + 7);
        else if (sscanf(line, "fail %63s %d", fn, &code) == 2 && nfails < MAX_FAILS) {
            fails[nfails].gpu = -1; fails[nfails].code = code; strcpy(fails[nfails++].fn, fn);
        }
    }
    fclose(f);
}

/* What a call about GPU `g` (NULL: about the machine) answers before it does anything; hangs or crashes here. */
static int answer(const char *fn, struct gpu *g) {
    int i;
    if (!ready || ready_generation != generation) return 1;
    for (i = 0; i < nfails; i++)
        if ((fails[i].gpu < 0 || (g && fails[i].gpu == g - gpus)) && !strcmp(fails[i].fn, fn)) return fails[i].code;
    if (!g) return 0;
    if (!strcmp(g->hang, fn)) stop_here("hang");
    if (!strcmp(g->crash, fn)) stop_here("crash");
    return g->lost ? 15 : 0;
}
#define CALL(g) do { int a_ = answer(__func__, (g)); if (a_) return a_; } while (0)

int nvmlInitWithFlags(unsigned flags) {
    const char *path = getenv("NVML_DOUBLE_INITS");
    FILE *inits = path ? fopen(path, "a") : NULL;
    (void)flags;
    if (inits) { fputc('i', inits); fclose(inits); }
    load();
    usleep((unsigned)init_ms * 1000);
    if (init_code == -1) stop_here("hang");
    if (init_code == -2) stop_here("crash");
    if (init_code) return init_code;
    ready = 1;
    ready_generation = generation;
    return 0;
}
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) { if (!ready) return 1; ready = 0; return 0; }
const char *nvmlErrorString(int code) { return code < 19 ? "an error" : "Unknown Error"; }
int nvmlSystemGetDriverVersion(char *to, unsigned n) { CALL(NULL); snprintf(to, n, "%s", driver); return 0; }
int nvmlDeviceGetCount_v2(unsigned *n) { load(); CALL(NULL); *n = (unsigned)count; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, struct gpu **g) {
    load();
    if (i >= (unsigned)count) return 2;
    if (gpus[i].handle) return gpus[i].handle;
    *g = &gpus[i];
    /* A GPU that is lost while handles are held is found out only by the calls that follow. */
    int lost = gpus[i].lost;
    gpus[i].lost = 0;
    int code = answer(__func__, &gpus[i]);
    gpus[i].lost = lost;
    return code;
}
int nvmlDeviceGetUUID(struct gpu *g, char *to, unsigned n) { CALL(g); snprintf(to, n, "%s", g->uuid); return 0; }
int nvmlDeviceGetSerial(struct gpu *g, char *to, unsigned n) { CALL(g); snprintf(to, n, "%s", g->serial); return 0; }
int nvmlDeviceGetName(struct gpu *g, char *to, unsigned n) { CALL(g); snprintf(to, n, "%s", g->name); return 0; }
struct pci { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; };
int nvmlDeviceGetPciInfo_v3(struct gpu *g, struct pci *p) {
    CALL(g);
    memset(p, 0, sizeof *p);
    p->domain = g->domain; p->bus = g->bus; p->device = g->device; p->id = 0x233010de;
    snprintf(p->bus_id, sizeof p->bus_id, "%08X:%02X:%02X.0", g->domain, g->bus, g->device);
    return 0;
}
int nvmlDeviceGetTemperature(struct gpu *g, int sensor, unsigned *v) {
    CALL(g); (void)sensor; *v = (unsigned)g->temperature; return 0;
}
int nvmlDeviceGetPowerUsage(struct gpu *g, unsigned *v) { CALL(g); *v = (unsigned)g->power; return 0; }
int nvmlDeviceGetUtilizationRates(struct gpu *g, unsigned *v) { CALL(g); v[0] = (unsigned)g->util; v[1] = 0; return 0; }
int nvmlDeviceGetMemoryInfo(struct gpu *g, u64 *v) {
    CALL(g);
    v[0] = (u64)g->mem_total << 20; v[2] = (u64)g->mem_used << 20; v[1] = v[0] - v[2];
    return 0;
}
int nvmlDeviceGetTotalEccErrors(struct gpu *g, int type, int counter, u64 *v) {
    CALL(g); *v = g->ecc[counter * 2 + type]; return 0;
}
struct sram { unsigned version; u64 counts[11]; unsigned exceeded; };
int nvmlDeviceGetSramEccErrorStatus(struct gpu *g, struct sram *s) {
    CALL(g);
    if (s->version != 0x1000068) return 25;
    memset(s->counts, 0, sizeof s->counts);
    s->exceeded = (unsigned)g->sram;
    return 0;
}
int nvmlDeviceGetRemappedRows(struct gpu *g, unsigned *c, unsigned *u, unsigned *p, unsigned *f) {
    CALL(g); *c = g->remap[0]; *u = g->remap[1]; *p = g->remap[2]; *f = g->remap[3]; return 0;
}
struct field { uint32_t id, scope; int64_t at, latency; int type, ret; union { double d; unsigned ui; u64 ull; } v; };
int nvmlDeviceGetFieldValues(struct gpu *g, int n, struct field *f) {
    int i;
    CALL(g);
    for (i = 0; i < n; i++) {
        memset(&f[i].v, 0, sizeof f[i].v);
        f[i].type = 1;
        f[i].ret = f[i].id == 230 && g->recovery >= 0 ? 0 : 3;
        if (!f[i].ret) f[i].v.ui = (unsigned)g->recovery;
    }
    return 0;
}
int nvmlDeviceGetCurrentClocksEventReasons(struct gpu *g, u64 *v) { CALL(g); *v = (u64)g->reasons; return 0; }
int nvmlDeviceGetPcieReplayCounter(struct gpu *g, unsigned *v) { CALL(g); *v = (unsigned)g->replay; return 0; }
struct fabric { unsigned version; unsigned char cluster[16]; int status; uint32_t clique; unsigned char state; uint32_t mask; };
int nvmlDeviceGetGpuFabricInfoV(struct gpu *g, struct fabric *f) {
    CALL(g);
    if (f->version >> 24 != 2) return 25;
    f->status = (int)g->fabric_status; f->state = (unsigned char)g->fabric_state; f->mask = (uint32_t)g->fabric_mask;
    return 0;
}
int nvmlDeviceGetNvLinkState(struct gpu *g, unsigned link, int *active) {
    long long links = g->links_up + g->links_down;
    CALL(g);
    if (link >= links && link < links + g->links_unread) return 999;
    if (link >= (links ? links : 18)) return 2;
    *active = link < g->links_up;
    return 0;
}
struct event { struct gpu *device; u64 type, data; unsigned gpu_instance, compute_instance; };
int nvmlEventSetCreate(void **set) { static int it; CALL(NULL); *set = &it; return 0; }
int nvmlEventSetFree(void *set) { (void)set; return 0; }
int nvmlDeviceRegisterEvents(struct gpu *g, u64 types, void *set) { CALL(g); (void)types; (void)set; return 0; }
int nvmlEventSetWait_v2(void *set, struct event *e, unsigned timeout_ms) {
    unsigned waited;
    int i;
    (void)set;
    for (waited = 0;; waited += 10) {
        load();
        CALL(NULL);
        for (i = 0; i < count; i++)
            if (gpus[i].xid && gpus[i].xid != xid_seen[i]) {
                memset(e, 0, sizeof *e);
                e->device = &gpus[i]; e->type = 8; e->data = (u64)(xid_seen[i] = gpus[i].xid);
                e->gpu_instance = e->compute_instance = 0xFFFFFFFF;
                return 0;
            }
        if (waited >= timeout_ms) return 10;
        usleep(10000);
    }
}
