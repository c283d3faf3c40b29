/* SPDX-License-Identifier: Apache-2.0 */
/* Decides when the chosen values are copied.
 *
 * A save is issued after the last write; the wait for it comes where its bytes are wanted. A load
 * is issued so early that runs hide it, but no earlier than the bytes allow; the wait for it comes
 * before the step that reads it. Loads are placed from the last one on, each before the next one on
 * their stream. Free bytes go to loads first; this may make waits for saves necessary.
 *
 *     boundary      2         5         9
 *     stream 0   run | run run | ... run | wait, run
 *     saves          [--x--)
 *     loads                    [---x---)            as long as it takes before boundary 9 */
#include "planner/model/timeline.h"
#include "planner/transfer/transfer_internal.h"

#include <stdlib.h>

/* The queues: of saves, and of loads where they run at the same time. */
enum { OUT, IN, QUEUE_COUNT };

struct op {
    const struct ul_transfer_piece *piece;
    bool loads;
    uint32_t at;       /* boundary where it is issued */
    uint32_t earliest; /* for a load */
    uint32_t save;     /* for a load: the save of its bytes, or UL_PLAN_NONE */
    uint64_t size_bytes, cost;
    uint32_t position; /* in the plan, once issued */
    bool is_done;      /* some step has waited for it */
};

struct scheduler {
    const struct ul_transfer_model *m;
    const struct ul_transfer_alternative *alternative;
    struct ul_arena scratch;
    uint64_t limit_bytes;
    uint64_t *live_bytes; /* by position, with values that are loaded early */
    struct op *ops;
    uint32_t op_count;
    uint32_t *by_boundary,
        *first; /* operations by the boundary where they are issued; count + 2 entries */
    uint32_t *queue[QUEUE_COUNT]; /* operations in the order of issue */
    uint32_t queued[QUEUE_COUNT];
    uint32_t done[QUEUE_COUNT]; /* how many of these have been waited for */
    bool is_duplex;
    struct ul_plan *plan;
};

static uint32_t queue_of(const struct scheduler *s, const struct op *op)
{
    return s->is_duplex && op->loads ? IN : OUT;
}

/* ---- Operations ---- */

static uint32_t op_add(struct scheduler *s, const struct ul_transfer_piece *piece, bool loads)
{
    uint64_t bytes = s->m->items[piece->item].size_bytes;
    s->ops[s->op_count] = (struct op){.piece = piece,
                                      .loads = loads,
                                      .at = loads ? piece->end : piece->save_at,
                                      .save = UL_PLAN_NONE,
                                      .size_bytes = bytes};
    s->ops[s->op_count].cost =
        ul_resource_cost(s->m->engines[loads], s->m->problem->values[piece->value].size_bytes);
    return s->op_count++;
}

/* A value is saved where its copy in the other space is not what was written last. */
static void ops_make(struct scheduler *s, const bool *chosen)
{
    const struct ul_transfer_model *m = s->m;
    uint32_t value = UL_PLAN_NONE, saved_at = 0, save = UL_PLAN_NONE;
    bool is_saved = false;
    s->ops = UL_NEW_ARRAY(&s->scratch, struct op, 2 * (uint64_t)m->piece_count);
    for (uint32_t i = 0; i < m->piece_count; i++) {
        const struct ul_transfer_piece *piece = &m->pieces[i];
        if (!chosen[piece->item])
            continue;
        if (piece->value != value) {
            value = piece->value;
            is_saved = m->problem->values[value].persistent;
            saved_at = 0;
            save = UL_PLAN_NONE;
        }
        if (!is_saved || piece->written > saved_at) {
            save = op_add(s, piece, false);
            is_saved = true;
            saved_at = piece->save_at;
        }
        if (!piece->loads)
            continue;
        struct op *load = &s->ops[op_add(s, piece, true)];
        load->save = save;
        load->earliest = piece->begin;
    }
}

/* ---- Loads ---- */

/* The last due first. */
static int load_compare(const void *a, const void *b)
{
    const struct op *x = *(const struct op *const *)a;
    const struct op *y = *(const struct op *const *)b;
    if (x->piece->end != y->piece->end)
        return x->piece->end > y->piece->end ? -1 : 1;
    return x < y ? 1 : x > y ? -1 : 0;
}

