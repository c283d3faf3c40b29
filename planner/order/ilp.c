/* SPDX-License-Identifier: Apache-2.0 */
/* GLPK in a child process.
 *
 * GLPK checks its time limit only between nodes of its tree: not while it solves the root's
 * relaxation, and not in cuts. It prints, and it aborts on errors. So it runs in a child, which
 * sends every better solution and its bound through a pipe; the parent can end the child at any
 * moment, and keeps what has arrived. The child counts simplex iterations and gives up by itself,
 * so that without a time limit the same model gives the same answer everywhere. */
#define _XOPEN_SOURCE 700
#include "planner/order/ilp.h"

#include "planner/model/effort.h"

#include <errno.h>
#include <fcntl.h>
#include <float.h>
#include <glpk.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

struct ul_ilp *ul_ilp_new(struct ul_arena *arena)
{
    struct ul_ilp *ilp = UL_NEW(arena, struct ul_ilp);
    ilp->arena = arena;
    return ilp;
}

uint32_t ul_ilp_add_column(struct ul_ilp *ilp, double cost, double lower, double upper,
                           bool integer)
{
    UL_ASSERT(!(lower > upper));
    UL_GROW(ilp->arena, ilp->columns, ilp->column_count, ilp->column_capacity);
    ilp->columns[ilp->column_count] = (struct ul_ilp_column){cost, lower, upper, 0, integer};
    return ilp->column_count++;
}

uint32_t ul_ilp_add_row(struct ul_ilp *ilp, double lower, double upper)
{
    UL_ASSERT(!(lower > upper));
    UL_GROW(ilp->arena, ilp->rows, ilp->row_count, ilp->row_capacity);
    ilp->rows[ilp->row_count] = (struct ul_ilp_row){lower, upper, ilp->term_count};
    return ilp->row_count++;
}

void ul_ilp_add_term(struct ul_ilp *ilp, uint32_t column, double factor)
{
    UL_ASSERT(ilp->row_count > 0 && column < ilp->column_count);
    uint32_t newest = ilp->columns[column].newest_term;
    if (newest >= ilp->rows[ilp->row_count - 1].first && newest < ilp->term_count &&
        ilp->term_columns[newest] == column) {
        ilp->term_factors[newest] += factor;
        return;
    }
    ilp->columns[column].newest_term = ilp->term_count;
    UL_GROW(ilp->arena, ilp->term_columns, ilp->term_count, ilp->term_capacity);
    UL_GROW(ilp->arena, ilp->term_factors, ilp->term_count, ilp->factor_capacity);
    ilp->term_columns[ilp->term_count] = column;
    ilp->term_factors[ilp->term_count++] = factor;
}

/* ---- The child ---- */

enum record_kind {
    RECORD_SOLUTION = 1, /* followed by a value for each column */
    RECORD_REDUCED,      /* followed by a reduced cost for each column */
    RECORD_BOUND,
    RECORD_OPTIMAL, /* the solution sent last is optimal */
    RECORD_INFEASIBLE
};

struct record {
    uint64_t kind;
    double number; /* the cost of a solution, or the bound */
    uint64_t work;
};

struct child {
    const struct ul_ilp *ilp;
    const struct ul_ilp_limits *limits;
    glp_prob *problem;
    double *values; /* by column */
    double bound;
    uint64_t branchings;
    int pipe;
    bool relax;
    bool stopped; /* by a limit */
};

/* An iteration goes over the terms. */
static uint64_t iteration_work(const struct ul_ilp *ilp)
{
    return 1 + ilp->term_count / UL_ILP_TERMS;
}

/* GLPK does not count the iterations by which it tries where to branch. */
static uint64_t child_work(const struct child *c)
{
    int count = glp_get_it_cnt(c->problem);
    uint64_t iterations = (count > 0 ? (uint64_t)count : 0) + c->branchings * UL_ILP_BRANCH_WORK;
    return iterations * iteration_work(c->ilp);
}

static void send_bytes(const struct child *c, const void *data, size_t size_bytes)
{
    const char *at = data;
    while (size_bytes > 0) {
        ssize_t sent = write(c->pipe, at, size_bytes);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent <= 0)
            _exit(1);
        at += sent;
        size_bytes -= (size_t)sent;
    }
}

