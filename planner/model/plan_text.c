/* SPDX-License-Identifier: Apache-2.0 */
/* The text form of a plan: printed, and read back to the same bytes, so that a plan can be
 * examined, edited and checked with only its problem. planner/README.md has the grammar. */
#include "planner/model/model_internal.h"
#include "planner/model/plan.h"

#include <inttypes.h>
#include <string.h>

/* A copy has a word for each direction. */
static const struct {
    const char *name;
    enum ul_plan_kind kind;
    bool loads;
} words[UL_PLAN_WORD_COUNT] = {{"run", UL_PLAN_RUN, false},
                               {"save", UL_PLAN_COPY, false},
                               {"load", UL_PLAN_COPY, true},
                               {"wait", UL_PLAN_WAIT, false}};

const char *ul_plan_word(uint32_t word)
{
    UL_ASSERT(word < UL_PLAN_WORD_COUNT);
    return words[word].name;
}

uint32_t ul_plan_word_of(enum ul_plan_kind kind, bool loads)
{
    uint32_t word = 0;
    while (words[word].kind != kind || words[word].loads != loads)
        word++;
    return word;
}

void ul_plan_set_word(struct ul_plan_position *position, uint32_t word)
{
    UL_ASSERT(word < UL_PLAN_WORD_COUNT);
    position->kind = words[word].kind;
    position->loads = words[word].loads;
}

/* ---- Printing ---- */

static void put_rows(struct ul_text *text, const struct ul_plan_rows *rows)
{
    ul_text_put(text, "rows");
    for (uint32_t i = 0; i < UL_PLAN_CLASS_COUNT; i++) {
        if (rows->class_bytes[i] != 0)
            ul_text_printf(text, " %s %" PRIu64, ul_plan_class_name((enum ul_plan_class)i),
                           rows->class_bytes[i]);
    }
    ul_text_printf(text, " alignment %" PRIu64 " holes %" PRIu64 "\n", rows->alignment_bytes,
                   rows->holes_bytes);
}

/* A word and a number, unless it is 0. */
static void put_number(struct ul_text *text, const char *word, uint32_t number)
{
    if (number > 0)
        ul_text_printf(text, " %s %u", word, number);
}

static void put_position(struct ul_text *text, const struct ul_plan_position *position, uint32_t id)
{
    ul_text_printf(text, "position %u %s", id,
                   ul_plan_word(ul_plan_word_of(position->kind, position->loads)));
    if (position->kind == UL_PLAN_RUN) {
        ul_text_printf(text, " %u", position->step);
        put_number(text, "alternative", position->alternative);
        put_number(text, "substep", position->substep);
        put_number(text, "copy", position->copy);
    } else if (position->kind == UL_PLAN_WAIT) {
        ul_text_printf(text, " %u", position->awaited);
    } else {
        ul_text_printf(text, " %u space %u", position->value, position->space);
    }
    put_number(text, "region", position->region);
    put_number(text, "stream", position->stream);
    ul_text_put(text, "\n");
}

static void put_range(struct ul_text *text, const struct ul_plan_range *range, uint32_t id)
{
    ul_text_printf(text, "range %u", id);
    if (range->value != UL_PLAN_NONE)
        ul_text_printf(text, " value %u", range->value);
    put_number(text, "copy", range->copy);
    ul_text_printf(text, " %s %" PRIu64 " live %u:%u", ul_plan_class_name(range->class),
                   range->size_bytes, range->begin, range->end);
    put_number(text, "space", range->space);
    ul_text_printf(text, " at %" PRIu64, range->offset_bytes);
    if (range->alias != UL_PLAN_NONE)
        ul_text_printf(text, " over %u", range->alias);
    ul_text_put(text, "\n");
}

static void put_method(struct ul_text *text, const char *name)
{
    ul_text_put(text, " ");
    ul_text_quote(text, name, strlen(name));
}

/* "banks 0:4096 4096:512": begin and bytes of each. */
static void put_banks(struct ul_text *text, const struct ul_plan *plan)
{
    if (plan->banks == NULL)
        return;
    ul_text_put(text, "\nbanks");
    for (uint32_t i = 0; i < plan->bank_count; i++)
        ul_text_printf(text, " %" PRIu64 ":%" PRIu64, plan->banks[i].begin_bytes,
                       plan->banks[i].size_bytes);
}

