/* SPDX-License-Identifier: Apache-2.0 */
/* The gradient of attention on target cuda, one pass at a time
 * (ir/ops/attention/attention_gradient_tiles.c): sizes of tiles, and the functions that the
 * templates of runtime/cuda/ul_attention_gradient.cuh call. */
#include "codegen/cuda/attend_cuda_internal.h"

#include <inttypes.h>
#include <string.h>

enum {
    THREADS = 128,
    COLUMNS = 4, /* of a thread, as CHUNK and DEPTH without tensor cores */
    CHUNK = 32,
    DEPTH = 16,
    NARROW_SIZE = 64, /* of results: up to this size a thread has 4 rows */
    FEW_ROWS = 32,    /* of a head: for this size a thread has 2 */
    /* blocks whose registers suffice for sums and two products, without tensor cores */
    MIN_BLOCKS = 2,
    MAX_PACK = 8,
    MAX_STAGES = 2
};

/* A factor of a product, or an operand of a sum, and how it is read. */
struct operand_out {
    const char *name; /* of its reader: t_read_<name>, or t_place_<name> on tensor cores */
    char operand;
    const struct ul_contract_plan *plan;
    bool along_k;
    int pack;
};

/* The first two are factors of the first product, the next two of the second; a sum adds the next,
 * a second sum the last. */
enum { ROW, COLUMN, SLOPE_ROW, SLOPE_COLUMN, VALUE, SHARE, OPERANDS };

struct gradient_out {
    const struct ul_attend *attend;
    struct ul_contract_printer printer;
    struct ul_contract_plan scores[2], values[2];
    struct operand_out operands[OPERANDS];
    const char *kind; /* of elements on tensor cores; else NULL */
    const char *coordinate;
    int64_t width, shares; /* elements of a result, padded, and of a second one */
    int rows;              /* of a thread; on tensor cores warps */
    int64_t depth, beside; /* on tensor cores: of the first product, and of what accompanies it */
    int columns, stages;   /* likewise */
    struct ul_contract_grid grid;
    struct ul_arena arena;
};

/* On tensor cores a sum with slopes reads no values: they are the columns of its products. */
static bool has(const struct gradient_out *to, uint32_t operand)
{
    if (operand == SHARE)
        return to->attend->has_shares && to->kind == NULL;
    if (operand == VALUE)
        return to->attend->kind == UL_ATTEND_SUM && (to->kind == NULL || !to->attend->has_slopes);
    return operand < SLOPE_ROW || to->attend->has_slopes;
}

/* Whether it has sums, of values or of scores. */
static bool has_sums(const struct ul_attend *attend)
{
    return attend->kind != UL_ATTEND_STATISTICS;
}

static const char *each_of(const struct ul_attend *attend)
{
    return attend->kind == UL_ATTEND_EACH ? "_each" : "";
}

static bool is_of(const struct ul_kernel *kernel, const struct ul_operand *operand,
                  enum ul_dtype dtype)
{
    return kernel->buffers[operand->buffer].dtype == dtype && operand->transform == UL_NONE;
}

static const char *kind_of(const struct ul_kernel *kernel, const struct ul_attend *attend)
{
    enum ul_dtype dtype = kernel->buffers[attend->scores[0].a.buffer].dtype;
    for (uint32_t i = 0; i < ul_attend_scores(attend); i++)
        if (!is_of(kernel, &attend->scores[i].a, dtype) ||
            !is_of(kernel, &attend->scores[i].b, dtype))
            return NULL;
    for (uint32_t i = 0; i < ul_attend_values(attend); i++)
        if (!is_of(kernel, &attend->values[i].b, dtype))
            return NULL;
    return ul_contract_device_kind(dtype);
}

/* Where each score is a result, a block has one tile of columns, else all of them. */
static int64_t count_tiles(const struct ul_attend *attend, int64_t rows, int64_t columns)
{
    int64_t down = ul_round_up(attend->queries, rows) / rows;
    return attend->kind == UL_ATTEND_EACH ? down * (ul_round_up(attend->keys, columns) / columns)
                                          : down;
}

