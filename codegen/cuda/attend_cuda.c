/* SPDX-License-Identifier: Apache-2.0 */
/* Attention on target cuda: sizes of tiles, and the functions that its templates call. */
#include "codegen/cuda/attend_cuda_internal.h"

#include "codegen/cuda/cuda.h"

#include <inttypes.h>
#include <string.h>

enum {
    THREADS = 128,
    NARROW_SIZE = 64, /* up to this size a warp has two bands */
    WIDE_SIZE = 128,  /* up to this size it holds its queries in registers */
    MAX_STAGES = 2,
    FEW_QUERIES = 32
};

/* For struct ul_attend_mma: how a block of warps shares queries and keys. */
struct mma_shape {
    int rows, down, groups; /* warps along queries; bands of a warp; warps along keys */
    int keys;               /* of a warp at a time */
    int64_t min_blocks;     /* of a launch for each processor, so that the shape pays off */
    int64_t min_keys;       /* likewise */
};

struct attend_out {
    const struct ul_attend *attend;
    int64_t processors; /* of the device, as attention counts them */
    int64_t max_bytes;  /* shared memory of a block of the device */
    struct ul_contract_printer printer;
    struct ul_contract_plan scores[2], values[2];
    const char *kind; /* of elements on tensor cores; else NULL */
    const char *coordinate;
    int64_t depth, width;          /* of a head's queries and values, padded */
    int rows, columns;             /* queries and keys of a thread */
    const struct mma_shape *shape; /* on tensor cores */
    int stages;                    /* likewise */
    int q_pack, k_pack, v_pack;
    struct ul_contract_grid grid;
    struct ul_arena arena;
};

/* The runtime's name for 16-bit elements; NULL where an operand has others. */
static const char *kind_of(const struct ul_kernel *kernel, const struct ul_attend *attend)
{
    enum ul_dtype dtype = kernel->buffers[attend->scores[0].a.buffer].dtype;
    if (attend->scores[0].a.transform != UL_NONE)
        return NULL;
    for (uint32_t i = 0; i < attend->part_count; i++) {
        const struct ul_operand *keys = &attend->scores[i].b, *values = &attend->values[i].b;
        if (kernel->buffers[keys->buffer].dtype != dtype || keys->transform != UL_NONE ||
            kernel->buffers[values->buffer].dtype != dtype || values->transform != UL_NONE)
            return NULL;
    }
    return ul_contract_device_kind(dtype);
}

static int64_t queries_of(const struct mma_shape *shape)
{
    return 16 * shape->rows * shape->down;
}

/* Sizes struct ul_attend_mma of runtime/cuda/ul_attention.cuh, with as many stages as the device's
 * shared memory has room for. */
static void size_mma(struct attend_out *to, const struct mma_shape *shape)
{
    to->shape = shape;
    to->grid.threads = 32 * (uint32_t)(shape->rows * shape->groups);
    to->grid.min_blocks = 1;
    int64_t block = queries_of(shape), chunk = to->width % 32 == 0 ? 32 : 16;
    int64_t stage = (int64_t)shape->keys * shape->groups * (to->depth + 8 + to->width + 8);
    int64_t out = block * (shape->groups * (chunk + 8) + 2 * shape->groups + 1);
    int64_t q = to->depth <= WIDE_SIZE ? 0 : block * (to->depth + 8);
    for (to->stages = MAX_STAGES; to->stages > 1; to->stages--)
        if (2 * (q + to->stages * stage) <= to->max_bytes)
            break;
    to->grid.shared_bytes = (uint32_t)(2 * ul_max(q + to->stages * stage, 2 * out));
    UL_ASSERT(to->grid.threads <= 1024);
}

/* Chooses the shape of a block of threads: as many queries as leave enough blocks for all
 * processors, and no more than there are, since keys and values are read from memory once for each
 * block. */