static void put_head(struct ul_text *text, const struct ul_plan *plan)
{
    ul_text_put(text, "plan 1\nmethod");
    put_method(text, plan->order_method);
    put_method(text, plan->remat_method);
    put_method(text, plan->pack_method);
    ul_text_printf(text, "\nalign %" PRIu64 "\nreserved", plan->alignment_bytes);
    for (uint32_t i = 0; i < plan->space_count; i++)
        ul_text_printf(text, " %" PRIu64, plan->reserved_bytes[i]);
    put_banks(text, plan);
    ul_text_printf(text, "\npeak %" PRIu64 " at %u\n", plan->order_lower_bound_bytes,
                   plan->peak_position);
    ul_text_printf(text, "bound %" PRIu64 " orders %" PRIu64 "\n", plan->lower_bound_bytes,
                   plan->orders_lower_bound_bytes);
    ul_text_printf(text, "cost %" PRIu64 " base %" PRIu64, plan->cost, plan->base_cost);
    if (plan->cost_bound > 0)
        ul_text_printf(text, " bound %" PRIu64, plan->cost_bound);
    if (plan->cost_bound_method != NULL) {
        ul_text_put(text, " by");
        put_method(text, plan->cost_bound_method);
    }
    if (plan->optimal_within != NULL)
        put_method(text, plan->optimal_within);
    if (plan->banks != NULL)
        ul_text_printf(text, " banks %" PRIu64 " bound %" PRIu64, plan->bank_cost,
                       plan->bank_cost_bound);
    ul_text_put(text, "\n");
    ul_text_printf(text, "smallest %" PRIu64 "%s%s%s%s\n", plan->smallest_budget_bytes,
                   plan->fits ? " fits" : "", plan->packing_proven ? " proven" : "",
                   plan->optimal ? " optimal" : "", plan->stopped_by_time ? " stopped" : "");
}

void ul_plan_print(struct ul_text *text, const struct ul_plan *plan)
{
    put_head(text, plan);
    put_rows(text, &plan->rows);
    for (uint32_t i = 0; i < plan->position_count; i++)
        put_position(text, &plan->positions[i], i);
    for (uint32_t i = 0; i < plan->range_count; i++)
        put_range(text, &plan->ranges[i], i);
}

/* ---- Parsing ---- */

struct parser {
    struct ul_scan scan;
    struct ul_plan *plan;
    uint32_t position_capacity, range_capacity;
};

/* A word that must come here, and its number. */
static enum ul_status parse_number(struct parser *p, const char *word, uint64_t *number)
{
    UL_TRY(ul_scan_expect(&p->scan, word));
    return ul_scan_u64(&p->scan, number);
}

static enum ul_status parse_small(struct parser *p, const char *word, uint32_t *number)
{
    UL_TRY(ul_scan_expect(&p->scan, word));
    return ul_scan_u32(&p->scan, UL_PLAN_NONE, number);
}

static enum ul_status parse_class(struct parser *p, enum ul_plan_class *class)
{
    return ul_plan_class_accept(&p->scan, class) ? UL_OK : ul_scan_fail(&p->scan, "a class");
}

static enum ul_status parse_rows(struct parser *p)
{
    struct ul_plan_rows *rows = &p->plan->rows;
    enum ul_plan_class class;
    UL_TRY(ul_scan_expect(&p->scan, "rows"));
    while (ul_plan_class_accept(&p->scan, &class))
        UL_TRY(ul_scan_u64(&p->scan, &rows->class_bytes[class]));
    UL_TRY(parse_number(p, "alignment", &rows->alignment_bytes));
    UL_TRY(parse_number(p, "holes", &rows->holes_bytes));
    return ul_scan_end_line(&p->scan);
}

static enum ul_status parse_reserved(struct parser *p)
{
    uint32_t capacity = 0;
    UL_TRY(ul_scan_expect(&p->scan, "reserved"));
    do {
        UL_GROW(p->scan.arena, p->plan->reserved_bytes, p->plan->space_count, capacity);
        UL_TRY(ul_scan_u64(&p->scan, &p->plan->reserved_bytes[p->plan->space_count++]));
    } while (ul_scan_sees_number(&p->scan));
    return ul_scan_end_line(&p->scan);
}