/* Chooses a struct ul_gradient_mma with as many rows and columns as shared memory has room for. */
static void size_mma(struct gradient_out *to, int64_t max_bytes)
{
    static const struct {
        int rows, columns;
    } shapes[] = {{4, 32}, {4, 16}, {2, 16}, {1, 16}};
    const struct ul_attend *attend = to->attend;
    int64_t result = ul_round_up(attend->values[0].extents[1], 16), bytes = 0;
    to->width = attend->kind == UL_ATTEND_SUM ? result : 0;
    to->shares = attend->has_shares ? ul_round_up(attend->values[1].extents[1], 16) : 0;
    to->depth = ul_round_up(attend->size, 16);
    to->beside = attend->has_slopes ? ul_round_up(attend->value_size, 16) : result;
    for (uint32_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        to->rows = shapes[i].rows;
        to->columns = shapes[i].columns;
        int64_t pitch = to->depth + 8 + (attend->has_slopes ? to->beside + 8 : 0);
        int64_t stage = to->columns * (to->depth + 8 + to->beside + 8);
        for (to->stages = MAX_STAGES; to->stages > 0; to->stages--) {
            bytes = 2 * (16 * to->rows * pitch + to->stages * stage);
            if (bytes <= max_bytes)
                break;
        }
        bool is_padded = to->rows > 1 && attend->queries <= 8 * to->rows;
        if (to->stages > 0 && !is_padded)
            break;
    }
    UL_ASSERT(to->stages > 0);
    to->grid.threads = 32 * (uint32_t)to->rows;
    to->grid.min_blocks = 1;
    to->grid.shared_bytes = (uint32_t)bytes;
    to->grid.tile_count = count_tiles(attend, 16 * to->rows, to->columns);
}

/* Chooses a struct ul_gradient_size, whose products and sums use the same shared memory in
 * turns. */
static void size_threads(struct gradient_out *to)
{
    int64_t columns = 8 * COLUMNS;
    to->width = ul_round_up(to->attend->values[0].extents[1], CHUNK);
    if (to->attend->has_shares)
        to->shares = ul_round_up(to->attend->values[1].extents[1], CHUNK);
    to->rows = to->width <= NARROW_SIZE && to->shares <= NARROW_SIZE ? 4 : 2;
    if (to->attend->kind != UL_ATTEND_SUM)
        to->width = 0, to->rows = 4;
    if (to->attend->queries <= FEW_ROWS)
        to->rows = 2;
    int64_t pitch = 16 * to->rows + 4, products = DEPTH * (pitch + columns + 4);
    int64_t sums = columns * (pitch + CHUNK + 4);
    to->grid.threads = THREADS;
    to->grid.min_blocks = MIN_BLOCKS;
    to->grid.shared_bytes = (uint32_t)(4 * (products > sums ? products : sums));
    to->grid.tile_count = count_tiles(to->attend, 16 * to->rows, columns);
}

/* Sets how threads read an operand: several elements along a head at once, where threads still
 * share `elements` of it evenly. */
static void set_operand(struct gradient_out *to, uint32_t which, const char *name, char operand,
                        const struct ul_contract_plan *plan, int64_t elements)
{
    bool along_k = which < VALUE, is_same = operand == 'a' ? plan->a_same : plan->b_same;
    struct ul_contract_device_reading reading =
        ul_contract_device_read_by(plan, operand,
                                   to->kind != NULL ? MAX_PACK
                                   : is_same        ? 4
                                                    : 1);
    int pack = reading.along_k == along_k ? reading.pack : 1;
    while (to->kind == NULL && elements / THREADS % pack != 0)
        pack /= 2;
    to->operands[which] = (struct operand_out){name, operand, plan, along_k, pack};
    UL_ASSERT(elements % THREADS == 0 && pack > 0);
}

