/* How a contraction is run by a grid: from its shape and its strides alone.
 *
 * Large problems are cut into tiles of sums, the more sums to a thread the larger: a thread with
 * 8 x 8 sums reads 16 elements of shared memory for 64 products, one with 2 x 2 reads 4 for 4; but
 * there have to be as many tiles as keep a device of about a hundred multiprocessors busy. What is
 * tiny or irregular has a thread for each sum.
 */
#include "codegen/contract_cuda_internal.h"

#include <string.h>

enum {
    LEAST_SIDE = 8,  /* of m, n and k, for a tile */
    BUSY_TILES = 96, /* enough for a device */
    EACH_THREADS = 128
};

static int64_t divide_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static int64_t magnitude(int64_t a)
{
    return a < 0 ? -a : a;
}

/* All users' uses together. */
static void join_uses(struct ul_contract_cuda_plan *plan, struct ul_arena *arena)
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

/* Does 32-bit arithmetic do for coordinates and their products with strides? */
static bool is_short(const struct ul_contract_cuda_plan *plan)
{
    const struct ul_contraction *c = plan->base.contraction;
    const int64_t most = (int64_t)1 << 30;
    if (plan->base.m > most || plan->base.n > most || plan->base.k > most ||
        (double)plan->base.m * (double)plan->base.n > (double)most)
        return false;
    for (uint32_t i = 0; i < plan->uses.count; i++)
        for (uint32_t d = 0; d < c->m_count + c->n_count + c->k_count; d++)
            if ((double)magnitude(plan->uses.indexes[i].strides[d]) * (double)c->extents[d] >
                (double)most)
                return false;
    return true;
}

static int64_t last_stride(const struct ul_affine *at, const struct ul_contract_dims *dims)
{
    return magnitude(at->strides[dims->carrier[dims->count - 1]]);
}

/* Do the neighbours of an operand lie along k rather than beside it? */
static bool is_along_k(const struct ul_affine *at, const struct ul_contract_dims *k,
                       const struct ul_contract_dims *beside)
{
    int64_t by_k = last_stride(at, k), by_other = last_stride(at, beside);
    return by_k != 0 && (by_other == 0 || by_k < by_other);
}

/* Of the epilogue's indexes, those that move along one of m and n by 1. */
static bool puts_along_m(const struct ul_contract_cuda_plan *plan)
{
    uint32_t along_m = 0, along_n = 0;
    const struct ul_contract_plan *base = &plan->base;
    for (uint32_t i = 0; i < base->epilogue_uses.count; i++) {
        const struct ul_affine *at = &base->epilogue_uses.indexes[i];
        int64_t by_m = last_stride(at, &base->out_m), by_n = last_stride(at, &base->out_n);
        along_m += by_m == 1 && by_n != 0;
        along_n += by_n == 1 && by_m != 0;
    }
    return along_m > along_n;
}

/* The largest tile of which there are enough. */
static void choose_tile(struct ul_contract_cuda_plan *plan)
{
    static const struct {
        int tile, tile_k, thread;
    } sizes[] = {{128, 8, 8}, {64, 16, 4}, {32, 16, 2}};
    uint32_t i = plan->base.element_bytes > 4 ? 1 : 0;
    while (i + 1 < sizeof sizes / sizeof sizes[0] &&
           divide_up(plan->base.m, sizes[i].tile) * divide_up(plan->base.n, sizes[i].tile) <
               BUSY_TILES)
        i++;
    plan->tile_m = plan->tile_n = sizes[i].tile;
    plan->tile_k = sizes[i].tile_k;
    plan->thread_m = plan->thread_n = sizes[i].thread;
}

static void choose(struct ul_contract_cuda_plan *plan)
{
    const struct ul_contract_plan *base = &plan->base;
    const struct ul_contraction *c = base->contraction;
    plan->coordinate = is_short(plan) ? "int32_t" : "int64_t";
    plan->put_along_m = puts_along_m(plan);
    plan->a_along_k = is_along_k(&c->a.at, &base->a_k, &base->a_m);
    plan->b_along_k = is_along_k(&c->b.at, &base->b_k, &base->b_n);
    if (base->m < LEAST_SIDE || base->n < LEAST_SIDE || base->k < LEAST_SIDE ||
        !ul_contract_is_regular(base)) {
        plan->form = UL_CONTRACT_CUDA_EACH;
        plan->grid = (struct ul_contract_grid){
            .tile_count = divide_up(base->m * base->n, EACH_THREADS), .threads = EACH_THREADS};
        return;
    }
    plan->form = UL_CONTRACT_CUDA_TILE;
    choose_tile(plan);
    uint32_t pad = (uint32_t)(16 / base->element_bytes);
    uint32_t rows = (uint32_t)(plan->tile_m + plan->tile_n) + 2 * pad;
    plan->grid = (struct ul_contract_grid){
        .tile_count = divide_up(base->m, plan->tile_m) * divide_up(base->n, plan->tile_n),
        .threads = (uint32_t)(plan->tile_m / plan->thread_m * (plan->tile_n / plan->thread_n)),
        .shared_bytes = 2 * (uint32_t)plan->tile_k * rows * (uint32_t)base->element_bytes};
}

void ul_contract_cuda_plan_init(struct ul_contract_cuda_plan *plan, const struct ul_kernel *kernel,
                                const struct ul_contraction *contraction, struct ul_arena *arena)
{
    memset(plan, 0, sizeof *plan);
    ul_contract_plan_init(&plan->base, kernel, contraction, arena);
    join_uses(plan, arena);
    uint32_t m = contraction->m_count, n = contraction->n_count, k = contraction->k_count;
    ul_contract_merge(contraction, &plan->uses, 0, m, &plan->m);
    ul_contract_merge(contraction, &plan->uses, m, n, &plan->n);
    ul_contract_merge(contraction, &plan->uses, m + n, k, &plan->k);
    choose(plan);
}

void ul_contract_cuda_grid(const struct ul_kernel *kernel, const struct ul_contraction *contraction,
                           struct ul_contract_grid *grid)
{
    struct ul_arena arena;
    struct ul_contract_cuda_plan plan;
    ul_arena_init(&arena);
    ul_contract_cuda_plan_init(&plan, kernel, contraction, &arena);
    *grid = plan.grid;
    ul_arena_done(&arena);
}