static enum ul_status parse_banks(struct parser *p)
{
    struct ul_plan *plan = p->plan;
    uint32_t capacity = 0;
    if (!ul_scan_accept_word(&p->scan, "banks"))
        return UL_OK;
    do {
        UL_GROW(p->scan.arena, plan->banks, plan->bank_count, capacity);
        struct ul_plan_bank_place *bank = &plan->banks[plan->bank_count++];
        UL_TRY(ul_scan_u64(&p->scan, &bank->begin_bytes));
        UL_TRY(ul_scan_expect(&p->scan, ":"));
        UL_TRY(ul_scan_u64(&p->scan, &bank->size_bytes));
    } while (ul_scan_sees_number(&p->scan));
    return ul_scan_end_line(&p->scan);
}

static enum ul_status parse_head(struct parser *p)
{
    struct ul_plan *plan = p->plan;
    UL_TRY(ul_scan_expect(&p->scan, "plan 1"));
    UL_TRY(ul_scan_end_line(&p->scan));
    UL_TRY(ul_scan_expect(&p->scan, "method"));
    UL_TRY(ul_scan_string(&p->scan, &plan->order_method));
    UL_TRY(ul_scan_string(&p->scan, &plan->remat_method));
    UL_TRY(ul_scan_string(&p->scan, &plan->pack_method));
    UL_TRY(ul_scan_end_line(&p->scan));
    UL_TRY(parse_number(p, "align", &plan->alignment_bytes));
    UL_TRY(ul_scan_end_line(&p->scan));
    UL_TRY(parse_reserved(p));
    UL_TRY(parse_banks(p));
    UL_TRY(parse_number(p, "peak", &plan->order_lower_bound_bytes));
    UL_TRY(parse_small(p, "at", &plan->peak_position));
    UL_TRY(ul_scan_end_line(&p->scan));
    UL_TRY(parse_number(p, "bound", &plan->lower_bound_bytes));
    UL_TRY(parse_number(p, "orders", &plan->orders_lower_bound_bytes));
    UL_TRY(ul_scan_end_line(&p->scan));
    UL_TRY(parse_number(p, "cost", &plan->cost));
    UL_TRY(parse_number(p, "base", &plan->base_cost));
    if (ul_scan_accept_word(&p->scan, "bound"))
        UL_TRY(ul_scan_u64(&p->scan, &plan->cost_bound));
    if (ul_scan_accept_word(&p->scan, "by"))
        UL_TRY(ul_scan_string(&p->scan, &plan->cost_bound_method));
    ul_scan_skip_blanks(&p->scan);
    if (*p->scan.at == '"')
        UL_TRY(ul_scan_string(&p->scan, &plan->optimal_within));
    if (plan->banks != NULL) {
        UL_TRY(parse_number(p, "banks", &plan->bank_cost));
        UL_TRY(parse_number(p, "bound", &plan->bank_cost_bound));
    }
    UL_TRY(ul_scan_end_line(&p->scan));
    UL_TRY(parse_number(p, "smallest", &plan->smallest_budget_bytes));
    plan->fits = ul_scan_accept_word(&p->scan, "fits");
    plan->packing_proven = ul_scan_accept_word(&p->scan, "proven");
    plan->optimal = ul_scan_accept_word(&p->scan, "optimal");
    plan->stopped_by_time = ul_scan_accept_word(&p->scan, "stopped");
    UL_TRY(ul_scan_end_line(&p->scan));
    return parse_rows(p);
}

static enum ul_status parse_what(struct parser *p, struct ul_plan_position *position)
{
    if (position->kind == UL_PLAN_WAIT)
        return ul_scan_u32(&p->scan, UL_PLAN_NONE, &position->awaited);
    if (position->kind != UL_PLAN_RUN) {
        UL_TRY(ul_scan_u32(&p->scan, UL_PLAN_NONE, &position->value));
        return parse_small(p, "space", &position->space);
    }
    UL_TRY(ul_scan_u32(&p->scan, UL_PLAN_NONE, &position->step));
    UL_TRY(ul_model_text_option(&p->scan, "alternative", &position->alternative));
    UL_TRY(ul_model_text_option(&p->scan, "substep", &position->substep));
    return ul_model_text_option(&p->scan, "copy", &position->copy);
}