static void init_plan(struct gradient_out *to, struct ul_contract_plan *plan,
                      const struct ul_kernel *kernel, const struct ul_contraction *contraction)
{
    ul_contract_plan_init(plan, kernel, contraction, &to->arena);
    if (!ul_contract_device_is_short(plan, &plan->a_uses, kernel) ||
        !ul_contract_device_is_short(plan, &plan->b_uses, kernel) ||
        !ul_contract_device_is_short(plan, &plan->epilogue_uses, kernel))
        to->coordinate = "int64_t";
}

static void init(struct gradient_out *to, const struct ul_kernel *kernel,
                 const struct ul_attend *attend, const struct ul_profile_device *device)
{
    memset(to, 0, sizeof *to);
    ul_arena_init(&to->arena);
    to->attend = attend;
    to->coordinate = "int32_t";
    to->kind = kind_of(kernel, attend);
    if (to->kind != NULL)
        size_mma(to, device->shared_bytes);
    else
        size_threads(to);
    init_plan(to, &to->scores[0], kernel, &attend->scores[0]);
    if (attend->has_slopes)
        init_plan(to, &to->scores[1], kernel, &attend->scores[1]);
    init_plan(to, &to->values[0], kernel, &attend->values[0]);
    if (attend->has_shares)
        init_plan(to, &to->values[1], kernel, &attend->values[1]);
    int64_t rows = 16 * to->rows * DEPTH, columns = 8 * COLUMNS * DEPTH;
    set_operand(to, ROW, "q", 'a', &to->scores[0], rows);
    set_operand(to, COLUMN, "k", 'b', &to->scores[0], columns);
    if (attend->has_slopes) {
        set_operand(to, SLOPE_ROW, "g", 'a', &to->scores[1], rows);
        set_operand(to, SLOPE_COLUMN, "w", 'b', &to->scores[1], columns);
    }
    if (has(to, VALUE))
        set_operand(to, VALUE, "v", 'b', &to->values[0], CHUNK * 8 * COLUMNS);
    if (has(to, SHARE))
        set_operand(to, SHARE, "s", 'b', &to->values[1], CHUNK * 8 * COLUMNS);
}

static struct ul_contract_out out_of(const struct gradient_out *to,
                                     const struct ul_contract_plan *plan)
{
    return ul_attend_cuda_out(&to->printer, plan, to->coordinate);
}

/* ---- Text ---- */

static const char *reader_of(const struct gradient_out *to)
{
    return to->kind != NULL ? "t_place_" : "t_read_";
}

static void put_operand(const struct gradient_out *to, const struct operand_out *operand,
                        uint32_t indent)
{
    struct ul_contract_out out = out_of(to, operand->plan);
    char function[24];
    snprintf(function, sizeof function, "%s%s", reader_of(to), operand->name);
    ul_contract_cuda_put_reader(
        &out, indent,
        &(struct ul_contract_cuda_reader){.function = function,
                                          .operand = operand->operand,
                                          .first = operand->operand == 'a' ? "t_fm" : "t_fn",
                                          .second = "t_fk",
                                          .type = "float",
                                          .pack = operand->pack,
                                          .is_place = to->kind != NULL});
}

/* Lists operands in the order of the templates' parameters. Templates for tensor cores have four; a
 * sum without slopes has no rows of the second product, and passes those of the first again. A sum
 * without a second sum passes its values again. */
static uint32_t list_operands(const struct gradient_out *to, uint32_t *list)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < OPERANDS; i++)
        if (has(to, i))
            list[count++] = i;
    if (to->kind != NULL && !to->attend->has_slopes) {
        list[2] = ROW;
        list[3] = VALUE;
        count = 4;
    }
    if (has(to, VALUE) && to->attend->has_slopes && !has(to, SHARE))
        list[count++] = VALUE;
    return count;
}

