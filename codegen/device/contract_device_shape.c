/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses how a grid runs a contraction, from its shape and its strides only.
 *
 * Large problems are cut into tiles of sums, with more sums for each thread the larger they are: a
 * thread with 8 x 8 sums reads 16 elements of shared memory for 64 products, one with 4 x 4 reads 8
 * for 16; but there have to be as many tiles as keep a device busy, and where there are few, groups
 * of threads share the k of a small tile. The choice is the minimum of what a simple model of a
 * device predicts. Where even small tiles are few, k is cut into contractions of their own. Tiny or
 * irregular contractions have a thread for each sum, long sums of two vectors have a warp each.
 * Operands of 8 bits are multiplied as words of four neighbours of k, however these are read. */
#include "codegen/device/contract_device.h"
#include "ir/kernel_build.h"

#include <string.h>

enum {
    EACH_THREADS = 128,
    DOT_THREADS = 256,
    MIN_DEPTH = 8,    /* k of a tile */
    MIN_SIDE = 4,     /* m and n of a tile over a short k */
    MMA_BYTES = 16,   /* of k: half of what tensor cores take at once */
    LONG_DEPTH = 128, /* of k: any tile is better than one thread for each sum */
    MIN_SUMS = 64,
    DOT_DEPTH = 64,
    DOT_SUMS = 4,
    MAX_PARTIALS = 64,             /* into which k is cut */
    MIN_PARTIALS_BYTES = 1 << 20,  /* which parts may always take */
    IDLE_PARTIALS_BYTES = 4 << 20, /* where a device would be idle for long without parts */
    MIN_PARTIAL = 64,              /* of k */
    RUN = 16                       /* neighbours along k that stay together */
};

#define TURN_CYCLES 700.0     /* for reading one tile of operands and waiting for it */
#define TILE_BYTES_CYCLE 40.0 /* of operands that a multiprocessor reads, and others too */
#define OUT_CYCLES 200.0      /* of waiting, where sums are stored through shared memory */
#define LANES 32              /* elements that shared memory takes in a cycle */
#define BYTES_CYCLE 2000.0    /* that all multiprocessors read or write */
#define WORTH_CUTTING 0.8     /* of the cycles without parts, at most */
#define PRODUCTS_CYCLE 128.0  /* of a multiprocessor */
#define MMA_CYCLE 1024.0      /* the same on tensor cores */
#define WORDS_CYCLE 64.0      /* for words of four bytes */
#define MMA_WORDS_CYCLE 512.0 /* the same on tensor cores */

/* Joins the uses of all users. */
static void join_uses(struct ul_contract_device_plan *plan, struct ul_arena *arena)
{
    const struct ul_contract_uses *users[] = {&plan->base.a_uses, &plan->base.b_uses,
                                              &plan->base.epilogue_uses};
    struct ul_contract_uses *all = &plan->uses;
    for (uint32_t u = 0; u < 3; u++) {
        for (uint32_t i = 0; i < users[u]->count; i++) {
            UL_GROW(arena, all->indexes, all->count, all->capacity);
            all->indexes[all->count++] = users[u]->indexes[i];
        }
        for (uint32_t d = 0; d < UL_CONTRACT_DIMS; d++) {
            all->is_opaque[d] |= users[u]->is_opaque[d];
            all->is_mentioned[d] |= users[u]->is_mentioned[d];
        }
        all->mentions_acc |= users[u]->mentions_acc;
    }
}

/* Whether the expression is always within +- max. */
static bool is_within(const struct ul_kernel *kernel, ul_kx x, int64_t max)
{
    int64_t value;
    if (ul_kx_is_int(kernel, x, &value))
        return ul_magnitude(value) <= max;
    return kernel->exprs[x].low >= -max && kernel->exprs[x].high <= max;
}