/* From its end back, as long as the time is too short and there are bytes. */
static void load_place(struct scheduler *s, struct op *load, double *free_time)
{
    const struct ul_transfer_model *m = s->m;
    double due = (double)m->time[load->piece->end];
    double start = due < *free_time ? due : *free_time;
    start -= (double)load->cost * s->alternative->lead;
    uint32_t g = load->piece->end;
    while (g > load->earliest && (double)m->time[g] > start &&
           s->live_bytes[g - 1] + load->size_bytes <= s->limit_bytes)
        g--;
    g = m->next_open[g];
    for (uint32_t p = g; p < load->piece->end; p++)
        s->live_bytes[p] += load->size_bytes;
    load->at = g;
    *free_time = (double)m->time[g] < start ? start : (double)m->time[g];
}

static void loads_place(struct scheduler *s)
{
    struct op **loads = UL_NEW_ARRAY(&s->scratch, struct op *, s->op_count);
    double free_time = (double)s->m->time[s->m->count];
    uint32_t count = 0;
    for (uint32_t i = 0; i < s->op_count; i++) {
        if (s->ops[i].loads)
            loads[count++] = &s->ops[i];
    }
    if (count > 0)
        qsort(loads, count, sizeof *loads, load_compare);
    for (uint32_t i = 0; i < count; i++)
        load_place(s, loads[i], &free_time);
}

/* ---- Positions ---- */

static void put_wait(struct scheduler *s, const struct op *op)
{
    uint32_t queue = queue_of(s, op);
    s->plan->positions[s->plan->position_count++] = (struct ul_plan_position){
        .kind = UL_PLAN_WAIT, .awaited = op->position, .region = op->piece->section};
    while (s->done[queue] < s->queued[queue]) {
        struct op *other = &s->ops[s->queue[queue][s->done[queue]]];
        if (other->position > op->position)
            break;
        other->is_done = true;
        s->done[queue]++;
    }
}

static void put_transfer(struct scheduler *s, struct op *op)
{
    uint32_t queue = queue_of(s, op);
    op->position = s->plan->position_count;
    s->plan->positions[s->plan->position_count++] =
        (struct ul_plan_position){.kind = UL_PLAN_COPY,
                                  .loads = op->loads,
                                  .stream = s->m->engines[op->loads]->stream,
                                  .value = op->piece->value,
                                  .space = s->m->space,
                                  .region = op->piece->section};
    s->queue[queue][s->queued[queue]++] = (uint32_t)(op - s->ops);
}

/* The oldest save that is not done and whose bytes would be free at the boundary; NULL: none.
 * *held_bytes: the bytes that such saves hold there. */
static struct op *held_find(struct scheduler *s, uint32_t g, uint64_t *held_bytes)
{
    struct op *oldest = NULL;
    *held_bytes = 0;
    for (uint32_t i = s->done[OUT]; i < s->queued[OUT]; i++) {
        struct op *op = &s->ops[s->queue[OUT][i]];
        if (op->loads || op->piece->begin > g)
            continue;
        oldest = oldest == NULL ? op : oldest;
        *held_bytes += op->size_bytes;
    }
    return oldest;
}

/* Waits for saves until the runs up to the next place for a wait have their bytes. */
static void room_make(struct scheduler *s, uint32_t g)
{
    uint64_t held, most = 0;
    struct op *oldest;
    if (g == s->m->count || s->m->next_open[g] != g)
        return;
    for (uint32_t p = g; p < s->m->next_open[g + 1]; p++)
        most = s->live_bytes[p] > most ? s->live_bytes[p] : most;
    while ((oldest = held_find(s, g, &held)) != NULL && most + held > s->limit_bytes)
        put_wait(s, oldest);
}

/* Puts the remaining transfers of a section at its end. */
static void section_finish(struct scheduler *s)
{
    for (uint32_t queue = OUT; queue < QUEUE_COUNT; queue++) {
        if (s->done[queue] < s->queued[queue])
            put_wait(s, &s->ops[s->queue[queue][s->queued[queue] - 1]]);
    }
}

static bool is_here(const struct op *op, uint32_t section, bool loads)
{
    return op->piece->section == section && op->loads == loads;
}

