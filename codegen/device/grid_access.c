/* SPDX-License-Identifier: Apache-2.0 */
/* Finds which threads of a team touch which elements, and where the team must wait for itself.
 *
 * Method: statements are walked in the order in which they run, loops twice; accesses since the
 * last barrier are kept, and a barrier is put before a statement that touches what another thread
 * wrote, or writes what another thread touched. The index of an element shows the thread that
 * touches it: with round f of a strided loop run by thread f modulo T,
 *
 *     for f strided: b[f] = ...        thread f mod T
 *     for r: for f strided: b[64 r + f]    the same, T being 32: 64 r is a multiple of it
 *
 * and two accesses whose indexes agree in everything else are by the same thread. An array of which
 * each thread touches one element needs no shared memory. Left undone: nests of which a thread
 * takes several rounds at once, which belong to no thread; distinct elements (two rows of one
 * buffer) count as the same. */
#include "codegen/device/grid.h"

#include "codegen/kernel/touch.h"
#include "ir/kernel_build.h"

#include <string.h>

enum { MAX_TERMS = 12 };

enum who { WHO_ALL, WHO_FIRST, WHO_STRIDED };

/* An index as a sum: terms that are the same for the whole item; terms that change from round to
 * round of loops that all threads walk (only their common divisor is kept); a constant; and the
 * round of the strided loop. */
struct owner {
    bool is_known;
    bool is_one_round; /* no thread runs two rounds */
    int64_t reach;     /* of the round, where there is one */
    uint32_t term_count;
    ul_kx terms[MAX_TERMS]; /* ascending */
    int64_t factors[MAX_TERMS];
    int64_t divisor; /* 0: nothing changes */
    int64_t constant;
};

struct access {
    uint32_t buffer;
    bool is_write;
    enum who who;
    struct owner owner;
};

struct accesses {
    uint32_t count, capacity;
    struct access *list;
};

enum depth { DEPTH_ITEM, DEPTH_WALKED, DEPTH_STRIDED };

struct finder {
    const struct ul_kernel *kernel;
    struct ul_phase *phase;
    struct ul_arena *arena;
    ul_ks *definitions; /* by variable: its LET, or UL_NONE */
    uint8_t *depths;    /* by variable: enum depth of the loop that makes it */
    const struct ul_nest *nest;
    uint32_t walked; /* loops around it */
    struct accesses pending;
    struct accesses *breaks; /* in the innermost walked loop */
    struct accesses all;     /* in the whole phase, to find registers */
};

/* ---- Aliases ---- */

static bool same_shape(const struct ul_kernel *kernel, uint32_t a, uint32_t b)
{
    const struct ul_buffer *x = &kernel->buffers[a], *y = &kernel->buffers[b];
    return x->element_count == y->element_count &&
           ul_dtype_get(x->dtype)->size_bytes == ul_dtype_get(y->dtype)->size_bytes;
}

/* An output may overlap an input of the same size, and so every other view of that. */
bool ul_may_alias(const struct ul_kernel *kernel, uint32_t a, uint32_t b)
{
    const struct ul_buffer *x = &kernel->buffers[a], *y = &kernel->buffers[b];
    if (a == b || (x->value != UL_NONE && x->value == y->value))
        return true;
    if (x->role == UL_BUFFER_OUTPUT && y->role == UL_BUFFER_INPUT)
        return ul_may_alias(kernel, b, a);
    if (x->role != UL_BUFFER_INPUT || y->role != UL_BUFFER_OUTPUT)
        return false;
    for (uint32_t i = 0; i < kernel->buffer_count; i++) {
        if (kernel->buffers[i].role == UL_BUFFER_INPUT && kernel->buffers[i].value == x->value &&
            same_shape(kernel, i, b))
            return true;
    }
    return false;
}

bool ul_same_elements(const struct ul_kernel *kernel, uint32_t a, uint32_t b)
{
    const struct ul_buffer *x = &kernel->buffers[a], *y = &kernel->buffers[b];
    if (a == b)
        return true;
    return x->offset_bytes == y->offset_bytes &&
           ul_dtype_get(x->dtype)->size_bytes == ul_dtype_get(y->dtype)->size_bytes;
}

/* ---- Owners ---- */