static int64_t choose_mma(struct attend_out *to, int64_t heads)
{
    static const struct mma_shape narrow[] = {
        {.rows = 4, .down = 2, .groups = 1, .keys = 64, .min_blocks = 2},
        {.rows = 4, .down = 1, .groups = 1, .keys = 64, .min_blocks = 4},
        {.rows = 4, .down = 1, .groups = 2, .keys = 32, .min_blocks = 1},
        {.rows = 2, .down = 1, .groups = 2, .keys = 32, .min_blocks = 1},
        {.rows = 1, .down = 1, .groups = 4, .keys = 32, .min_keys = 65},
        {.rows = 1, .down = 1, .groups = 4, .keys = 16}};
    static const struct mma_shape wide[] = {
        {.rows = 4, .down = 1, .groups = 1, .keys = 32, .min_blocks = 4},
        {.rows = 4, .down = 1, .groups = 2, .keys = 16, .min_blocks = 1},
        {.rows = 2, .down = 1, .groups = 2, .keys = 32, .min_blocks = 1},
        {.rows = 1, .down = 1, .groups = 4, .keys = 16}};
    static const struct mma_shape widest[] = {
        {.rows = 4, .down = 1, .groups = 1, .keys = 16, .min_blocks = 1},
        {.rows = 2, .down = 1, .groups = 2, .keys = 16, .min_blocks = 1},
        {.rows = 2, .down = 1, .groups = 1, .keys = 16, .min_blocks = 1},
        {.rows = 1, .down = 1, .groups = 2, .keys = 16}};
    int64_t size = ul_max(to->attend->size, to->attend->value_size);
    const struct mma_shape *shape = size <= NARROW_SIZE ? narrow
                                    : size <= WIDE_SIZE ? wide
                                                        : widest;
    int64_t pad = size <= NARROW_SIZE ? 16 : 32;
    int64_t queries = to->attend->queries;
    to->depth = ul_round_up(to->attend->size, pad);
    to->width = ul_round_up(to->attend->value_size, pad);
    for (;; shape++) { /* the last shape takes everything */
        int64_t block = queries_of(shape), blocks = ul_round_up(queries, block) / block;
        bool is_padded = 4 * blocks * block > 5 * ul_round_up(queries, 16);
        size_mma(to, shape);
        if (!is_padded && blocks >= (shape->min_blocks * to->processors + heads - 1) / heads &&
            to->attend->keys >= shape->min_keys && to->grid.shared_bytes <= to->max_bytes)
            return queries_of(shape);
    }
}

/* Bytes of shared memory of struct ul_attend_size. */
static int64_t threads_bytes(const struct attend_out *to)
{
    int64_t pitch = 16 * to->rows + 4, out = (pitch - 4) * (to->width + 4), keys = 8 * to->columns;
    int64_t kv = ul_max(to->depth * (keys + 4), keys * (to->width + 4));
    return 4 * ul_max(to->depth * pitch + kv + keys * pitch, out);
}

/* A thread gets half of the queries where all blocks still run at once: then the time of one block
 * counts. Where heads are wide it gets fewer queries, then fewer keys. */
static int64_t size_threads(struct attend_out *to, int64_t heads)
{
    int64_t blocks = ul_round_up(to->attend->queries, FEW_QUERIES) / FEW_QUERIES;
    bool is_few = to->attend->queries <= FEW_QUERIES || blocks <= to->processors / heads;
    to->depth = ul_round_up(to->attend->size, 16);
    to->width = ul_round_up(to->attend->value_size, 32);
    to->rows = is_few ? 2 : 4;
    to->columns = 4;
    while (to->rows > 1 && threads_bytes(to) > to->max_bytes)
        to->rows /= 2;
    if (threads_bytes(to) > to->max_bytes)
        to->columns = 2;
    to->grid.shared_bytes = (uint32_t)threads_bytes(to);
    UL_ASSERT(threads_bytes(to) <= to->max_bytes);
    if (2 * threads_bytes(to) > to->max_bytes) /* few blocks share a processor anyway */
        to->grid.min_blocks = 1;
    return 16 * to->rows;
}

/* How many elements along a head are read at once, for all parts; threads share `elements` of them
 * evenly where they are f32. */
static int pack_of(const struct attend_out *to, const struct ul_contract_plan *plans, char name,
                   bool along_k, int64_t elements)
{
    int min = 8;
    for (uint32_t i = 0; i < to->attend->part_count; i++) {
        bool is_same = name == 'a' ? plans[i].a_same : plans[i].b_same;
        int max = to->kind != NULL ? 8 : is_same ? 4 : 1;
        struct ul_contract_device_reading reading =
            ul_contract_device_read_by(&plans[i], name, max);
        int pack = reading.along_k == along_k ? reading.pack : 1;
        min = pack < min ? pack : min;
    }
    while (to->kind == NULL && elements / to->grid.threads % min != 0)
        min /= 2;
    return min;
}

/* The heads of all batches in a launch. */
static int64_t heads_of(const struct ul_kernel *kernel, const struct ul_attend *attend)
{
    for (uint32_t i = 0; i < kernel->contraction_count; i++)
        if (kernel->contractions[i].attend == attend)
            return ul_contract_device_batch(kernel, &kernel->contractions[i]);
    return 1;
}