bool ul_contract_device_is_short(const struct ul_contract_plan *plan,
                                 const struct ul_contract_uses *uses,
                                 const struct ul_kernel *kernel)
{
    const struct ul_contraction *c = plan->contraction;
    const int64_t max = (int64_t)1 << 29;
    if (plan->m > max || plan->n > max || plan->k > max ||
        (double)plan->m * (double)plan->n > (double)max)
        return false;
    for (uint32_t i = 0; i < uses->count; i++) {
        double reach = 0;
        for (uint32_t d = 0; d < c->m_count + c->n_count + c->k_count; d++)
            reach += (double)ul_magnitude(uses->indexes[i].strides[d]) * (double)c->extents[d];
        if (reach > (double)max)
            return false;
    }
    for (uint32_t i = 0; i < c->a.bound_count; i++)
        if (!is_within(kernel, c->a.bounds[i].at.base, max))
            return false;
    for (uint32_t i = 0; i < c->b.bound_count; i++)
        if (!is_within(kernel, c->b.bounds[i].at.base, max))
            return false;
    return true;
}

static int64_t last_stride(const struct ul_affine *at, const struct ul_contract_dims *dims)
{
    return ul_magnitude(at->strides[dims->carrier[dims->count - 1]]);
}

/* Whether the operand's neighbours are along k rather than along its other dimensions. */
static bool is_along_k(const struct ul_affine *at, const struct ul_contract_dims *k,
                       const struct ul_contract_dims *beside)
{
    int64_t by_k = last_stride(at, k), by_other = last_stride(at, beside);
    return by_k != 0 && (by_other == 0 || by_k < by_other);
}

/* Whether more of the epilogue's indexes have stride 1 along m than along n. */
static bool puts_along_m(const struct ul_contract_plan *base)
{
    uint32_t along_m = 0, along_n = 0;
    for (uint32_t i = 0; i < base->epilogue_uses.count; i++) {
        const struct ul_affine *at = &base->epilogue_uses.indexes[i];
        int64_t by_m = last_stride(at, &base->out_m), by_n = last_stride(at, &base->out_n);
        along_m += by_m == 1 && by_n != 0;
        along_n += by_n == 1 && by_m != 0;
    }
    return along_m > along_n;
}

/* Whether `pack` neighbours from any multiple of it on are contiguous, and the runs that contain
 * them too. */
static bool is_packed(const struct ul_operand *operand, const struct ul_contract_dims *along,
                      const struct ul_contract_dims *other, int64_t pack)
{
    uint32_t last = along->carrier[along->count - 1];
    if (operand->at.strides[last] != 1 || along->extents[along->count - 1] % pack != 0)
        return false;
    for (uint32_t i = 0; i + 1 < along->count; i++)
        if (operand->at.strides[along->carrier[i]] % pack != 0)
            return false;
    for (uint32_t i = 0; i < other->count; i++)
        if (operand->at.strides[other->carrier[i]] % pack != 0)
            return false;
    for (uint32_t i = 0; i < operand->bound_count; i++)
        if (operand->bounds[i].at.strides[last] != 0)
            return false;
    return true;
}

struct ul_contract_device_reading ul_contract_device_read_by(const struct ul_contract_plan *plan,
                                                             char name, int max)
{
    UL_ASSERT((name == 'a' || name == 'b') && max > 0);
    bool is_a = name == 'a';
    const struct ul_operand *operand = is_a ? &plan->contraction->a : &plan->contraction->b;
    const struct ul_contract_dims *k = is_a ? &plan->a_k : &plan->b_k;
    const struct ul_contract_dims *beside = is_a ? &plan->a_m : &plan->b_n;
    struct ul_contract_device_reading reading = {is_along_k(&operand->at, k, beside), 1};
    if (operand->packed != UL_DTYPE_NONE ||
        (operand->transform != UL_NONE && !ul_contract_is_bytes(plan)))
        return reading;
    for (int pack = max; pack > 1 && reading.pack == 1; pack /= 2)
        if (is_packed(operand, reading.along_k ? k : beside, reading.along_k ? beside : k, pack))
            reading.pack = pack;
    return reading;
}