/* The deepest part of an expression; DEPTH_STRIDED also where it is not known. */
static enum depth depth_of(const struct finder *f, ul_kx id)
{
    const struct ul_kx_data *expr = &f->kernel->exprs[id];
    if (expr->op == UL_KX_VAR)
        return f->kernel->vars[expr->var].is_mutable ? DEPTH_STRIDED
                                                     : (enum depth)f->depths[expr->var];
    if (ul_kx_operand_count(expr->op) == 0)
        return DEPTH_ITEM;
    if (expr->op == UL_KX_LOAD)
        return DEPTH_STRIDED;
    enum depth depth = depth_of(f, expr->a);
    if (ul_kx_operand_count(expr->op) >= 2 && depth_of(f, expr->b) > depth)
        depth = depth_of(f, expr->b);
    if (ul_kx_operand_count(expr->op) == 3 && depth_of(f, expr->c) > depth)
        depth = depth_of(f, expr->c);
    return depth;
}

static void add_term(struct owner *owner, ul_kx id, int64_t factor)
{
    uint32_t at = 0;
    while (at < owner->term_count && owner->terms[at] < id)
        at++;
    if (at < owner->term_count && owner->terms[at] == id) {
        if (__builtin_add_overflow(owner->factors[at], factor, &owner->factors[at]))
            owner->is_known = false;
        return;
    }
    if (owner->term_count == MAX_TERMS) {
        owner->is_known = false;
        return;
    }
    uint32_t behind = owner->term_count++ - at;
    memmove(&owner->terms[at + 1], &owner->terms[at], behind * sizeof *owner->terms);
    memmove(&owner->factors[at + 1], &owner->factors[at], behind * sizeof *owner->factors);
    owner->terms[at] = id;
    owner->factors[at] = factor;
    UL_ASSERT(owner->term_count <= MAX_TERMS);
}

/* Adds factor * expression to an index, following names; `strided` gets the factors of the nest's
 * variables. */
static void add_index(const struct finder *f, struct owner *owner, int64_t *strided, ul_kx id,
                      int64_t factor)
{
    static const int64_t far = (int64_t)1 << 40;
    const struct ul_kernel *kernel = f->kernel;
    const struct ul_kx_data *expr = &kernel->exprs[id];
    int64_t number;
    owner->is_known = owner->is_known && factor > -far && factor < far;
    if (!owner->is_known)
        return;
    for (uint32_t i = 0; expr->op == UL_KX_VAR && i < f->nest->count; i++) {
        if (kernel->stmts[f->nest->loops[i]].var != expr->var)
            continue;
        strided[i] += factor;
        if (f->nest->shift != UL_NONE)
            add_index(f, owner, strided, f->nest->shift, -factor);
        return;
    }
    if (expr->op == UL_KX_VAR && f->definitions[expr->var] != UL_NONE) {
        ul_kx value = kernel->stmts[f->definitions[expr->var]].value;
        if (ul_is_index_only(kernel, value)) {
            add_index(f, owner, strided, value, factor);
            return;
        }
    }
    if (ul_kx_is_int(kernel, id, &number)) {
        if (number <= -far || number >= far || __builtin_mul_overflow(number, factor, &number) ||
            __builtin_add_overflow(owner->constant, number, &owner->constant))
            owner->is_known = false;
    } else if (expr->op == UL_KX_ADD || expr->op == UL_KX_SUB) {
        add_index(f, owner, strided, expr->a, factor);
        add_index(f, owner, strided, expr->b, expr->op == UL_KX_ADD ? factor : -factor);
    } else if (expr->op == UL_KX_MUL && ul_kx_is_int(kernel, expr->b, &number) && number > -far &&
               number < far && !__builtin_mul_overflow(factor, number, &number)) {
        add_index(f, owner, strided, expr->a, number);
    } else if (depth_of(f, id) == DEPTH_STRIDED) {
        owner->is_known = false;
    } else {
        add_term(owner, id, factor);
    }
}

/* Parts that change from round to round of walked loops count by their divisor; two that cancel are
 * removed. */
static void sort_terms(const struct finder *f, struct owner *owner)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < owner->term_count; i++) {
        if (owner->factors[i] == 0)
            continue;
        if (depth_of(f, owner->terms[i]) == DEPTH_WALKED) {
            owner->divisor = ul_gcd(owner->divisor, owner->factors[i]);
            continue;
        }
        owner->terms[kept] = owner->terms[i];
        owner->factors[kept++] = owner->factors[i];
    }
    owner->term_count = kept;
}

