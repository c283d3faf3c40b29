/* SPDX-License-Identifier: Apache-2.0 */
/* Device profiles: the cost of a step, and the built-in table.
 *
 * Graphics processors have the peaks of their makers' data sheets (dense, without sparsity, boost
 * clock), so predicted times are below real ones there; the planner compares ratios.
 *     MATMUL_F32    FP32 outside of the tensor cores: results keep 24 bits
 *     MATMUL_F64    on the tensor cores where they do it
 *     VECTOR        half of FP32: a data sheet counts a fused multiply-add as two
 *     SPECIAL       16 results per clock and multiprocessor (CUDA C++ Programming Guide, table
 *                   "Throughput of Native Arithmetic Instructions"): FP32 / 8 where it has 64
 *                   lanes, FP32 / 16 where it has 128
 *     SCALAR        VECTOR / 8: an access of 4 bytes moves a sector of 32
 *     WINDOW        FP32 / 4: two loads for a multiply-add
 *
 * The overhead is that of a kernel within a CUDA graph, about 1.5 microseconds. Memory of the host
 * is connected by PCI Express with 16 lanes. Data sheets give the sum of both directions; one
 * direction has 16 GB/s in generation 3, 32 in 4, 64 in 5.
 *
 * The bytes of a process were counted on one machine, with glibc 2.36, libgomp 12 and oneDNN 2.6 on
 * Linux (x86-64), and set by hand above what some 30 networks took there. */
#include "codegen/kernel/profile.h"
#include "codegen/kernel/threads.h"
#include "codegen/kernel/waves.h"

#include <string.h>

#define KIB ((uint64_t)1 << 10)
#define GIB ((uint64_t)1 << 30)

/* A graphics processor: peaks in units of 10^12 operations a second, as in data sheets (thousands
 * per nanosecond); `special`: FP32 operations for one special result. */
#define GPU(name_, source_, f32, tf32, f64, f16, int8, special, gigabytes, memory_gib,             \
            processors_, shared_kib, host, capability_)                                            \
    {                                                                                              \
        .name = (name_), .source = (source_),                                                      \
        .rates =                                                                                   \
            {[UL_WORK_MATMUL_F32] = 1e3 * (f32),   [UL_WORK_MATMUL_TF32] = 1e3 * (tf32),           \
             [UL_WORK_MATMUL_F64] = 1e3 * (f64),   [UL_WORK_MATMUL_F16] = 1e3 * (f16),             \
             [UL_WORK_MATMUL_INT8] = 1e3 * (int8), [UL_WORK_WINDOW] = 1e3 * (f32) / 4,             \
             [UL_WORK_VECTOR] = 1e3 * (f32) / 2,   [UL_WORK_SPECIAL] = 1e3 * (f32) / (special),    \
             [UL_WORK_SCALAR] = 1e3 * (f32) / 16},                                                 \
        .overhead_ns = 1500, .memory_bytes = (memory_gib)*GIB, .host_rate = (host),                \
        .device = {.processors = (processors_),                                                    \
                   .launch_cycles = 4000,                                                          \
                   .shared_bytes = 49152,                                                          \
                   .max_shared_bytes = (shared_kib)*KIB,                                           \
                   .capability = (capability_)},                                                   \
        .level_count = 1, .levels = {                                                              \
            {.capacity_bytes = UINT64_MAX, .rate = (gigabytes)}                                    \
        }                                                                                          \
    }

/* One core of a board, at the peak of its clock: `f32` operations a nanosecond, a fused
 * multiply-add being two; `special`: operations for one special result, which a library computes. A
 * copy to other memory of the host reads and writes; `file`: on the card from which the board
 * boots. */
#define CORE(name_, source_, f32, special, overhead_ns_, gigabytes, memory, file)                  \
    {                                                                                              \
        .name = (name_), .source = (source_),                                                      \
        .rates = {[UL_WORK_MATMUL_F32] = (f32),     [UL_WORK_MATMUL_TF32] = (f32),                 \
                  [UL_WORK_MATMUL_F64] = (f32) / 2, [UL_WORK_MATMUL_F16] = (f32),                  \
                  [UL_WORK_MATMUL_INT8] = (f32),    [UL_WORK_WINDOW] = (f32) / 2,                  \
                  [UL_WORK_VECTOR] = (f32) / 2,     [UL_WORK_SPECIAL] = (f32) / (special),         \
                  [UL_WORK_SCALAR] = (f32) / 4},                                                   \
        .overhead_ns = (overhead_ns_), .memory_bytes = (memory), .host_rate = (gigabytes) / 2,     \
        .file_rate = (file), .level_count = 1, .levels = {                                         \
            {.capacity_bytes = UINT64_MAX, .rate = (gigabytes)}                                    \
        }                                                                                          \
    }