/* Cycles of all contractions that run together; `peak`: products that a multiprocessor forms at
 * best. */
static double cycles_of(const struct ul_contract_device_plan *plan,
                        const struct ul_contract_device_tile *tile, double peak)
{
    const struct ul_contract_plan *base = &plan->base;
    double processors = plan->device->processors;
    double tiles = (double)ul_div_up(base->m, tile->m) * (double)ul_div_up(base->n, tile->n) *
                   (double)plan->batch;
    double waves = (double)(int64_t)((tiles + processors - 1) / processors);
    double turns = (double)ul_div_up(plan->depth, tile->k);
    double products = (double)tile->m * (double)tile->n * turns * (double)tile->k;
    /* fraction of the peak that reading shared memory leaves */
    double side = (double)(tile->thread_m * tile->thread_n) / (tile->thread_m + tile->thread_n);
    double cycles = products * (side + 1) / (peak * side);
    double bytes =
        turns * (double)(tile->k * (tile->m + tile->n)) *
        (double)(plan->form == UL_CONTRACT_DEVICE_MMA && !plan->is_bytes ? 2 : base->element_bytes);
    cycles = bytes > cycles * TILE_BYTES_CYCLE ? bytes / TILE_BYTES_CYCLE : cycles;
    /* sums that are stored through shared memory */
    double out = 2.0 * tile->splits * tile->m * tile->n / LANES + OUT_CYCLES;
    return waves * (cycles + out) + (waves < 2 ? 1 : waves / 2) * turns * TURN_CYCLES;
}

static int min(int a, int b)
{
    return a < b ? a : b;
}

static int max(int a, int b)
{
    return a > b ? a : b;
}

/* Bytes of shared memory in struct ul_tile of runtime/cuda/ul_contract.cuh. */
static int tile_bytes(const struct ul_contract_plan *base,
                      const struct ul_contract_device_tile *tile)
{
    int bytes = (int)base->element_bytes, pad = 16 / bytes;
    int across = tile->n / tile->thread_n, down = tile->m / tile->thread_m;
    int stage = tile->k * (tile->m + tile->n + 2 * pad);
    int out = max(down * (tile->n + pad), across * (tile->m + pad));
    if (tile->splits > 1)
        out = tile->splits * tile->m * (tile->n + pad);
    return max(tile->stages * stage, out) * bytes;
}

/* The same for struct ul_mma, whose operands may change places. */
static int mma_bytes(const struct ul_contract_plan *base,
                     const struct ul_contract_device_tile *tile)
{
    (void)base;
    int warps = tile->m / tile->thread_m * (tile->n / tile->thread_n);
    int stages = tile->stages * (tile->m + tile->n) * tile->k;
    int side = max(tile->thread_m, tile->thread_n);
    UL_ASSERT(tile->stages >= 2);
    return 2 * max(stages, warps * 16 * (side + 8) * 2);
}

/* The same for struct ul_mma_bytes. */
static int mma_words(const struct ul_contract_plan *base,
                     const struct ul_contract_device_tile *tile)
{
    int warps = tile->m / tile->thread_m * (tile->n / tile->thread_n);
    int stage = (tile->m + tile->n) * (tile->k + 4);
    return (int)base->element_bytes * max(tile->stages * stage, warps * 16 * (tile->thread_n + 4));
}