static struct owner owner_of(const struct finder *f, ul_kx index)
{
    struct owner owner = {.is_known = index != UL_NONE && f->nest != NULL && f->nest->vector == 1};
    if (!owner.is_known)
        return owner;
    int64_t strided[UL_GRID_LEVELS] = {0};
    int64_t below = 1;
    owner.is_one_round = f->nest->total <= f->phase->team;
    owner.reach = f->nest->shift == UL_NONE ? f->nest->total : f->phase->team;
    add_index(f, &owner, strided, index, 1);
    sort_terms(f, &owner);
    for (uint32_t i = f->nest->count; i-- > 0;) {
        if (f->nest->rounds[i] != 1 && strided[i] != below)
            owner.is_known = false;
        below *= f->nest->rounds[i];
    }
    return owner;
}

/* Whether one thread touches all elements that both touch. */
static bool same_thread(const struct finder *f, const struct access *a, const struct access *b)
{
    const struct owner *x = &a->owner, *y = &b->owner;
    if (a->who == WHO_FIRST && b->who == WHO_FIRST)
        return true;
    if (a->who != WHO_STRIDED || b->who != WHO_STRIDED || !x->is_known || !y->is_known ||
        !ul_same_elements(f->kernel, a->buffer, b->buffer) || x->term_count != y->term_count ||
        memcmp(x->terms, y->terms, x->term_count * sizeof *x->terms) != 0 ||
        memcmp(x->factors, y->factors, x->term_count * sizeof *x->factors) != 0)
        return false;
    int64_t divisor = ul_gcd(x->divisor, y->divisor);
    int64_t apart = x->constant - y->constant;
    if (divisor == 0 && apart == 0)
        return true;
    /* Rounds of one nest fall between two multiples of the divisor of the rest. */
    if (x->is_one_round && y->is_one_round && apart == 0 && divisor >= x->reach &&
        divisor >= y->reach)
        return true;
    return divisor % f->phase->team == 0 && apart % f->phase->team == 0;
}

/* ---- Accesses of a statement ---- */

static bool is_watched(const struct finder *f, uint32_t buffer)
{
    return f->phase->places[buffer] != UL_PLACE_THREAD;
}

static void add(struct finder *f, struct accesses *to, const struct access *access)
{
    for (uint32_t i = 0; i < to->count; i++) {
        if (memcmp(&to->list[i], access, sizeof *access) == 0)
            return;
    }
    UL_GROW(f->arena, to->list, to->count, to->capacity);
    to->list[to->count++] = *access;
}

static void add_access(struct finder *f, struct accesses *to, uint32_t buffer, bool is_write,
                       enum who who, ul_kx index)
{
    struct access access;
    int64_t number;
    if (!is_watched(f, buffer) ||
        (f->phase->is_folded[buffer] && !is_write && ul_kx_is_int(f->kernel, index, &number)))
        return;
    memset(&access, 0, sizeof access); /* compared by its bytes */
    access.buffer = buffer;
    access.is_write = is_write;
    access.who = who;
    if (who == WHO_STRIDED) {
        struct owner owner = owner_of(f, index);
        if (owner.is_known)
            memcpy(&access.owner, &owner, sizeof owner);
    }
    add(f, to, &access);
}

static void add_loads(struct finder *f, struct accesses *to, enum who who, ul_kx id)
{
    if (id == UL_NONE)
        return;
    const struct ul_kx_data *expr = &f->kernel->exprs[id];
    if (ul_kx_operand_count(expr->op) == 0)
        return;
    if (expr->op == UL_KX_LOAD)
        add_access(f, to, expr->var, false, who, expr->a);
    add_loads(f, to, who, expr->a);
    if (ul_kx_operand_count(expr->op) >= 2)
        add_loads(f, to, who, expr->b);
    if (ul_kx_operand_count(expr->op) == 3)
        add_loads(f, to, who, expr->c);
}

static void add_operand(struct finder *f, struct accesses *to, const struct ul_operand *operand)
{
    add_access(f, to, operand->buffer, false, WHO_STRIDED, UL_NONE);
    add_loads(f, to, WHO_STRIDED, operand->at.base);
    add_loads(f, to, WHO_STRIDED, operand->transform);
    for (uint32_t i = 0; i < operand->bound_count; i++)
        add_loads(f, to, WHO_STRIDED, operand->bounds[i].at.base);
}

