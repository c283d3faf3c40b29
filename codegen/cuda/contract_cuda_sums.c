/* SPDX-License-Identifier: Apache-2.0 */
/* How contractions of a kernel form their sums on target cuda, for pieces of a step that must have
 * the bits of the whole. */
#include "codegen/cuda/attend_cuda.h"
#include "codegen/cuda/contract_cuda_internal.h"

/* The order of k, and how accumulators share it, as one flag for each. UL_CONTRACT_IN_ORDER is one
 * accumulator over k as it is; UL_CONTRACT_LOOSE is unknown. */
enum {
    ORDERS = 3, /* of k: as it is, one dimension moved, a part of one moved */
    FIRST = 4,  /* flag after those of contract.h */
    SPLITS = FIRST + ORDERS,
    SPLIT_KINDS = 4,
    DOTS = SPLITS + SPLIT_KINDS * ORDERS,
    DOT_KINDS = 3,
    MMA = DOTS + DOT_KINDS * ORDERS
};

static uint32_t flag(int which)
{
    UL_ASSERT(which >= FIRST && which < 32);
    return 1u << which;
}

static int order_of(const struct ul_contract_device_plan *plan, const struct ul_contraction *given)
{
    const struct ul_contraction *used = &plan->contraction;
    uint32_t first = given->m_count + given->n_count;
    if (used->k_count != given->k_count)
        return 2;
    for (uint32_t d = first; d < first + given->k_count; d++)
        if (used->vars[d] != given->vars[d])
            return 1;
    return 0;
}

static uint32_t flag_of_tile(const struct ul_contract_device_tile *tile, int order)
{
    static const int depths[SPLIT_KINDS][2] = {{4, 64}, {4, 32}, {8, 32}, {16, 128}};
    if (tile->splits == 1)
        return order == 0 ? (uint32_t)UL_CONTRACT_IN_ORDER : flag(FIRST + order);
    for (int i = 0; i < SPLIT_KINDS; i++)
        if (depths[i][0] == tile->splits && depths[i][1] == tile->k)
            return flag(SPLITS + i * ORDERS + order);
    return UL_CONTRACT_LOOSE;
}

/* The flag of a contraction that the grid runs. */
static uint32_t flag_of(const struct ul_kernel *kernel, const struct ul_contraction *contraction,
                        const struct ul_profile_device *device)
{
    struct ul_arena arena;
    struct ul_contract_device_plan plan;
    uint32_t result = UL_CONTRACT_LOOSE;
    /* it depends on queries and heads, of which a piece has fewer */
    if (contraction->attend != NULL)
        return UL_CONTRACT_LOOSE;
    ul_arena_init(&arena);
    ul_contract_device_plan_init(&plan, kernel, contraction, device, &arena);
    int order = order_of(&plan, contraction);
    switch (plan.form) {
    case UL_CONTRACT_DEVICE_EACH: /* in loops, with k as it is */
        result = UL_CONTRACT_IN_ORDER;
        break;
    case UL_CONTRACT_DEVICE_DOT:
        if (plan.dot_pack / 2 < DOT_KINDS)
            result = flag(DOTS + (plan.dot_pack / 2) * ORDERS + order);
        break;
    case UL_CONTRACT_DEVICE_TILE:
        result = flag_of_tile(&plan.tile, order);
        break;
    case UL_CONTRACT_DEVICE_MMA:
        result = flag(MMA + order);
        break;
    }
    if (ul_contract_device_split(&plan, kernel, contraction).partials > 1)
        result = UL_CONTRACT_LOOSE;
    ul_arena_done(&arena);
    return result;
}

/* Whether the list holds only loops of independent iterations, contractions and names. */
static bool is_alone(const struct ul_kernel *kernel, ul_ks first)
{
    while (first != UL_NONE && kernel->stmts[first].kind == UL_KS_LET)
        first = kernel->stmts[first].next;
    return first != UL_NONE && kernel->stmts[first].next == UL_NONE;
}

/* `by_grid`: only loops of independent iterations, each alone, are around the list. */
static uint32_t flags_of(const struct ul_kernel *kernel, const struct ul_profile_device *device,
                         ul_ks first, bool by_grid)
{
    uint32_t flags = 0;
    for (ul_ks id = first; id != UL_NONE; id = kernel->stmts[id].next) {
        const struct ul_ks_data *stmt = &kernel->stmts[id];
        if (stmt->kind == UL_KS_CONTRACT) {
            const struct ul_contraction *contraction = &kernel->contractions[stmt->contraction];
            if (ul_dtype_get(contraction->acc_dtype)->is_float)
                flags |=
                    by_grid ? flag_of(kernel, contraction, device) : (uint32_t)UL_CONTRACT_LOOSE;
            flags |= flags_of(kernel, device, contraction->epilogue, false);
        }
        bool is_nest = by_grid && stmt->kind == UL_KS_FOR && (stmt->flags & UL_FOR_PARALLEL) != 0 &&
                       is_alone(kernel, stmt->body);
        flags |= flags_of(kernel, device, stmt->body, is_nest);
        flags |= flags_of(kernel, device, stmt->orelse, false);
    }
    return flags;
}

uint32_t ul_contract_cuda_orders(const struct ul_kernel *kernel,
                                 const struct ul_profile_device *device)
{
    struct ul_arena arena;
    ul_arena_init(&arena);
    const struct ul_kernel *rewritten = ul_attend_cuda_rewrite(kernel, device, &arena);
    uint32_t flags = flags_of(rewritten, device, rewritten->first, true);
    ul_arena_done(&arena);
    return flags;
}