static const struct ul_profile profiles[] = {
    {.name = UL_PROFILE_DEFAULT,
     .source = "no machine: a core of 3 GHz with AVX2, as ullage's kernels use one",
     .rates = {[UL_WORK_MATMUL_F32] = 60,
               [UL_WORK_MATMUL_TF32] = 60,
               [UL_WORK_MATMUL_F64] = 30,
               [UL_WORK_MATMUL_F16] = 50,
               [UL_WORK_MATMUL_INT8] = 50,
               [UL_WORK_WINDOW] = 40,
               [UL_WORK_VECTOR] = 20,
               [UL_WORK_SPECIAL] = 2,
               [UL_WORK_SCALAR] = 12},
     .overhead_ns = 5,
     .host_rate = 6,
     .file_rate = 1,
     .process = {.code_bytes = 2024 * KIB,
                 .last_code_bytes = 224 * KIB,
                 .threads_code_bytes = 300 * KIB,
                 .runtime_bytes = 300 * KIB,
                 .stack_bytes = 64 * KIB,
                 .calls = {.code_bytes = 1244 * KIB,
                           .windows_code_bytes = 640 * KIB,
                           .runtime_bytes = 856 * KIB,
                           .load_bytes = 7200 * KIB,
                           .idle_bytes = 928 * KIB,
                           .making_bytes = 4416 * KIB}},
     .level_count = 4,
     .levels = {{(uint64_t)64 << 10, 100},
                {(uint64_t)2 << 20, 60},
                {(uint64_t)32 << 20, 30},
                {UINT64_MAX, 12}}},
    /* name, source, FP32, TF32, FP64, FP16, INT8, special, GB/s, GiB, multiprocessors, KiB of
     * shared memory that a block may ask for (CUDA C++ Programming Guide), GB/s to the host,
     * compute capability
     */
    GPU("v100-sxm2",
        "NVIDIA Tesla V100 data sheet (FP64 and FP32 without tensor cores, no TF32; "
        "INT8 by dp4a)",
        15.7, 15.7, 7.8, 125, 62.8, 8, 900, 32, 80, 96, 16, 70),
    GPU("v100-pcie", "NVIDIA Tesla V100 data sheet (no TF32; INT8 by dp4a)", 14, 14, 7, 112, 56, 8,
        900, 32, 80, 96, 16, 70),
    GPU("t4", "NVIDIA T4 data sheet (no TF32); FP64 1/32 of FP32", 8.1, 8.1, 0.253, 65, 130, 8, 320,
        16, 40, 64, 16, 75),
    GPU("a100-40gb", "NVIDIA A100 40GB data sheet (PCIe and SXM)", 19.5, 156, 19.5, 312, 624, 8,
        1555, 40, 108, 163, 32, 80),
    GPU("a100-80gb-pcie", "NVIDIA A100 80GB data sheet", 19.5, 156, 19.5, 312, 624, 8, 1935, 80,
        108, 163, 32, 80),
    GPU("a100-80gb-sxm", "NVIDIA A100 80GB data sheet", 19.5, 156, 19.5, 312, 624, 8, 2039, 80, 108,
        163, 32, 80),
    GPU("a30", "NVIDIA A30 data sheet", 10.3, 82, 10.3, 165, 330, 8, 933, 24, 56, 163, 32, 80),
    GPU("a10", "NVIDIA A10 data sheet; FP64 1/64 of FP32", 31.2, 62.5, 0.488, 125, 250, 16, 600, 24,
        72, 99, 32, 86),
    GPU("a40", "NVIDIA A40 data sheet; FP64 1/64 of FP32", 37.4, 74.8, 0.584, 149.7, 299.3, 16, 696,
        48, 84, 99, 32, 86),
    GPU("l4", "NVIDIA L4 data sheet (tensor figures halved: it has sparse ones); FP64 1/64 of FP32",
        30.3, 60, 0.473, 121, 242.5, 16, 300, 24, 58, 99, 32, 89),
    GPU("l40", "NVIDIA L40 data sheet; FP64 1/64 of FP32", 90.5, 90.5, 1.414, 181.05, 362, 16, 864,
        48, 142, 99, 32, 89),
    GPU("l40s", "NVIDIA L40S data sheet; FP64 1/64 of FP32", 91.6, 183, 1.431, 362.05, 733, 16, 864,
        48, 142, 99, 32, 89),
    GPU("h100-pcie", "NVIDIA H100 data sheet (tensor figures halved: it has sparse ones)", 51, 378,
        51, 756.5, 1513, 16, 2000, 80, 114, 227, 64, 90),
    GPU("h100-sxm", "NVIDIA H100 data sheet (tensor figures halved: it has sparse ones)", 67, 494.5,
        67, 989.5, 1979, 16, 3350, 80, 132, 227, 64, 90),
    GPU("h200-sxm", "NVIDIA H200 data sheet (tensor figures halved: it has sparse ones)", 67, 494.5,
        67, 989.5, 1979, 16, 4800, 141, 132, 227, 64, 90),
    GPU("rtx-3090", "NVIDIA Ampere GA102 white paper (FP16 summed in FP32); FP64 1/64 of FP32",
        35.6, 35.6, 0.556, 71, 284, 16, 936, 24, 82, 99, 32, 86),
    GPU("rtx-4090", "NVIDIA Ada white paper (FP16 summed in FP32); FP64 1/64 of FP32", 82.6, 82.6,
        1.29, 165.2, 660.6, 16, 1008, 24, 128, 99, 32, 89),
    CORE("rpi-4-4gb",
         "Raspberry Pi 4 product brief; a Cortex-A72 of 1.5 GHz, 128-bit FP32 multiply-add a cycle",
         12.0, 40, 20, 12.8, 4 * GIB, 0.05),
    CORE("rpi-5-8gb",
         "Raspberry Pi 5 product brief; a Cortex-A76 of 2.4 GHz, two 128-bit FP32 multiply-adds",
         38.4, 60, 12, 17.1, 8 * GIB, 0.104),
    CORE("stm32h743", "ST DS12110; a Cortex-M7 of 480 MHz, an FP32 multiply-add a cycle", 0.96, 40,
         60, 1.9, 1024 * KIB, 0),
    CORE("stm32f746", "ST DS10916; a Cortex-M7 of 216 MHz, an FP32 multiply-add a cycle", 0.432, 40,
         130, 0.86, 320 * KIB, 0),
};