static void init(struct attend_out *to, const struct ul_kernel *kernel,
                 const struct ul_attend *attend, const struct ul_profile_device *device)
{
    memset(to, 0, sizeof *to);
    ul_arena_init(&to->arena);
    to->attend = attend;
    to->processors = ul_attend_cuda_processors(device);
    to->max_bytes = device->shared_bytes;
    to->kind = kind_of(kernel, attend);
    to->coordinate = "int32_t";
    for (uint32_t i = 0; i < attend->part_count; i++) {
        struct ul_contract_plan *plans[] = {&to->scores[i], &to->values[i]};
        ul_contract_plan_init(plans[0], kernel, &attend->scores[i], &to->arena);
        ul_contract_plan_init(plans[1], kernel, &attend->values[i], &to->arena);
        for (uint32_t p = 0; p < 2; p++)
            if (!ul_contract_device_is_short(plans[p], &plans[p]->a_uses, kernel) ||
                !ul_contract_device_is_short(plans[p], &plans[p]->b_uses, kernel) ||
                !ul_contract_device_is_short(plans[p], &plans[p]->epilogue_uses, kernel))
                to->coordinate = "int64_t";
    }
    to->grid.threads = THREADS;
    int64_t heads = heads_of(kernel, attend);
    int64_t queries = to->kind != NULL ? choose_mma(to, heads) : size_threads(to, heads);
    int64_t keys = 8 * to->columns;
    to->q_pack = pack_of(to, to->scores, 'a', true, queries * to->depth);
    to->k_pack = pack_of(to, to->scores, 'b', true, keys * to->depth);
    to->v_pack = pack_of(to, to->values, 'b', false, keys * to->width);
    to->grid.tile_count = (attend->queries + queries - 1) / queries;
    UL_ASSERT(to->grid.threads > 0 && to->q_pack > 0 && to->k_pack > 0 && to->v_pack > 0);
}

static struct ul_contract_out out_of(const struct attend_out *to,
                                     const struct ul_contract_plan *plan)
{
    return ul_attend_cuda_out(&to->printer, plan, to->coordinate);
}

/* ---- Functions that the templates call ---- */

/* The verb in names of functions that find operands: they read them, or return their places. */
static const char *verb_of(const struct attend_out *to)
{
    return to->kind != NULL ? "place" : "read";
}

/* A function for an operand of each part, t_<verb>_<name><part>, and t_<verb>_<name> that picks one
 * by `key`. */
static void put_reader(const struct attend_out *to, uint32_t indent, char name,
                       const struct ul_contract_plan *plans, const char *key, int pack)
{
    const char *verb = verb_of(to);
    struct ul_contract_out out = out_of(to, &plans[0]);
    if (pack > 1 && to->kind != NULL)
        ul_contract_line(&out, indent, "bool t_%c_aligned = true;", name);
    for (uint32_t i = 0; i < to->attend->part_count; i++) {
        char function[24];
        snprintf(function, sizeof function, "t_%s_%c%" PRIu32, verb, name, i);
        struct ul_contract_out own = out_of(to, &plans[i]);
        ul_contract_cuda_put_reader(
            &own, indent,
            &(struct ul_contract_cuda_reader){.function = function,
                                              .operand = 'b',
                                              .first = "t_fn",
                                              .second = "t_fk",
                                              .type = "float",
                                              .pack = pack,
                                              .is_place = to->kind != NULL});
        if (pack > 1 && to->kind != NULL)
            ul_contract_line(&own, indent,
                             "t_%c_aligned = t_%c_aligned && ul_is_aligned<%d>(%s(0, 0).from);",
                             name, name, pack, function);
    }
    if (to->attend->part_count == 1) {
        ul_contract_line(&out, indent, "const auto &t_%s_%c = t_%s_%c0;", verb, name, verb, name);
        return;
    }
    bool is_first = strcmp(key, "t_fn") == 0;
    int64_t count = to->attend->key_counts[0];
    ul_contract_line(&out, indent, "const auto t_%s_%c = [&](%s t_fn, %s t_fk) {", verb, name,
                     to->coordinate, to->coordinate);
    ul_contract_line(&out, indent + 1, "if (%s < %" PRId64 ")", key, count);
    ul_contract_line(&out, indent + 1, "    return t_%s_%c0(t_fn, t_fk);", verb, name);
    ul_contract_line(
        &out, indent + 1, "return t_%s_%c1((%s)(t_fn - %" PRId64 "), (%s)(t_fk - %" PRId64 "));",
        verb, name, to->coordinate, is_first ? count : 0, to->coordinate, is_first ? 0 : count);
    ul_contract_line(&out, indent, "};");
}