/* All accesses of a list, by the threads that run it. */
static void add_list(struct finder *f, struct accesses *to, enum who who, ul_ks first)
{
    for (ul_ks id = first; id != UL_NONE; id = f->kernel->stmts[id].next) {
        const struct ul_ks_data *stmt = &f->kernel->stmts[id];
        add_loads(f, to, who, stmt->value);
        add_loads(f, to, who, stmt->index);
        if (stmt->kind == UL_KS_STORE)
            add_access(f, to, stmt->buffer, true, who, stmt->index);
        if (stmt->kind == UL_KS_FOR)
            f->depths[stmt->var] = DEPTH_STRIDED;
        if (stmt->kind == UL_KS_LET)
            f->depths[stmt->var] = DEPTH_STRIDED; /* where its value does not show it */
        if (stmt->kind == UL_KS_CONTRACT) {
            add_operand(f, to, &f->kernel->contractions[stmt->contraction].a);
            add_operand(f, to, &f->kernel->contractions[stmt->contraction].b);
        }
        add_list(f, to, who, ul_ks_inside(f->kernel, stmt));
        add_list(f, to, who, stmt->orelse);
    }
}

/* A nest's loops, and the names of indexes between them. */
static void add_nest(struct finder *f, struct accesses *to, const struct ul_nest *nest)
{
    const struct ul_kernel *kernel = f->kernel;
    const struct ul_ks_data *last = &kernel->stmts[nest->loops[nest->count - 1]];
    for (uint32_t i = 0; i < nest->count; i++) {
        const struct ul_ks_data *loop = &kernel->stmts[nest->loops[i]];
        add_loads(f, to, WHO_ALL, loop->value);
        f->depths[loop->var] = DEPTH_STRIDED;
        for (ul_ks id = loop->body; loop != last && kernel->stmts[id].kind == UL_KS_LET;
             id = kernel->stmts[id].next)
            f->depths[kernel->stmts[id].var] = DEPTH_STRIDED;
    }
    f->nest = nest;
    add_list(f, to, WHO_STRIDED, last->body);
    f->nest = NULL;
}

/* The accesses of a statement as a whole; for a walked loop or a branch only those of its head. */
static void add_statement(struct finder *f, struct accesses *to, ul_ks id)
{
    const struct ul_ks_data *stmt = &f->kernel->stmts[id];
    uint8_t mode = f->phase->modes[id];
    if (mode == UL_TEAM_FOLD || mode == UL_TEAM_NOTHING)
        return;
    if (mode == UL_TEAM_STRIDED && stmt->kind == UL_KS_FOR) {
        add_nest(f, to, f->phase->nests[id]);
        return;
    }
    enum who who = stmt->kind == UL_KS_STORE || mode == UL_TEAM_FIRST ? WHO_FIRST : WHO_ALL;
    add_loads(f, to, who, stmt->value);
    add_loads(f, to, who, stmt->index);
    if (stmt->kind == UL_KS_STORE)
        add_access(f, to, stmt->buffer, true, who, stmt->index);
    if (stmt->kind == UL_KS_CONTRACT) {
        add_operand(f, to, &f->kernel->contractions[stmt->contraction].a);
        add_operand(f, to, &f->kernel->contractions[stmt->contraction].b);
        add_list(f, to, WHO_STRIDED, f->kernel->contractions[stmt->contraction].epilogue);
    } else if (mode == UL_TEAM_FIRST) {
        add_list(f, to, who, stmt->body);
        add_list(f, to, who, stmt->orelse);
    }
}

/* ---- The walk ---- */

static bool conflict(const struct finder *f, const struct accesses *earlier,
                     const struct accesses *now)
{
    for (uint32_t i = 0; i < earlier->count; i++) {
        for (uint32_t j = 0; j < now->count; j++) {
            const struct access *a = &earlier->list[i], *b = &now->list[j];
            if ((a->is_write || b->is_write) && ul_may_alias(f->kernel, a->buffer, b->buffer) &&
                !same_thread(f, a, b))
                return true;
        }
    }
    return false;
}

static void join(struct finder *f, struct accesses *to, const struct accesses *from)
{
    for (uint32_t i = 0; i < from->count; i++)
        add(f, to, &from->list[i]);
}

static struct accesses copy_of(struct finder *f, const struct accesses *from)
{
    struct accesses copy = {.count = 0};
    join(f, &copy, from);
    return copy;
}