/* Chooses the tile with the fewest cycles that fits the shared memory of every device. */
static void choose_tile(struct ul_contract_device_plan *plan,
                        const struct ul_contract_device_tile *tiles, uint32_t count, double peak,
                        int (*bytes_of)(const struct ul_contract_plan *base,
                                        const struct ul_contract_device_tile *tile))
{
    double min_cycles = 0;
    for (uint32_t i = 0; i < count; i++) {
        double cycles = cycles_of(plan, &tiles[i], peak);
        if (bytes_of(&plan->base, &tiles[i]) > (int)plan->device->shared_bytes ||
            (min_cycles > 0 && cycles >= min_cycles))
            continue;
        min_cycles = plan->cycles = cycles;
        plan->tile = tiles[i];
    }
    UL_ASSERT(plan->cycles > 0);
    plan->grid.shared_bytes = (uint32_t)bytes_of(&plan->base, &plan->tile);
    UL_ASSERT(plan->grid.shared_bytes <= plan->device->shared_bytes);
    plan->grid.tile_count =
        ul_div_up(plan->base.m, plan->tile.m) * ul_div_up(plan->base.n, plan->tile.n);
}

/* For bytes, with at most `most` words at once: where k is not contiguous, four rows of four become
 * four words. */
static struct ul_contract_device_reading read_bytes(const struct ul_contract_plan *base, char name,
                                                    int words)
{
    struct ul_contract_device_reading reading = ul_contract_device_read_by(base, name, 4 * words);
    UL_ASSERT(words > 0 && words <= 4);
    if (!reading.along_k)
        reading = ul_contract_device_read_by(base, name, words == 4 ? 4 : 1);
    reading.pack = reading.pack < 4 ? 1 : reading.pack;
    return reading;
}

static void choose_threads_tile(struct ul_contract_device_plan *plan)
{
    static const struct ul_contract_device_tile tiles[] = {
        {128, 128, 8, 8, 8, 1, 2}, {64, 128, 16, 4, 8, 1, 2},  {128, 64, 16, 8, 4, 1, 2},
        {64, 64, 16, 8, 4, 1, 2},  {64, 32, 32, 8, 4, 4, 2},   {32, 64, 32, 4, 8, 4, 2},
        {64, 64, 16, 4, 4, 1, 2},  {32, 32, 64, 4, 4, 4, 2},   {16, 64, 32, 4, 4, 4, 2},
        {64, 16, 32, 4, 4, 4, 2},  {16, 16, 128, 4, 4, 16, 2}, {8, 64, 32, 4, 4, 8, 2},
        {64, 8, 32, 4, 4, 8, 2}};
    uint32_t skip = plan->base.element_bytes > 4 ? 6 : 0; /* sums must fit registers */
    plan->form = UL_CONTRACT_DEVICE_TILE;
    choose_tile(plan, tiles + skip, (uint32_t)(sizeof tiles / sizeof tiles[0]) - skip,
                plan->is_bytes ? WORDS_CYCLE : PRODUCTS_CYCLE, tile_bytes);
    const struct ul_contract_plan *base = &plan->base;
    const struct ul_contract_device_tile *tile = &plan->tile;
    int threads = tile->m / tile->thread_m * (tile->n / tile->thread_n) * tile->splits;
    int pack = 16 / (int)base->element_bytes;
    plan->grid.threads = (uint32_t)threads;
    plan->grid.min_blocks = 1;
    UL_ASSERT(threads >= 32 && threads <= 1024);
    if (plan->is_bytes) {
        plan->a = read_bytes(base, 'a', min(4, tile->m * tile->k / threads));
        plan->b = read_bytes(base, 'b', min(4, tile->n * tile->k / threads));
        return;
    }
    plan->a = ul_contract_device_read_by(base, 'a',
                                         base->a_same ? min(pack, tile->m * tile->k / threads) : 1);
    plan->b = ul_contract_device_read_by(base, 'b',
                                         base->b_same ? min(pack, tile->n * tile->k / threads) : 1);
}

const char *ul_contract_device_kind(enum ul_dtype dtype)
{
    return dtype == UL_F16 ? "ul_float16" : dtype == UL_BF16 ? "ul_bfloat16" : NULL;
}

static const char *kind_of(const struct ul_kernel *kernel, const struct ul_operand *operand)
{
    enum ul_dtype dtype = ul_operand_dtype(kernel, operand);
    bool is_zero_outside = !(operand->outside < 0) && !(operand->outside > 0);
    if (operand->transform != UL_NONE || (operand->bound_count > 0 && !is_zero_outside))
        return NULL;
    return ul_contract_device_kind(dtype);
}