static void put_query_reader(const struct attend_out *to, uint32_t indent)
{
    struct ul_contract_out out = out_of(to, &to->scores[0]);
    char function[24];
    snprintf(function, sizeof function, "t_%s_q", verb_of(to));
    ul_contract_cuda_put_reader(&out, indent,
                                &(struct ul_contract_cuda_reader){.function = function,
                                                                  .operand = 'a',
                                                                  .first = "t_fm",
                                                                  .second = "t_fk",
                                                                  .type = "float",
                                                                  .pack = to->q_pack,
                                                                  .is_place = to->kind != NULL});
    if (to->q_pack > 1 && to->kind != NULL)
        ul_contract_line(&out, indent,
                         "const bool t_q_aligned = ul_is_aligned<%d>(t_place_q(0, 0).from);",
                         to->q_pack);
}

/* The first key, and the key before which to stop. */
static void put_part(const struct attend_out *to)
{
    const struct ul_attend *attend = to->attend;
    const char *type = to->coordinate;
    if (attend->split_keys == 0) {
        ul_text_printf(to->printer.text, ", (%s)0, (%s)%" PRId64, type, type, attend->keys);
        return;
    }
    ul_text_printf(to->printer.text,
                   ", (%s)(v%" PRIu32 " * %" PRId64 "), (%s)ul_min_i64(v%" PRIu32 " * %" PRId64
                   " + %" PRId64 ", %" PRId64 ")",
                   type, attend->split_var, attend->split_keys, type, attend->split_var,
                   attend->split_keys, attend->split_keys, attend->keys);
}

/* `put_pack`: this many sums are taken at once on tensor cores, by t_put_pack where they are
 * several. */
static void put_call(const struct attend_out *to, int put_pack, uint32_t indent)
{
    const struct ul_attend *attend = to->attend;
    struct ul_contract_out out = out_of(to, &to->scores[0]);
    if (to->kind != NULL)
        ul_contract_line(
            &out, indent,
            "typedef ul_attend_mma<%s, %" PRId64 ", %" PRId64 ", %d, %d, %d, %d, %d, %s> t_size;",
            to->kind, to->depth, to->width, to->shape->keys, to->shape->down, to->shape->rows,
            to->shape->groups, to->stages, ul_contract_cuda_truth(attend->rounds_weights));
    else
        ul_contract_line(&out, indent,
                         "typedef ul_attend_size<%" PRId64 ", %" PRId64 ", %d, %d> t_size;",
                         to->depth, to->width, to->rows, to->columns);
    ul_contract_line(&out, indent, "static_assert(t_size::elements * %d <= %" PRIu32 ");",
                     to->kind != NULL ? 2 : 4, to->grid.shared_bytes);
    char pack[16] = "";
    if (to->kind != NULL)
        snprintf(pack, sizeof pack, ", %d", put_pack);
    ul_contract_line(&out, indent,
                     "ul_attend_tile%s<t_size, ul_reading<%d, true>, ul_reading<%d, true>, "
                     "ul_reading<%d, false>, %s, %s%s>(",
                     to->kind != NULL ? "_mma" : "", to->q_pack, to->k_pack, to->v_pack,
                     ul_attend_cuda_empty(attend->empty),
                     ul_contract_cuda_truth(attend->split_keys > 0), pack);
    const char *type = to->coordinate;
    ul_contract_indent(&out, indent + 1);
    ul_text_printf(out.text, "t_shared_%" PRIu32 ", t_tile, (%s)%" PRId64 ", (%s)%" PRId64,
                   attend->scores[0].acc, type, attend->queries, type, attend->keys);
    put_part(to);
    ul_text_printf(out.text, ", (%s)%" PRId64 ", (%s)%" PRId64 ", (%s)%" PRId64 ",\n", type,
                   attend->reach, type, attend->size, type, attend->value_size);
    if (to->kind != NULL)
        ul_contract_line(&out, indent + 1, "{%s, %s, %s},", to->q_pack > 1 ? "t_q_aligned" : "true",
                         to->k_pack > 1 ? "t_k_aligned" : "true",
                         to->v_pack > 1 ? "t_v_aligned" : "true");
    const char *verb = verb_of(to);
    ul_contract_line(&out, indent + 1, "t_%s_q, t_%s_k, t_%s_v, t_score, t_put%s%s%s);", verb, verb,
                     verb,
                     to->kind == NULL ? ""
                     : put_pack > 1   ? ", t_put_pack"
                                      : ", t_put",
                     attend->has_norms           ? ", t_put_norm"
                     : attend->factor != UL_NONE ? ", ul_attend_no_norm()"
                                                 : "",
                     attend->factor != UL_NONE ? ", t_factor" : "");
}