static void put_alignments(const struct gradient_out *to, const uint32_t *list, uint32_t count)
{
    ul_text_put(to->printer.text, ", {");
    for (uint32_t i = 0; i < count; i++) {
        const struct operand_out *operand = &to->operands[list[i]];
        ul_text_put(to->printer.text, i == 0 ? "" : ", ");
        if (operand->pack > 1)
            ul_text_printf(to->printer.text, "ul_is_aligned<%d>(t_place_%s(0, 0).from)",
                           operand->pack, operand->name);
        else
            ul_text_put(to->printer.text, "true");
    }
    ul_text_put(to->printer.text, "}");
}

/* Puts the call of the template `name`, whose last arguments are `last`. */
static void put_call(const struct gradient_out *to, const char *name, const char *last)
{
    const struct ul_attend *attend = to->attend;
    struct ul_text *text = to->printer.text;
    const char *type = to->coordinate;
    uint32_t list[OPERANDS], count = list_operands(to, list);
    bool is_sum = has_sums(attend);
    ul_text_printf(text, "%s<t_size", name);
    for (uint32_t i = 0; i < count; i++)
        ul_text_printf(text, ", ul_reading<%d, %s>", to->operands[list[i]].pack,
                       ul_contract_cuda_truth(to->operands[list[i]].along_k));
    ul_text_printf(text, ", %s>(%st_shared_%" PRIu32 ", t_tile",
                   is_sum ? ul_contract_cuda_truth(attend->is_turned)
                          : ul_attend_cuda_empty(attend->empty),
                   is_sum ? "t_sums, " : "", attend->scores[0].acc);
    const int64_t sizes[] = {attend->queries, attend->keys, attend->reach, attend->size,
                             attend->value_size};
    for (uint32_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        ul_text_printf(text, ", (%s)%" PRId64, type, sizes[i]);
    if (to->kind != NULL)
        put_alignments(to, list, count);
    for (uint32_t i = 0; i < count; i++)
        ul_text_printf(text, ", %s%s", reader_of(to), to->operands[list[i]].name);
    ul_text_printf(text, ", t_score%s);\n", last);
}

/* Prints the part of a sum that each round makes anew: its operands, and the weight of each
 * score. */
static void put_round(struct gradient_out *to, uint32_t indent)
{
    for (uint32_t i = 0; i < OPERANDS; i++)
        if (has(to, i))
            put_operand(to, &to->operands[i], indent);
    ul_attend_cuda_put_score(&to->printer, to->attend, to->coordinate, indent);
    ul_attend_cuda_put_factor(&to->printer, to->attend, to->coordinate, indent);
    struct ul_contract_out out = out_of(to, &to->scores[0]);
    ul_contract_indent(&out, indent);
    if (to->attend->kind == UL_ATTEND_STATISTICS)
        put_call(to, to->kind != NULL ? "ul_gradient_statistics_mma" : "ul_gradient_statistics",
                 to->attend->factor != UL_NONE ? ", t_put, t_factor" : ", t_put");
    else if (to->attend->kind == UL_ATTEND_EACH)
        put_call(to, to->kind != NULL ? "ul_gradient_add_each_mma" : "ul_gradient_add_each", "");
    else
        put_call(to,
                 to->kind != NULL         ? "ul_gradient_add_mma"
                 : to->attend->has_slopes ? "ul_gradient_add_slopes"
                                          : "ul_gradient_add_weights",
                 "");
}

static void put_rounds(struct gradient_out *to, uint32_t indent)
{
    const struct ul_attend *attend = to->attend;
    struct ul_contract_out out = out_of(to, &to->scores[0]);
    const bool *is_short = ul_narrow(to->printer.kernel, &to->arena);
    if (attend->rounds == 0) {
        put_round(to, indent);
        return;
    }
    ul_contract_line(&out, indent, "UL_ROLLED");
    ul_contract_line(&out, indent,
                     "for (%s v%" PRIu32 " = 0; v%" PRIu32 " < %" PRId64 "; v%" PRIu32 "++) {",
                     is_short[attend->round_var] ? "int32_t" : "int64_t", attend->round_var,
                     attend->round_var, attend->rounds, attend->round_var);
    put_round(to, indent + 1);
    ul_contract_line(&out, indent, "}");
}

static void put_size(const struct gradient_out *to, uint32_t indent)
{
    struct ul_contract_out out = out_of(to, &to->scores[0]);
    if (to->kind != NULL)
        ul_contract_line(&out, indent,
                         "typedef ul_gradient_mma<%s, %" PRId64 ", %" PRId64 ", %" PRId64
                         ", %" PRId64 ", %d, %d, %d, %s, %s> t_size;",
                         to->kind, to->depth, to->beside, to->width, to->shares, to->columns,
                         to->rows, to->stages, ul_contract_cuda_truth(to->attend->has_slopes),
                         ul_contract_cuda_truth(to->attend->rounds_weights));
    else
        ul_contract_line(&out, indent,
                         "typedef ul_gradient_size<%" PRId64 ", %" PRId64 ", %d, %d> t_size;",
                         to->width, to->shares, to->rows, COLUMNS);
    ul_contract_line(&out, indent, "static_assert(t_size::elements * %d <= %" PRIu32 ");",
                     to->kind != NULL ? 2 : 4, to->grid.shared_bytes);
}

/* ---- Entries ---- */

bool ul_attend_cuda_gradient_is_half(const struct ul_kernel *kernel, const struct ul_attend *attend)
{
    return kind_of(kernel, attend) != NULL;
}

void ul_attend_cuda_gradient_grid(const struct ul_kernel *kernel, const struct ul_attend *attend,
                                  const struct ul_profile_device *device,
                                  struct ul_contract_grid *grid)
{
    struct gradient_out to;
    init(&to, kernel, attend, device);
    *grid = to.grid;
    ul_arena_done(&to.arena);
}

/* Stores one of the results of a tile; `put` stores an element of it. */
static void put_sums(const struct gradient_out *to, uint32_t result, const char *sums,
                     uint32_t indent)
{
    struct ul_contract_out out = out_of(to, &to->values[result]);
    ul_contract_line(&out, indent,
                     "ul_gradient_put%s%s<t_size>(t_sums.%s, t_tile, (%s)%" PRId64 ", (%s)%" PRId64
                     ", t_put_%s);",
                     each_of(to->attend), to->kind != NULL ? "_mma" : "", sums, to->coordinate,
                     to->attend->queries, to->coordinate, to->attend->values[result].extents[1],
                     sums);
}

void ul_attend_cuda_gradient_put_tile(const struct ul_contract_cuda_printer *printer,
                                      const struct ul_attend *attend, uint32_t indent)
{
    static const char *const sums[] = {"at", "shares"}, *const putters[] = {"t_put_at",
                                                                            "t_put_shares"};
    struct gradient_out to;
    init(&to, printer->kernel, attend, printer->device);
    to.printer = ul_contract_cuda_base(printer);
    struct ul_contract_out out = out_of(&to, &to.values[0]);
    ul_contract_line(&out, indent,
                     "{ /* %" PRId64 " rows, %" PRId64 " columns, heads of %" PRId64 " */",
                     attend->queries, attend->keys, attend->size);
    put_size(&to, indent + 1);
    uint32_t count = attend->has_shares ? 2 : 1;
    for (uint32_t i = 0; i < count; i++) {
        out = out_of(&to, &to.values[i]);
        out.is_short = ul_narrow(printer->kernel, &to.arena);
        ul_contract_cuda_put_putter(&out, indent + 1, has_sums(attend) ? putters[i] : "t_put");
    }
    if (has_sums(attend))
        ul_contract_line(&out, indent + 1, "ul_gradient%s%s_sums<t_size> t_sums = {};",
                         each_of(attend), to.kind != NULL ? "_mma" : "");
    put_rounds(&to, indent + 1);
    for (uint32_t i = 0; has_sums(attend) && i < count; i++)
        put_sums(&to, i, sums[i], indent + 1);
    ul_contract_line(&out, indent, "}");
    ul_arena_done(&to.arena);
}