static bool wants_mma(const struct ul_contract_device_plan *plan, const struct ul_kernel *kernel)
{
    const struct ul_contract_plan *base = &plan->base;
    const struct ul_contraction *c = base->contraction;
    return kind_of(kernel, &c->a) != NULL && kind_of(kernel, &c->b) != NULL &&
           kernel->buffers[c->a.buffer].dtype == kernel->buffers[c->b.buffer].dtype &&
           c->acc_dtype == UL_F32 && base->m >= MIN_DEPTH && base->n >= MIN_DEPTH &&
           base->k >= MIN_DEPTH;
}

/* Chooses a tile of struct ul_mma of runtime/cuda/ul_contract.cuh. */
static void choose_mma_tile(struct ul_contract_device_plan *plan, const struct ul_kernel *kernel)
{
    static const struct ul_contract_device_tile tiles[] = {
        {128, 128, 32, 64, 32, 1, 3}, {64, 128, 32, 32, 32, 1, 4}, {128, 64, 32, 32, 32, 1, 4},
        {64, 64, 64, 32, 32, 1, 3},   {64, 64, 32, 32, 32, 1, 4},  {32, 32, 64, 16, 16, 1, 4}};
    const struct ul_contract_plan *base = &plan->base;
    const struct ul_contract_device_tile *tile = &plan->tile;
    plan->form = UL_CONTRACT_DEVICE_MMA;
    plan->kind = kind_of(kernel, &base->contraction->a);
    choose_tile(plan, tiles, sizeof tiles / sizeof tiles[0], MMA_CYCLE, mma_bytes);
    plan->grid.threads = (uint32_t)(32 * (tile->m / tile->thread_m) * (tile->n / tile->thread_n));
    UL_ASSERT(plan->kind != NULL && plan->grid.threads <= UL_DEVICE_ROOMY_THREADS);
    plan->a = ul_contract_device_read_by(base, 'a', 8);
    plan->b = ul_contract_device_read_by(base, 'b', 8);
    /* Single elements go through registers. */
    plan->grid.min_blocks =
        plan->a.pack > 1 && plan->b.pack > 1 ? UL_DEVICE_ROOMY_THREADS / plan->grid.threads : 1;
}

/* Chooses a tile of struct ul_mma_bytes of runtime/cuda/ul_contract_bytes.cuh. */
static void choose_mma_words(struct ul_contract_device_plan *plan)
{
    static const struct ul_contract_device_tile tiles[] = {
        {128, 128, 16, 64, 32, 1, 2}, {64, 128, 16, 32, 32, 1, 2}, {128, 64, 16, 32, 32, 1, 2},
        {64, 64, 32, 32, 32, 1, 2},   {64, 64, 16, 32, 32, 1, 2},  {32, 32, 32, 16, 16, 1, 2}};
    const struct ul_contract_device_tile *tile = &plan->tile;
    plan->form = UL_CONTRACT_DEVICE_MMA;
    choose_tile(plan, tiles, sizeof tiles / sizeof tiles[0], MMA_WORDS_CYCLE, mma_words);
    plan->grid.threads = (uint32_t)(32 * (tile->m / tile->thread_m) * (tile->n / tile->thread_n));
    plan->grid.min_blocks = 1; /* where bytes are read one by one, words take many registers */
    UL_ASSERT(plan->is_bytes && plan->grid.threads <= 1024);
    plan->a = read_bytes(&plan->base, 'a', 4);
    plan->b = read_bytes(&plan->base, 'b', 4);
}