static void send_record(const struct child *c, enum record_kind kind, double number)
{
    struct record record = {.kind = kind, .number = number, .work = child_work(c)};
    send_bytes(c, &record, sizeof record);
}

static void send_values(const struct child *c, enum record_kind kind, double number)
{
    send_record(c, kind, number);
    send_bytes(c, c->values, c->ilp->column_count * sizeof *c->values);
}

static void send_solution(struct child *c)
{
    for (uint32_t i = 0; i < c->ilp->column_count; i++)
        c->values[i] = glp_mip_col_val(c->problem, (int)i + 1);
    send_values(c, RECORD_SOLUTION, glp_mip_obj_val(c->problem));
}

static void send_relaxation(struct child *c)
{
    for (uint32_t i = 0; i < c->ilp->column_count; i++)
        c->values[i] = glp_get_col_prim(c->problem, (int)i + 1);
    send_values(c, RECORD_SOLUTION, c->bound);
    for (uint32_t i = 0; i < c->ilp->column_count; i++)
        c->values[i] = glp_get_col_dual(c->problem, (int)i + 1);
    send_values(c, RECORD_REDUCED, c->bound);
    send_record(c, RECORD_OPTIMAL, c->bound);
}

static bool work_exhausted(const struct child *c)
{
    return c->limits->work != 0 && child_work(c) >= c->limits->work;
}

static void tree_callback(glp_tree *tree, void *info)
{
    struct child *c = info;
    int best = glp_ios_best_node(tree);
    double bound = best != 0 ? glp_ios_node_bound(tree, best) : -DBL_MAX;
    if (bound > c->bound) {
        c->bound = bound;
        send_record(c, RECORD_BOUND, bound);
    }
    if (glp_ios_reason(tree) == GLP_IBINGO)
        send_solution(c);
    c->branchings += glp_ios_reason(tree) == GLP_IBRANCH;
    if (work_exhausted(c)) {
        c->stopped = true;
        glp_ios_terminate(tree);
    }
}

static int bound_kind(double lower, double upper)
{
    if (isinf(lower))
        return isinf(upper) ? GLP_FR : GLP_UP;
    if (isinf(upper))
        return GLP_LO;
    return lower < upper ? GLP_DB : GLP_FX;
}

static void problem_make(struct child *c)
{
    UL_ASSERT(c->ilp->column_count < INT32_MAX);
    const struct ul_ilp *ilp = c->ilp;
    c->problem = glp_create_prob();
    glp_set_obj_dir(c->problem, GLP_MIN);
    /* One more, which is unused: GLPK refuses a model without columns. */
    glp_add_cols(c->problem, (int)ilp->column_count + 1);
    for (uint32_t i = 0; i < ilp->column_count; i++) {
        const struct ul_ilp_column *column = &ilp->columns[i];
        int at = (int)i + 1;
        /* The kind comes first: making a column binary would set its bounds. */
        glp_set_col_kind(c->problem, at, column->integer ? GLP_IV : GLP_CV);
        glp_set_col_bnds(c->problem, at, bound_kind(column->lower, column->upper), column->lower,
                         column->upper);
        glp_set_obj_coef(c->problem, at, column->cost);
    }
    glp_add_rows(c->problem, (int)ilp->row_count + 1);
    int *columns = UL_NEW_ARRAY(ilp->arena, int, (uint64_t)ilp->column_count + 1);
    double *factors = UL_NEW_ARRAY(ilp->arena, double, (uint64_t)ilp->column_count + 1);
    for (uint32_t i = 0; i < ilp->row_count; i++) {
        const struct ul_ilp_row *row = &ilp->rows[i];
        uint32_t end = i + 1 < ilp->row_count ? row[1].first : ilp->term_count;
        glp_set_row_bnds(c->problem, (int)i + 1, bound_kind(row->lower, row->upper), row->lower,
                         row->upper);
        for (uint32_t t = row->first; t < end; t++) {
            columns[t - row->first + 1] = (int)ilp->term_columns[t] + 1;
            factors[t - row->first + 1] = ilp->term_factors[t];
        }
        glp_set_mat_row(c->problem, (int)i + 1, (int)(end - row->first), columns, factors);
    }
}