uint32_t ul_profile_count(void)
{
    return sizeof profiles / sizeof *profiles;
}

const struct ul_profile *ul_profile_at(uint32_t index)
{
    UL_ASSERT(index < ul_profile_count());
    return &profiles[index];
}

const struct ul_profile *ul_profile_find(const char *name)
{
    for (uint32_t i = 0; i < ul_profile_count(); i++) {
        if (strcmp(profiles[i].name, name) == 0)
            return &profiles[i];
    }
    return NULL;
}

struct ul_profile_device ul_profile_device(const struct ul_profile *profile)
{
    if (profile->device.processors == 0)
        profile = ul_profile_find(UL_PROFILE_DEFAULT_DEVICE);
    UL_ASSERT(profile != NULL && profile->device.processors > 0);
    return profile->device;
}

const struct ul_profile_process *ul_profile_process(const struct ul_profile *profile)
{
    if (profile->process.code_bytes == 0)
        profile = ul_profile_find(UL_PROFILE_DEFAULT);
    UL_ASSERT(profile != NULL && profile->process.code_bytes > 0);
    return &profile->process;
}

double ul_profile_transfer_rate(const struct ul_profile *profile, bool is_file)
{
    const struct ul_profile *other = ul_profile_find(UL_PROFILE_DEFAULT);
    double rate = is_file ? profile->file_rate : profile->host_rate;
    UL_ASSERT(other->host_rate > 0 && other->file_rate > 0);
    return rate > 0 ? rate : is_file ? other->file_rate : other->host_rate;
}

static double sum_ns(const struct ul_profile *profile, const uint64_t *counts)
{
    double ns = 0;
    for (uint32_t kind = 0; kind < UL_WORK_KINDS; kind++)
        ns += (double)counts[kind] / profile->rates[kind];
    return ns;
}

/* The time of a step's operations at the rates that its tiles reach. */
static double work_ns(const struct ul_profile *profile, const struct ul_work *work)
{
    double ns = 0;
    for (uint32_t kind = 0; kind < UL_WORK_KINDS; kind++) {
        double rate = profile->rates[kind];
        if (work->counts[kind] > 0)
            rate *= ul_waves_share(profile, kind, &work->tile);
        ns += (double)work->counts[kind] / rate;
    }
    return ns;
}

/* Bytes move with the work, by the same number of threads; memory itself feeds MEMORY_CORES of
 * them. */
static double moving_ns(const struct ul_profile *profile, uint64_t bytes, uint64_t held_bytes,
                        double speed_up)
{
    static const double MEMORY_CORES = 2;
    uint32_t level = 0;
    while (held_bytes > profile->levels[level].capacity_bytes)
        level++;
    bool is_memory = level > 0 && level + 1 == profile->level_count;
    double max = is_memory && speed_up > MEMORY_CORES ? MEMORY_CORES : speed_up;
    return (double)bytes / profile->levels[level].rate / max;
}