/* Loops around the contraction, each with a constant number of rounds. */
static int64_t batch_of(const struct ul_kernel *kernel, ul_ks first, uint32_t which)
{
    for (ul_ks s = first; s != UL_NONE; s = kernel->stmts[s].next) {
        const struct ul_ks_data *stmt = &kernel->stmts[s];
        int64_t count = 1, inside;
        if (stmt->kind == UL_KS_CONTRACT && stmt->contraction == which)
            return 1;
        if (stmt->kind != UL_KS_FOR && stmt->kind != UL_KS_IF)
            continue;
        if (stmt->kind == UL_KS_FOR &&
            ((stmt->flags & UL_FOR_PARALLEL) == 0 || !ul_kx_is_int(kernel, stmt->value, &count)))
            count = 1;
        inside = batch_of(kernel, stmt->body, which);
        if (inside == 0 && stmt->kind == UL_KS_IF)
            inside = batch_of(kernel, stmt->orelse, which);
        if (inside > 0)
            return inside * (count > 0 ? count : 1);
    }
    return 0;
}

int64_t ul_contract_device_batch(const struct ul_kernel *kernel,
                                 const struct ul_contraction *contraction)
{
    int64_t batch = batch_of(kernel, kernel->first, (uint32_t)(contraction - kernel->contractions));
    return batch < 1 ? 1 : batch;
}

/* Elements at once where a warp adds along k; 0 where neighbours are elsewhere. */
static int dot_pack(const struct ul_contract_device_plan *plan)
{
    const struct ul_contract_plan *base = &plan->base;
    const struct ul_contraction *c = base->contraction;
    bool a_is_short = (plan->is_bytes || plan->kinds[0] != NULL) && c->a.bound_count == 0;
    bool b_is_short = (plan->is_bytes || plan->kinds[1] != NULL) && c->b.bound_count == 0;
    int max = plan->is_bytes ? 16 : a_is_short || b_is_short ? 8 : 16 / (int)base->element_bytes;
    if (!(base->a_plain || a_is_short) || !(base->b_plain || b_is_short))
        max = 1;
    if (!ul_contract_is_regular(base) || base->k < DOT_DEPTH ||
        last_stride(&c->a.at, &base->a_k) != 1 || last_stride(&c->b.at, &base->b_k) != 1)
        return 0;
    struct ul_contract_device_reading a = ul_contract_device_read_by(base, 'a', max);
    struct ul_contract_device_reading b = ul_contract_device_read_by(base, 'b', max);
    int pack = a.along_k && b.along_k ? min(a.pack, b.pack) : 1;
    return plan->is_bytes && pack < 4 ? 1 : pack;
}

static void choose_dot(struct ul_contract_device_plan *plan)
{
    UL_ASSERT(plan->dot_pack > 0);
    const struct ul_contract_plan *base = &plan->base;
    int64_t warps = DOT_THREADS / 32;
    plan->form = UL_CONTRACT_DEVICE_DOT;
    plan->a = plan->b = (struct ul_contract_device_reading){true, plan->dot_pack};
    plan->dot_sums =
        base->m * base->n * plan->batch >= plan->device->processors * warps * 2 * DOT_SUMS
            ? DOT_SUMS
            : 1;
    plan->grid.threads = DOT_THREADS;
    plan->grid.tile_count = ul_div_up(base->m * base->n, warps * plan->dot_sums);
}

static bool wants_tile(const struct ul_contract_plan *base)
{
    int64_t side = base->m < base->n ? base->m : base->n;
    return base->m * base->n >= MIN_SUMS &&
           (base->k >= LONG_DEPTH || (base->k >= MIN_DEPTH && side >= MIN_SIDE));
}