static void relaxation_solve(struct child *c)
{
    glp_smcp control;
    glp_init_smcp(&control);
    control.msg_lev = GLP_MSG_OFF;
    control.meth = GLP_DUALP;
    if (c->limits->work != 0 && c->limits->work < INT32_MAX)
        control.it_lim = (int)(c->limits->work / iteration_work(c->ilp) + 1);
    glp_scale_prob(c->problem, GLP_SF_AUTO);
    glp_adv_basis(c->problem, 0);
    if (glp_simplex(c->problem, &control) != 0) {
        send_record(c, RECORD_BOUND, -INFINITY); /* the work counts, even without a result */
        _exit(1);
    }
    if (glp_get_status(c->problem) == GLP_NOFEAS) {
        send_record(c, RECORD_INFEASIBLE, INFINITY);
        _exit(0);
    }
    if (glp_get_status(c->problem) != GLP_OPT)
        _exit(1);
    c->bound = glp_get_obj_val(c->problem);
    send_record(c, RECORD_BOUND, c->bound);
}

static void tree_search(struct child *c)
{
    enum { CUT_TERMS = 4 * UL_ILP_TERMS };
    glp_iocp control;
    glp_init_iocp(&control);
    control.msg_lev = GLP_MSG_OFF;
    control.br_tech = GLP_BR_PCH;
    control.bt_tech = GLP_BT_BLB;
    /* Cuts of a large model take long, and nothing counts them. */
    control.mir_cuts = control.cov_cuts = c->ilp->term_count < CUT_TERMS ? GLP_ON : GLP_OFF;
    control.cb_func = tree_callback;
    control.cb_info = c;
    int failed = glp_intopt(c->problem, &control);
    int status = glp_mip_status(c->problem);
    /* Not every solution comes by the callback. */
    if (status == GLP_OPT || status == GLP_FEAS)
        send_solution(c);
    if (c->stopped || failed != 0)
        send_record(c, RECORD_BOUND, c->bound);
    else if (status == GLP_OPT)
        send_record(c, RECORD_OPTIMAL, glp_mip_obj_val(c->problem));
    else if (status == GLP_NOFEAS)
        send_record(c, RECORD_INFEASIBLE, INFINITY);
}

/* The child must not touch anything of the parent's: no output, no core, no handler of its
 * signals. */
static void child_isolate(const struct ul_ilp_limits *limits)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGABRT, SIGPIPE, SIGXCPU};
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        signal(signals[i], SIG_DFL);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
#ifdef __linux__
    prctl(PR_SET_PDEATHSIG, SIGKILL);
#endif
    int nowhere = open("/dev/null", O_RDWR);
    for (int stream = STDIN_FILENO; stream <= STDERR_FILENO; stream++) {
        if (nowhere < 0 || dup2(nowhere, stream) < 0)
            _exit(1);
    }
    struct rlimit limit = {0, 0};
    setrlimit(RLIMIT_CORE, &limit);
    if (limits->cpu_seconds > 0) {
        limit.rlim_cur = limit.rlim_max = (rlim_t)ceil(limits->cpu_seconds);
        setrlimit(RLIMIT_CPU, &limit);
    }
}

UL_NORETURN static void child_run(struct child *c)
{
    child_isolate(c->limits);
    glp_term_out(GLP_OFF);
    if (c->limits->memory_bytes >> 20 > 0 && c->limits->memory_bytes >> 20 < INT32_MAX)
        glp_mem_limit((int)(c->limits->memory_bytes >> 20));
    c->values = UL_NEW_ARRAY(c->ilp->arena, double, c->ilp->column_count);
    problem_make(c);
    relaxation_solve(c);
    if (c->relax)
        send_relaxation(c);
    else
        tree_search(c);
    _exit(0);
}

/* ---- The parent ---- */

struct parent {
    const struct ul_ilp *ilp;
    struct ul_ilp_result *result;
    enum ul_ilp_outcome outcome;
    double deadline; /* 0: none */
    int pipe;
};