static void walk_list(struct finder *f, ul_ks first, ul_ks end);

static void walk_loop(struct finder *f, const struct ul_ks_data *stmt)
{
    struct accesses before = copy_of(f, &f->pending);
    struct accesses breaks = {.count = 0};
    struct accesses *outer = f->breaks;
    f->breaks = &breaks;
    f->depths[stmt->var] = DEPTH_WALKED;
    f->walked++;
    walk_list(f, stmt->body, UL_NONE);
    walk_list(f, stmt->body, UL_NONE);
    f->walked--;
    f->breaks = outer;
    join(f, &f->pending, &before); /* the loop may have no round */
    join(f, &f->pending, &breaks);
}

static void walk_if(struct finder *f, const struct ul_ks_data *stmt)
{
    struct accesses before = copy_of(f, &f->pending);
    walk_list(f, stmt->body, UL_NONE);
    struct accesses after = f->pending;
    f->pending = before;
    walk_list(f, stmt->orelse, UL_NONE);
    join(f, &f->pending, &after);
}

static void walk(struct finder *f, ul_ks id)
{
    const struct ul_ks_data *stmt = &f->kernel->stmts[id];
    struct accesses now = {.count = 0};
    if (stmt->kind == UL_KS_LET)
        f->depths[stmt->var] = f->walked > 0 ? DEPTH_WALKED : DEPTH_ITEM;
    add_statement(f, &now, id);
    join(f, &f->all, &now);
    if (f->phase->modes[id] == UL_TEAM_FOLD && f->phase->team > UL_WARP)
        f->pending.count = 0; /* all threads of the block meet in it */
    if (f->phase->barriers[id] || conflict(f, &f->pending, &now)) {
        f->phase->barriers[id] = true;
        f->pending.count = 0;
    }
    join(f, &f->pending, &now);
    if (stmt->kind == UL_KS_BREAK && f->breaks != NULL)
        join(f, f->breaks, &f->pending);
    if (f->phase->modes[id] != UL_TEAM_ALIKE)
        return;
    if (stmt->kind == UL_KS_FOR)
        walk_loop(f, stmt);
    else if (stmt->kind == UL_KS_IF)
        walk_if(f, stmt);
}

static void walk_list(struct finder *f, ul_ks first, ul_ks end)
{
    for (ul_ks id = first; id != end; id = f->kernel->stmts[id].next)
        walk(f, id);
}

static void finder_init(struct finder *f, struct ul_phase *phase, const struct ul_kernel *kernel,
                        struct ul_arena *arena)
{
    *f = (struct finder){.kernel = kernel, .phase = phase, .arena = arena};
    f->definitions = UL_NEW_ARRAY(arena, ul_ks, kernel->var_count);
    f->depths = UL_NEW_ARRAY(arena, uint8_t, kernel->var_count);
    memset(f->definitions, 0xFF, kernel->var_count * sizeof *f->definitions);
    for (ul_ks id = 0; id < kernel->stmt_count; id++) {
        if (kernel->stmts[id].kind == UL_KS_LET)
            f->definitions[kernel->stmts[id].var] = id;
    }
}

/* Whether one thread touches each element of the array, and no thread touches two. */
static bool is_register(const struct finder *f, uint32_t buffer)
{
    const struct access *first = NULL;
    if (f->kernel->buffers[buffer].role != UL_BUFFER_LOCAL)
        return false;
    for (uint32_t i = 0; i < f->all.count; i++) {
        const struct access *access = &f->all.list[i];
        if (access->buffer != buffer)
            continue;
        first = first == NULL ? access : first;
        if (!access->owner.is_known || !access->owner.is_one_round || access->owner.divisor != 0 ||
            access->owner.constant != 0 || access->owner.term_count != 0 ||
            !same_thread(f, first, access))
            return false;
    }
    return first != NULL;
}

void ul_grid_find_barriers(struct ul_phase *phase, const struct ul_kernel *kernel,
                           struct ul_arena *arena)
{
    struct finder finder;
    finder_init(&finder, phase, kernel, arena);
    walk_list(&finder, phase->first, phase->end);
    for (uint32_t i = 0; i < kernel->buffer_count; i++) {
        if (phase->places[i] == UL_PLACE_SHARED && is_register(&finder, i))
            phase->places[i] = UL_PLACE_REGISTER;
    }
}