static void choose(struct ul_contract_device_plan *plan, const struct ul_kernel *kernel)
{
    const struct ul_contract_plan *base = &plan->base;
    bool is_regular = ul_contract_is_regular(base);
    plan->cycles = 0;
    plan->is_bytes = ul_contract_is_bytes(base);
    plan->depth = plan->is_bytes ? ul_div_up(base->k, 4) : base->k;
    plan->coordinate =
        ul_contract_device_is_short(base, &plan->uses, kernel) ? "int32_t" : "int64_t";
    plan->put_along_m = puts_along_m(base);
    plan->a = plan->b = (struct ul_contract_device_reading){false, 1};
    plan->kinds[0] = base->element_bytes == 4 ? kind_of(kernel, &base->contraction->a) : NULL;
    plan->kinds[1] = base->element_bytes == 4 ? kind_of(kernel, &base->contraction->b) : NULL;
    plan->dot_pack = dot_pack(plan);
    if (plan->dot_pack > 0 && (base->m == 1 || base->n == 1)) {
        choose_dot(plan);
        return;
    }
    if (is_regular && plan->is_bytes && base->m >= MIN_DEPTH && base->n >= MIN_DEPTH &&
        base->k >= MMA_BYTES) {
        choose_mma_words(plan);
        return;
    }
    if (is_regular && wants_mma(plan, kernel)) {
        choose_mma_tile(plan, kernel);
        return;
    }
    if (is_regular && wants_tile(base)) {
        choose_threads_tile(plan);
        return;
    }
    plan->form = UL_CONTRACT_DEVICE_EACH;
    plan->is_bytes = false;
    plan->grid.threads = EACH_THREADS;
    plan->grid.tile_count = ul_div_up(base->m * base->n, EACH_THREADS);
}

void ul_contract_device_plan_init(struct ul_contract_device_plan *plan,
                                  const struct ul_kernel *kernel,
                                  const struct ul_contraction *contraction,
                                  const struct ul_profile_device *device, struct ul_arena *arena)
{
    memset(plan, 0, sizeof *plan);
    plan->device = device;
    ul_contract_device_order(plan, kernel, contraction, arena);
    const struct ul_contraction *c = &plan->contraction;
    ul_contract_plan_init(&plan->base, kernel, c, arena);
    ul_contract_narrow_find(&plan->base, kernel); /* target c has another schedule */
    join_uses(plan, arena);
    uint32_t m = c->m_count, n = c->n_count, k = c->k_count;
    ul_contract_merge(c, &plan->uses, 0, m, &plan->m);
    ul_contract_merge(c, &plan->uses, m, n, &plan->n);
    ul_contract_merge(c, &plan->uses, m + n, k, &plan->k);
    plan->batch = ul_contract_device_batch(kernel, contraction);
    choose(plan, kernel);
}

/* The dimension of k that is cut into that many parts, or UL_CONTRACT_DIMS: the longest one, where
 * whole runs of neighbours in memory stay together. */
static uint32_t split_dim(const struct ul_contraction *c, int64_t partials)
{
    UL_ASSERT(partials > 1);
    uint32_t first = c->m_count + c->n_count, best = UL_CONTRACT_DIMS;
    for (uint32_t d = first; d < first + c->k_count; d++) {
        bool is_unit = c->a.at.strides[d] == 1 || c->b.at.strides[d] == 1;
        if (c->extents[d] % (is_unit ? partials * RUN : partials) == 0 &&
            (best == UL_CONTRACT_DIMS || c->extents[d] > c->extents[best]))
            best = d;
    }
    return best;
}

/* Whether there is much to multiply for blocks that leave half of the device idle. */
static bool is_idle(const struct ul_contract_device_plan *plan)
{
    const struct ul_contract_plan *base = &plan->base;
    const double much = 5e8; /* products, of two operations each */
    int64_t blocks =
        ul_div_up(base->m, plan->tile.m) * ul_div_up(base->n, plan->tile.n) * plan->batch;
    double products = (double)base->m * (double)base->n * (double)base->k * (double)plan->batch;
    return products >= much && 2 * blocks <= (int64_t)plan->device->processors;
}

/* Bytes that parts may take: half of the smaller factor, which is live at the same time, where that
 * is more. */