/* False when the child has ended, or the time is over. */
static bool receive_bytes(struct parent *p, void *data, size_t size_bytes)
{
    UL_ASSERT(p->pipe >= 0);
    char *at = data;
    while (size_bytes > 0) {
        struct pollfd waiting = {.fd = p->pipe, .events = POLLIN};
        double left = p->deadline > 0 ? ul_deadline_left(p->deadline) : 1.0;
        if (left <= 0) {
            p->result->stopped_by_time = true;
            return false;
        }
        int ready = poll(&waiting, 1, p->deadline > 0 && left < 1e6 ? (int)(left * 1e3) + 1 : -1);
        if (ready == 0 || (ready < 0 && errno == EINTR))
            continue;
        ssize_t got = ready < 0 ? -1 : read(p->pipe, at, size_bytes);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        at += got;
        size_bytes -= (size_t)got;
    }
    return true;
}

/* False at the end. */
static bool record_receive(struct parent *p, double *values)
{
    struct ul_ilp_result *result = p->result;
    struct record record;
    if (!receive_bytes(p, &record, sizeof record))
        return false;
    result->work = record.work;
    uint32_t count = p->ilp->column_count;
    if (record.kind == RECORD_SOLUTION || record.kind == RECORD_REDUCED) {
        if (!receive_bytes(p, values, count * sizeof *values))
            return false;
        double **into = record.kind == RECORD_SOLUTION ? &result->values : &result->reduced_costs;
        if (*into == NULL)
            *into = UL_NEW_ARRAY(p->ilp->arena, double, count);
        memcpy(*into, values, count * sizeof *values);
        result->cost = record.number;
        return true;
    }
    result->bound = record.number;
    if (record.kind == RECORD_OPTIMAL && result->values != NULL)
        p->outcome = UL_ILP_OPTIMAL;
    if (record.kind == RECORD_INFEASIBLE)
        p->outcome = UL_ILP_INFEASIBLE;
    return true;
}

/* Whether the child was ended by its limit of processor time. */
static bool child_reap(pid_t process)
{
    int status = 0;
    while (waitpid(process, &status, 0) < 0) {
        if (errno != EINTR)
            return false;
    }
    return WIFSIGNALED(status) && (WTERMSIG(status) == SIGXCPU || WTERMSIG(status) == SIGKILL);
}

static void parent_run(struct parent *p, pid_t process, const struct ul_ilp_limits *limits)
{
    double *values = UL_NEW_ARRAY(p->ilp->arena, double, p->ilp->column_count);
    p->deadline = ul_deadline_after(limits->wall_seconds);
    while (record_receive(p, values))
        continue;
    kill(process, SIGKILL);
    bool killed = child_reap(process);
    if (p->outcome == UL_ILP_UNKNOWN && killed && limits->cpu_seconds > 0)
        p->result->stopped_by_time = true;
}

static enum ul_ilp_outcome process_run(struct ul_ilp *ilp, const struct ul_ilp_limits *limits,
                                       bool relax, struct ul_ilp_result *result)
{
    *result = (struct ul_ilp_result){.cost = INFINITY, .bound = -INFINITY};
    int ends[2];
    if (ilp->column_count >= INT32_MAX || ilp->row_count >= INT32_MAX || pipe(ends) != 0)
        return UL_ILP_UNKNOWN;
    pid_t process = fork();
    if (process == 0) {
        close(ends[0]);
        struct child child = {
            .ilp = ilp, .limits = limits, .bound = -DBL_MAX, .pipe = ends[1], .relax = relax};
        child_run(&child);
    }
    close(ends[1]);
    struct parent parent = {.ilp = ilp, .result = result, .pipe = ends[0]};
    if (process > 0)
        parent_run(&parent, process, limits);
    close(ends[0]);
    return parent.outcome;
}

enum ul_ilp_outcome ul_ilp_relax(struct ul_ilp *ilp, const struct ul_ilp_limits *limits,
                                 struct ul_ilp_result *result)
{
    return process_run(ilp, limits, true, result);
}

enum ul_ilp_outcome ul_ilp_solve(struct ul_ilp *ilp, const struct ul_ilp_limits *limits,
                                 struct ul_ilp_result *result)
{
    return process_run(ilp, limits, false, result);
}