static enum ul_status parse_position(struct parser *p)
{
    struct ul_plan *plan = p->plan;
    UL_TRY(ul_model_text_id(&p->scan, plan->position_count));
    UL_GROW(p->scan.arena, plan->positions, plan->position_count, p->position_capacity);
    struct ul_plan_position *position = &plan->positions[plan->position_count++];
    memset(position, 0, sizeof *position);
    uint32_t word = 0;
    while (word < UL_PLAN_WORD_COUNT && !ul_scan_accept_word(&p->scan, words[word].name))
        word++;
    if (word == UL_PLAN_WORD_COUNT)
        return ul_scan_fail(&p->scan, "run, save, load or wait");
    ul_plan_set_word(position, word);
    UL_TRY(parse_what(p, position));
    UL_TRY(ul_model_text_option(&p->scan, "region", &position->region));
    UL_TRY(ul_model_text_option(&p->scan, "stream", &position->stream));
    return ul_scan_end_line(&p->scan);
}

static enum ul_status parse_range(struct parser *p)
{
    struct ul_plan *plan = p->plan;
    UL_TRY(ul_model_text_id(&p->scan, plan->range_count));
    UL_GROW(p->scan.arena, plan->ranges, plan->range_count, p->range_capacity);
    struct ul_plan_range *range = &plan->ranges[plan->range_count++];
    *range = (struct ul_plan_range){.value = UL_PLAN_NONE, .alias = UL_PLAN_NONE};
    UL_TRY(ul_model_text_option(&p->scan, "value", &range->value));
    UL_TRY(ul_model_text_option(&p->scan, "copy", &range->copy));
    UL_TRY(parse_class(p, &range->class));
    UL_TRY(ul_scan_u64(&p->scan, &range->size_bytes));
    UL_TRY(parse_small(p, "live", &range->begin));
    UL_TRY(parse_small(p, ":", &range->end));
    UL_TRY(ul_model_text_option(&p->scan, "space", &range->space));
    UL_TRY(parse_number(p, "at", &range->offset_bytes));
    UL_TRY(ul_model_text_option(&p->scan, "over", &range->alias));
    return ul_scan_end_line(&p->scan);
}

static enum ul_status parse_positions(struct parser *p)
{
    while (ul_scan_accept_word(&p->scan, "position"))
        UL_TRY(parse_position(p));
    return UL_OK;
}

static enum ul_status parse_plan(struct parser *p)
{
    UL_TRY(parse_head(p));
    UL_TRY(parse_positions(p));
    while (ul_scan_accept_word(&p->scan, "range"))
        UL_TRY(parse_range(p));
    return *p->scan.at == '\0' ? UL_OK : ul_scan_fail(&p->scan, "another position or range");
}

bool ul_plan_is_text(const char *text, uint64_t size_bytes)
{
    return ul_model_text_begins(text, size_bytes, "plan");
}

enum ul_status ul_plan_parse(struct ul_arena *arena, const char *text, uint64_t size_bytes,
                             const struct ul_problem *problem, struct ul_plan *plan,
                             struct ul_diag *diag)
{
    struct parser p = {.plan = plan};
    memset(plan, 0, sizeof *plan);
    UL_TRY(ul_scan_open(&p.scan, arena, text, size_bytes, diag));
    UL_TRY(parse_plan(&p));
    ul_plan_sum_overhead(problem, plan);
    return ul_plan_index_ranges(arena, problem, plan, diag);
}

enum ul_status ul_positions_parse(struct ul_arena *arena, const char *text, uint64_t size_bytes,
                                  struct ul_plan *plan, struct ul_diag *diag)
{
    struct parser p = {.plan = plan};
    plan->positions = NULL;
    plan->position_count = 0;
    UL_TRY(ul_scan_open(&p.scan, arena, text, size_bytes, diag));
    UL_TRY(parse_positions(&p));
    return *p.scan.at == '\0' ? UL_OK : ul_scan_fail(&p.scan, "another position");
}