static double max_partials_bytes(const struct ul_contract_device_plan *plan,
                                 const struct ul_kernel *kernel, const struct ul_contraction *c)
{
    const struct ul_contract_plan *base = &plan->base;
    bool is_a = base->m < base->n;
    enum ul_dtype dtype = ul_operand_dtype(kernel, is_a ? &c->a : &c->b);
    double factor = (double)(is_a ? base->m : base->n) * (double)base->k *
                    (double)ul_dtype_get(dtype)->size_bytes;
    double least = is_idle(plan) ? IDLE_PARTIALS_BYTES : MIN_PARTIALS_BYTES;
    return factor / 2 > least ? factor / 2 : least;
}

struct ul_contract_device_split ul_contract_device_split(const struct ul_contract_device_plan *plan,
                                                         const struct ul_kernel *kernel,
                                                         const struct ul_contraction *c)
{
    struct ul_contract_device_split best = {.partials = 1};
    const struct ul_contract_plan *base = &plan->base;
    double sums = (double)base->m * (double)base->n * (double)plan->batch;
    double min_cycles = plan->cycles * WORTH_CUTTING;
    bool is_tile = plan->form == UL_CONTRACT_DEVICE_TILE || plan->form == UL_CONTRACT_DEVICE_MMA;
    double max_bytes = is_tile ? max_partials_bytes(plan, kernel, c) : 0;
    bool is_float = ul_dtype_get(c->acc_dtype)->is_float && c->a.transform == UL_NONE &&
                    c->b.transform == UL_NONE;
    if (!is_tile || !(is_float || plan->is_bytes))
        return best;
    for (int64_t partials = 2; partials <= MAX_PARTIALS; partials++) {
        struct ul_contract_device_plan partial = *plan;
        double bytes = (double)partials * sums * (double)base->element_bytes;
        uint32_t dim = split_dim(c, partials);
        if (bytes > max_bytes || base->k / partials < MIN_PARTIAL)
            break;
        if (dim == UL_CONTRACT_DIMS)
            continue;
        partial.base.k /= partials;
        partial.batch *= partials;
        choose(&partial, kernel);
        double cycles = partial.cycles + plan->device->launch_cycles + 2 * bytes / BYTES_CYCLE;
        if (partial.form != plan->form || cycles >= min_cycles)
            continue;
        min_cycles = cycles;
        best = (struct ul_contract_device_split){.partials = partials, .dim = dim};
    }
    UL_ASSERT(best.partials == 1 || c->extents[best.dim] % best.partials == 0);
    return best;
}

void ul_contract_device_grid(const struct ul_kernel *kernel,
                             const struct ul_contraction *contraction,
                             const struct ul_profile_device *device, struct ul_contract_grid *grid)
{
    struct ul_arena arena;
    struct ul_contract_device_plan plan;
    UL_ASSERT(contraction->attend == NULL);
    ul_arena_init(&arena);
    ul_contract_device_plan_init(&plan, kernel, contraction, device, &arena);
    *grid = plan.grid;
    ul_arena_done(&arena);
}

uint64_t ul_contract_device_held_bytes(const struct ul_kernel *kernel,
                                       const struct ul_contraction *contraction,
                                       const struct ul_profile_device *device)
{
    struct ul_arena arena;
    struct ul_contract_device_plan plan;
    if (contraction->attend != NULL || contraction->a.bound_count > 0)
        return 0;
    ul_arena_init(&arena);
    ul_contract_device_plan_init(&plan, kernel, contraction, device, &arena);
    bool is_held = plan.dot_pack > 0 && !ul_contract_is_bytes(&plan.base);
    bool is_short = plan.kinds[0] != NULL && plan.dot_pack > 1;
    uint64_t element = is_short ? 2 : (uint64_t)plan.base.element_bytes;
    uint64_t count = ul_size_mul_or_die((uint64_t)plan.base.m, (uint64_t)plan.base.k);
    uint64_t bytes = ul_size_align_or_die(ul_size_mul_or_die(count, element), 16);
    ul_arena_done(&arena);
    return is_held ? bytes : 0;
}