/* ---- Entries ---- */

int64_t ul_attend_cuda_processors(const struct ul_profile_device *device)
{
    int64_t even = device->processors / 32 * 32;
    return even > 0 ? even : (int64_t)device->processors;
}

bool ul_attend_cuda_can(const struct ul_kernel *kernel, const struct ul_attend *attend)
{
    (void)kernel;
    return attend->size <= UL_CUDA_ATTEND_SIZE && attend->value_size <= UL_CUDA_ATTEND_SIZE &&
           attend->keys > 0 && attend->size > 0 && attend->scores[0].acc_dtype == UL_F32;
}

void ul_attend_cuda_grid(const struct ul_kernel *kernel, const struct ul_attend *attend,
                         const struct ul_profile_device *device, struct ul_contract_grid *grid)
{
    UL_ASSERT(ul_attend_cuda_can(kernel, attend));
    struct attend_out to;
    if (attend->kind != UL_ATTEND_RESULT) {
        ul_attend_cuda_gradient_grid(kernel, attend, device, grid);
        return;
    }
    init(&to, kernel, attend, device);
    *grid = to.grid;
    ul_arena_done(&to.arena);
}

void ul_attend_cuda_put_shared(const struct ul_contract_cuda_printer *printer,
                               const struct ul_attend *attend, uint32_t indent)
{
    struct ul_contract_printer base = ul_contract_cuda_base(printer);
    struct ul_contract_out out = ul_attend_cuda_out(&base, NULL, NULL);
    struct ul_contract_grid grid;
    ul_attend_cuda_grid(printer->kernel, attend, printer->device, &grid);
    bool is_half = attend->kind == UL_ATTEND_RESULT
                       ? kind_of(printer->kernel, attend) != NULL
                       : ul_attend_cuda_gradient_is_half(printer->kernel, attend);
    ul_contract_line(&out, indent, "UL_SHARED(%s, t_shared_%" PRIu32 ", %" PRIu32 ");",
                     is_half ? "uint16_t" : "float", attend->scores[0].acc,
                     grid.shared_bytes / (is_half ? 2 : 4));
}

void ul_attend_cuda_put_tile(const struct ul_contract_cuda_printer *printer,
                             const struct ul_attend *attend, uint32_t indent)
{
    struct attend_out to;
    if (attend->kind != UL_ATTEND_RESULT) {
        ul_attend_cuda_gradient_put_tile(printer, attend, indent);
        return;
    }
    init(&to, printer->kernel, attend, printer->device);
    to.printer = ul_contract_cuda_base(printer);
    struct ul_contract_out out = out_of(&to, &to.scores[0]);
    ul_contract_line(&out, indent,
                     "{ /* %" PRId64 " queries, %" PRId64 " keys, heads of %" PRId64 " */",
                     attend->queries, attend->keys, attend->size);
    put_query_reader(&to, indent + 1);
    put_reader(&to, indent + 1, 'k', to.scores, "t_fn", to.k_pack);
    put_reader(&to, indent + 1, 'v', to.values, "t_fk", to.v_pack);
    ul_attend_cuda_put_score(&to.printer, attend, to.coordinate, indent + 1);
    ul_attend_cuda_put_factor(&to.printer, attend, to.coordinate, indent + 1);
    struct ul_contract_out result = out_of(&to, &to.values[0]);
    result.is_short = ul_narrow(printer->kernel, &to.arena);
    int put_pack = 1;
    ul_contract_cuda_put_putter(&result, indent + 1, "t_put");
    if (attend->has_norms)
        ul_attend_cuda_put_norm(&to.printer, attend, to.coordinate, indent + 1);
    if (to.kind != NULL)
        put_pack = ul_contract_cuda_put_packs(&result, indent + 1, printer, false);
    put_call(&to, put_pack, indent + 1);
    ul_contract_line(&out, indent, "}");
    ul_arena_done(&to.arena);
}