/* Puts the operations of a section at a boundary, and the waits. */
static void boundary_put(struct scheduler *s, uint32_t g, uint32_t section)
{
    for (uint32_t i = s->first[g]; i < s->first[g + 1]; i++) {
        if (is_here(&s->ops[s->by_boundary[i]], section, false))
            put_transfer(s, &s->ops[s->by_boundary[i]]);
    }
    room_make(s, g);
    for (uint32_t i = s->first[g]; i < s->first[g + 1]; i++) {
        struct op *op = &s->ops[s->by_boundary[i]];
        if (!is_here(op, section, true))
            continue;
        if (s->is_duplex && op->save != UL_PLAN_NONE && !s->ops[op->save].is_done)
            put_wait(s, &s->ops[op->save]);
        put_transfer(s, op);
    }
    struct op *due = NULL;
    uint32_t queue = s->is_duplex ? IN : OUT;
    for (uint32_t i = s->done[queue]; i < s->queued[queue]; i++) {
        struct op *op = &s->ops[s->queue[queue][i]];
        due = op->loads && op->piece->end <= g ? op : due;
    }
    if (due != NULL)
        put_wait(s, due);
    if (g == s->m->section_end[section])
        section_finish(s);
}

/* Sorts by boundary, and at one boundary in the order of the operations, loads by when they are
 * due. */
static void ops_index(struct scheduler *s)
{
    uint32_t boundaries = s->m->count + 1;
    s->by_boundary = UL_NEW_ARRAY(&s->scratch, uint32_t, s->op_count);
    s->first = UL_NEW_ARRAY(&s->scratch, uint32_t, (uint64_t)boundaries + 1);
    uint32_t *next = UL_NEW_ARRAY(&s->scratch, uint32_t, boundaries);
    for (uint32_t i = 0; i < s->op_count; i++)
        s->first[s->ops[i].at + 1]++;
    for (uint32_t g = 0; g < boundaries; g++) {
        s->first[g + 1] += s->first[g];
        next[g] = s->first[g];
    }
    for (uint32_t i = 0; i < s->op_count; i++) {
        uint32_t g = s->ops[i].at, at = next[g]++;
        for (; at > s->first[g] && s->ops[s->by_boundary[at - 1]].piece->end > s->ops[i].piece->end;
             at--)
            s->by_boundary[at] = s->by_boundary[at - 1];
        s->by_boundary[at] = i;
    }
}

/* Between two positions of different sections both have something to put, one of them at its
 * end. */
static void positions_put(struct scheduler *s)
{
    const struct ul_transfer_model *m = s->m;
    for (uint32_t g = 0; g <= m->count; g++) {
        uint32_t before = g > 0 ? m->section[g - 1] : UL_PLAN_NONE;
        uint32_t behind = g < m->count ? m->section[g] : UL_PLAN_NONE;
        if (before != UL_PLAN_NONE && before != behind)
            boundary_put(s, g, before);
        if (behind != UL_PLAN_NONE)
            boundary_put(s, g, behind);
        if (g < m->count)
            s->plan->positions[s->plan->position_count++] = m->runs->positions[g];
    }
}

void ul_transfer_schedule(struct ul_arena *arena, const struct ul_transfer_model *m,
                          const struct ul_transfer_alternative *alternative, uint64_t limit_bytes,
                          const bool *chosen, const uint64_t *live_bytes, struct ul_plan *plan)
{
    struct scheduler s = {
        .m = m, .alternative = alternative, .limit_bytes = limit_bytes, .plan = plan};
    ul_arena_init(&s.scratch);
    s.is_duplex = m->engines[false]->stream != m->engines[true]->stream;
    s.live_bytes = ul_arena_copy(&s.scratch, live_bytes, m->count * sizeof *live_bytes);
    ops_make(&s, chosen);
    for (uint32_t queue = OUT; queue < QUEUE_COUNT; queue++)
        s.queue[queue] = UL_NEW_ARRAY(&s.scratch, uint32_t, s.op_count);
    loads_place(&s);
    ops_index(&s);
    uint64_t most = (uint64_t)m->count + 4 * (uint64_t)s.op_count + 2;
    plan->positions = UL_NEW_ARRAY(arena, struct ul_plan_position, most);
    plan->position_count = 0;
    positions_put(&s);
    UL_ASSERT(plan->position_count <= most);
    ul_arena_done(&s.scratch);
}