/* The time of weights that caches forgot, where they hold `held_bytes`; 0: they did not, or the
 * device has none. */
static double cold_weights_ns(const struct ul_profile *profile, const struct ul_traffic *traffic,
                              uint64_t held_bytes, double speed_up)
{
    uint32_t last = profile->level_count - 1;
    if (last == 0 || traffic->all_weight_bytes <= held_bytes)
        return 0;
    double ns = moving_ns(profile, traffic->weight_bytes, UINT64_MAX, speed_up);
    return profile->weights_rate > 0 ? ns * (profile->levels[last].rate / profile->weights_rate)
                                     : ns;
}

/* The operations of a library's product, and its bytes, in waves of tiles; added to the call's work
 * on its results. */
static double product_ns(const struct ul_profile *profile, const struct ul_work *work,
                         double moved_ns)
{
    const struct ul_work_product *product = &work->product;
    double whole_ns = (double)work->counts[product->kind] / profile->rates[product->kind];
    double beside_ns = sum_ns(profile, work->counts) - whole_ns;
    double ns = ul_waves_product_ns(profile, product, moved_ns);
    ns = ns > whole_ns ? ns : whole_ns;
    return beside_ns > 0 ? ns + beside_ns : ns;
}

/* The longer of operations and bytes; `moved_ns` is the time of the bytes on a full device. */
static double spread_ns(const struct ul_profile *profile, const struct ul_work *work,
                        double moved_ns)
{
    if (work->product.m > 0 && profile->device.processors > 0)
        return product_ns(profile, work, moved_ns);
    struct ul_waves waves = ul_waves_of_blocks(profile, work->block_count, work->longest_block);
    double busy_ns = work_ns(profile, work) * waves.work;
    moved_ns *= waves.memory;
    return busy_ns > moved_ns ? busy_ns : moved_ns;
}

/* The time of one round of a step. */
static double round_ns(const struct ul_profile *profile, const struct ul_work *work,
                       const struct ul_traffic *traffic, uint64_t held_bytes)
{
    double busy_ns = sum_ns(profile, work->counts);
    double spared_ns = sum_ns(profile, work->spared_counts);
    double speed_up = spared_ns > 0 && busy_ns > 0 ? (busy_ns + spared_ns) / busy_ns : 1;
    double moved_ns = moving_ns(profile, traffic->moved_bytes - traffic->weight_bytes,
                                traffic->moved_bytes, speed_up);
    double cold_ns = cold_weights_ns(profile, traffic, held_bytes, speed_up);
    if (!(cold_ns > 0))
        moved_ns += moving_ns(profile, traffic->weight_bytes, traffic->all_weight_bytes, speed_up);
    double ns = spread_ns(profile, work, moved_ns) + cold_ns +
                profile->overhead_ns * (double)(work->launch_count > 0 ? work->launch_count : 1);
    return ns + (double)work->region_count * UL_REGION_NS; /* whole numbers: nothing is rounded */
}

/* Whole nanoseconds, rounded up, at least 1. */
static uint64_t whole_ns(double ns)
{
    if (ns >= (double)UL_PROFILE_MAX_NS)
        return UL_PROFILE_MAX_NS;
    uint64_t cost = (uint64_t)ns;
    return cost + ((double)cost < ns || cost == 0 ? 1 : 0);
}

/* In the first round weights were last read one run ago, in the others one round ago. */
uint64_t ul_profile_cost(const struct ul_profile *profile, const struct ul_work *work,
                         const struct ul_traffic *traffic, uint64_t rounds)
{
    UL_ASSERT(profile->level_count > 0 && profile->level_count <= UL_PROFILE_LEVELS);
    UL_ASSERT(traffic->weight_bytes <= traffic->moved_bytes);
    uint32_t last = profile->level_count - 1;
    uint64_t held_bytes = last == 0 ? 0 : profile->levels[last - 1].capacity_bytes;
    double each_ns = round_ns(profile, work, traffic, held_bytes);
    uint64_t cost = whole_ns(each_ns * (double)rounds);
    if (profile->held_weight_bytes == 0 || profile->held_weight_bytes >= held_bytes || rounds == 0)
        return cost;
    double first_ns = round_ns(profile, work, traffic, profile->held_weight_bytes);
    if (first_ns > each_ns)
        cost += whole_ns(first_ns - each_ns);
    return cost < UL_PROFILE_MAX_NS ? cost : UL_PROFILE_MAX_NS;
}
