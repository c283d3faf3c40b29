/* SPDX-License-Identifier: 0BSD */
/*
 * --bench: how long a run takes, and with --profile where the time goes.
 *
 * A run is what a caller of the library form would see: inputs are copied to their places, the
 * model runs. All memory is got before the first run. The samples that fill their table end the
 * measurement early. Steps are timed in runs of their own, after the others, so that reading the
 * clock between steps does not disturb the latencies; a step's time is the median over those runs,
 * so that other work of the machine in between does not count.
 *
 * A transfer goes on beside the steps after the one that begins it, so it has a time of its own,
 * taken by the thread that makes it; waiting for it counts as time of the step that waits.
 *
 * On a device, its own clock times the run from its first kernel to its last one, and apart from it
 * the copies of inputs to their places and of outputs from theirs; `whole` is all of that by the
 * host's clock, with what launching it and waiting for it takes.
 */
#include "ul_internal.h"
#include "ul_library.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SAMPLE_LIMIT 50000
#define PROFILE_RUNS_MIN 3
#define PROFILE_SHOWN 20                         /* steps in text */
#define PROFILE_SAMPLE_LIMIT (UINT64_C(1) << 20) /* of all steps together */
#define PROFILE_SECONDS 1.0
#define STEP_NONE UINT32_MAX
#define KERNEL_NAME_BYTES 96

/* What a run on a device takes beside the run itself. */
enum part { PART_IN, PART_OUT, PART_WHOLE, PART_COUNT };
static const char *const part_names[PART_COUNT] = {"host to device", "device to host", "whole"};
static const char *const part_keys[PART_COUNT] = {"in_seconds", "out_seconds", "whole_seconds"};

struct bench {
    const struct ul_session *s;
    double *samples;           /* seconds, sorted at the end */
    double *parts[PART_COUNT]; /* likewise; NULL without a device */
    uint64_t sample_count;
    double wall_seconds, cpu_seconds; /* of all runs; CPU time is that of all threads */
    double mean, stddev;
    double *step_seconds; /* of the run that is timed; at the end the medians */
    double *step_min;     /* over all runs */
    double *step_samples; /* profile_limit of step 0, then of step 1 ... */
    double *step_begin;   /* of the last run that is timed, by ul_now */
    /* What the transfers that steps begin take, and when in that run; NULL without any. */
    double *moved_samples, *moved_seconds;
    struct ul_span *moved;
    uint32_t *order; /* steps by time, longest first */
    uint64_t profile_count;
    uint64_t profile_limit;
    /* the step being timed */
    uint32_t step;
    double since;
};

double ul_now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/* Does one run; what goes on from run to run does so here. */
static int one_run(struct ul_session *s, const struct ul_saved *inputs, ul_step_hook *hook,
                   void *context)
{
    if (s->model->device == NULL) /* else they are copied from where they are */
        ul_inputs_restore(s, inputs, false);
    return ul_session_run(s, hook, context);
}

static int warm_up(struct ul_session *s, const struct ul_saved *inputs)
{
    double end = ul_now() + s->options->warmup_seconds;
    int status = UL_EXIT_OK;
    do {
        status = one_run(s, inputs, NULL, NULL);
    } while (status == UL_EXIT_OK && ul_now() < end);
    return status;
}

static void add_sample(struct bench *bench, double seconds)
{
    const struct ul_device *device = bench->s->model->device;
    uint64_t at = bench->sample_count++;
    bench->samples[at] = seconds;
    if (device != NULL) {
        struct ul_device_times times;
        device->functions->times(bench->s->context, &times);
        bench->samples[at] = times.run_seconds;
        bench->parts[PART_IN][at] = times.in_seconds;
        bench->parts[PART_OUT][at] = times.out_seconds;
        bench->parts[PART_WHOLE][at] = seconds;
    }
}

static int measure(struct ul_session *s, struct bench *bench, const struct ul_saved *inputs)
{
    double begin = ul_now(), before = begin, after = begin;
    clock_t cpu_begin = clock();
    int status = UL_EXIT_OK;
    while (status == UL_EXIT_OK && bench->sample_count < SAMPLE_LIMIT &&
           (bench->sample_count < s->options->iterations ||
            after - begin < s->options->duration_seconds)) {
        before = ul_now();
        status = one_run(s, inputs, NULL, NULL);
        after = ul_now();
        add_sample(bench, after - before);
    }
    bench->wall_seconds = after - begin;
    bench->cpu_seconds = (double)(clock() - cpu_begin) / (double)CLOCKS_PER_SEC;
    return status;
}

static void time_step(void *context, uint32_t step)
{
    struct bench *bench = context;
    double time = ul_now();
    if (bench->step != STEP_NONE)
        bench->step_seconds[bench->step] += time - bench->since;
    bench->step = step < bench->s->model->step_count ? step : STEP_NONE;
    bench->since = ul_now();
    if (bench->step != STEP_NONE)
        bench->step_begin[bench->step] = bench->since;
}

static bool begins_transfer(const struct ul_step *step)
{
    return strcmp(step->kernel, "offload") == 0 && strcmp(step->op, "wait") != 0;
}

/* Notes what the thread saw of the transfers of a run; these are numbered in the order of their
 * steps. */
static void note_transfers(struct bench *bench)
{
    const struct ul_model *model = bench->s->model;
    uint64_t number = 0;
    for (uint32_t i = 0; bench->moved != NULL && i < model->step_count; i++) {
        if (!begins_transfer(&model->steps[i]))
            continue;
        (void)ul_store_span(bench->s, number++, &bench->moved[i]);
        bench->moved_samples[i * bench->profile_limit + bench->profile_count] =
            bench->moved[i].end - bench->moved[i].begin;
    }
}

static int measure_steps(struct ul_session *s, struct bench *bench, const struct ul_saved *inputs)
{
    double end = ul_now() + fmin(PROFILE_SECONDS, s->options->duration_seconds);
    int status = UL_EXIT_OK;
    uint32_t step_count = s->model->step_count;
    bench->step = STEP_NONE;
    while (status == UL_EXIT_OK && bench->profile_count < bench->profile_limit &&
           (bench->profile_count < PROFILE_RUNS_MIN || ul_now() < end)) {
        for (uint32_t i = 0; i < step_count; i++)
            bench->step_seconds[i] = 0.0;
        if (s->model->device != NULL)
            status = ul_session_device_profile(s, bench->step_seconds);
        else
            status = one_run(s, inputs, time_step, bench);
        for (uint32_t i = 0; i < step_count; i++)
            bench->step_samples[i * bench->profile_limit + bench->profile_count] =
                bench->step_seconds[i];
        note_transfers(bench);
        bench->profile_count++;
    }
    return status;
}

static int compare_samples(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Heap sort of the steps by time, then number: qsort takes no context. */
static bool step_before(const struct bench *bench, uint32_t a, uint32_t b)
{
    double x = bench->step_seconds[a], y = bench->step_seconds[b];
    return x > y || (x == y && a < b);
}

static void sift(struct bench *bench, uint32_t root, uint32_t count)
{
    uint32_t *order = bench->order;
    for (uint32_t child = 2 * root + 1; child < count; child = 2 * root + 1) {
        if (child + 1 < count && step_before(bench, order[child], order[child + 1]))
            child++;
        if (!step_before(bench, order[root], order[child]))
            return;
        uint32_t moved = order[root];
        order[root] = order[child];
        order[child] = moved;
        root = child;
    }
}

static void sort_steps(struct bench *bench, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        bench->order[i] = i;
    for (uint32_t i = count / 2; i-- > 0;)
        sift(bench, i, count);
    for (uint32_t i = count; i-- > 1;) {
        uint32_t last = bench->order[0];
        bench->order[0] = bench->order[i];
        bench->order[i] = last;
        sift(bench, 0, i);
    }
}

/* The samples are sorted. */
static double median(const double *samples, uint64_t count)
{
    uint64_t half = count / 2;
    return count % 2 != 0 ? samples[half] : (samples[half - 1] + samples[half]) / 2.0;
}

static void summarise(struct bench *bench)
{
    double sum = 0.0, squares = 0.0;
    qsort(bench->samples, (size_t)bench->sample_count, sizeof *bench->samples, compare_samples);
    for (int part = 0; part < PART_COUNT; part++)
        if (bench->parts[part] != NULL)
            qsort(bench->parts[part], (size_t)bench->sample_count, sizeof(double), compare_samples);
    for (uint64_t i = 0; i < bench->sample_count; i++)
        sum += bench->samples[i];
    bench->mean = sum / (double)bench->sample_count;
    for (uint64_t i = 0; i < bench->sample_count; i++)
        squares += (bench->samples[i] - bench->mean) * (bench->samples[i] - bench->mean);
    bench->stddev = sqrt(squares / (double)bench->sample_count);
    for (uint32_t i = 0; bench->profile_count != 0 && i < bench->s->model->step_count; i++) {
        double *samples = bench->step_samples + i * bench->profile_limit;
        qsort(samples, (size_t)bench->profile_count, sizeof *samples, compare_samples);
        bench->step_seconds[i] = median(samples, bench->profile_count);
        bench->step_min[i] = samples[0];
        if (bench->moved == NULL)
            continue;
        samples = bench->moved_samples + i * bench->profile_limit;
        qsort(samples, (size_t)bench->profile_count, sizeof *samples, compare_samples);
        bench->moved_seconds[i] = median(samples, bench->profile_count);
    }
}

/* The smallest sample that is not below `share` of all (nearest rank). */
static double percentile(const struct bench *bench, double share)
{
    double rank = ceil(share * (double)bench->sample_count);
    uint64_t at = rank < 1.0 ? 0 : (uint64_t)rank - 1;
    return bench->samples[at < bench->sample_count ? at : bench->sample_count - 1];
}

static double total_flops(const struct ul_model *model)
{
    double total = 0.0;
    for (uint32_t i = 0; model->steps != NULL && i < model->step_count; i++)
        total += (double)model->steps[i].flop_count;
    return total;
}

/* Whether the compiler's cost model predicted times. */
static bool is_predicted(const struct ul_model *model)
{
    for (uint32_t i = 0; i < model->step_count; i++)
        if (model->steps[i].predicted_seconds > 0.0)
            return true;
    return false;
}

/* On a device: what is beside the run. */
static void print_parts(const struct bench *bench, FILE *out)
{
    struct ul_device_memory memory;
    uint64_t count = bench->sample_count;
    bench->s->model->device->functions->memory(bench->s->context, &memory);
    for (int part = 0; part < PART_COUNT; part++)
        fprintf(out, "%s ms: min %.4f, median %.4f, max %.4f\n", part_names[part],
                bench->parts[part][0] * 1e3, median(bench->parts[part], count) * 1e3,
                bench->parts[part][count - 1] * 1e3);
    if (memory.uncaptured != NULL)
        fprintf(out, "launched    step by step: %s\n", memory.uncaptured);
    else
        fprintf(out, "replayed    %" PRIu64 " of %" PRIu64 " runs, %" PRIu64 " launches each\n",
                memory.replay_count, memory.run_count, memory.launch_count);
}

static void print_summary(const struct bench *bench, FILE *out)
{
    const struct ul_model *model = bench->s->model;
    char size[UL_SIZE_TEXT_BYTES];
    double flops = total_flops(model), middle = median(bench->samples, bench->sample_count);
    uint64_t count = bench->sample_count;
    fprintf(out, "runs        %" PRIu64 " in %.3f s, %.3f s of CPU time\n", count,
            bench->wall_seconds, bench->cpu_seconds);
    fprintf(out, "throughput  %.2f runs/s\n", (double)count / bench->wall_seconds);
    fprintf(out, "latency ms  min %.4f, mean %.4f, median %.4f, max %.4f, stddev %.4f\n",
            bench->samples[0] * 1e3, bench->mean * 1e3, middle * 1e3,
            bench->samples[count - 1] * 1e3, bench->stddev * 1e3);
    fprintf(out, "            p90 %.4f, p95 %.4f, p99 %.4f\n", percentile(bench, 0.90) * 1e3,
            percentile(bench, 0.95) * 1e3, percentile(bench, 0.99) * 1e3);
    if (model->device != NULL)
        print_parts(bench, out);
    if (flops > 0.0)
        fprintf(out, "rate        %.2f GFLOP/s at the median\n", flops / middle * 1e-9);
    if (ul_session_has_state(bench->s))
        fprintf(out, "state       changed by each of these runs, and by those before them\n");
    fprintf(out, "reserved    %s\n", ul_size_text(size, model->arena_bytes));
    fprintf(out, "process     %s, peak resident\n",
            ul_size_text(size, ul_pages_resident().peak_bytes));
}

/* "     12.34": predicted microseconds, "-" where there are none, nothing where no step has any. */
static const char *predicted_text(char text[32], bool with_predicted, double seconds)
{
    text[0] = '\0';
    if (with_predicted && seconds > 0.0)
        snprintf(text, 32, " %10.2f", seconds * 1e6);
    else if (with_predicted)
        snprintf(text, 32, " %10s", "-");
    return text;
}

static double own_prediction(const struct bench *bench, const struct ul_step *step)
{
    bool is_beside = bench->moved != NULL && begins_transfer(step);
    return is_beside ? 0.0 : step->predicted_seconds;
}

static void print_step(const struct bench *bench, uint32_t i, double total, FILE *out)
{
    const struct ul_step *step = &bench->s->model->steps[bench->order[i]];
    double seconds = bench->step_seconds[bench->order[i]];
    double rate = seconds > 0.0 ? 1e-9 / seconds : 0.0;
    char name[UL_SHOWN_BYTES], op[UL_SHOWN_BYTES], node[UL_SHOWN_BYTES], predicted[32];
    fprintf(out, "%6.2f%% %9.2f%s %9.2f %9.2f  %s  %s  %s\n",
            total > 0.0 ? seconds / total * 100.0 : 0.0, seconds * 1e6,
            predicted_text(predicted, is_predicted(bench->s->model), own_prediction(bench, step)),
            (double)step->flop_count * rate, (double)step->moved_bytes * rate,
            ul_shown(name, step->name), ul_shown(op, step->op), ul_shown(node, step->node));
}

/* The slowest steps, then all others in one line. */
static void print_profile(const struct bench *bench, FILE *out)
{
    const struct ul_model *model = bench->s->model;
    bool with_predicted = is_predicted(model);
    uint32_t shown = model->step_count > PROFILE_SHOWN + 1 ? PROFILE_SHOWN : model->step_count;
    double total = 0.0, rest = 0.0, rest_predicted = 0.0;
    char predicted[32];
    for (uint32_t i = 0; i < model->step_count; i++)
        total += bench->step_seconds[i];
    fprintf(out, "\nsteps, by time (median of %" PRIu64 " runs)\n", bench->profile_count);
    fprintf(out, "  share        us%s   GFLOP/s      GB/s  step  op  node\n",
            with_predicted ? "  predicted" : "");
    for (uint32_t i = 0; i < shown; i++)
        print_step(bench, i, total, out);
    for (uint32_t i = shown; i < model->step_count; i++) {
        rest += bench->step_seconds[bench->order[i]];
        rest_predicted += own_prediction(bench, &model->steps[bench->order[i]]);
    }
    if (shown < model->step_count)
        fprintf(out, "%6.2f%% %9.2f%s %9s %9s  %" PRIu32 " others (--json FILE has all)\n",
                total > 0.0 ? rest / total * 100.0 : 0.0, rest * 1e6,
                predicted_text(predicted, with_predicted, rest_predicted), "", "",
                model->step_count - shown);
}

/* Prints what goes on beside the steps, and how long steps wait for it. */
static void print_transfers(const struct bench *bench, FILE *out)
{
    const struct ul_model *model = bench->s->model;
    double moved = 0.0, waited = 0.0, predicted_moved = 0.0, predicted_waited = 0.0;
    uint32_t count = 0;
    fprintf(out, "\ntransfers, as they begin\n         us  predicted      GB/s  step\n");
    for (uint32_t i = 0; i < model->step_count; i++) {
        const struct ul_step *step = &model->steps[i];
        char name[UL_SHOWN_BYTES];
        if (strcmp(step->kernel, "offload") != 0)
            continue;
        if (!begins_transfer(step)) {
            waited += bench->step_seconds[i];
            predicted_waited += step->predicted_seconds;
            continue;
        }
        double seconds = bench->moved_seconds[i];
        fprintf(out, "%11.2f %10.2f %9.2f  %s\n", seconds * 1e6, step->predicted_seconds * 1e6,
                seconds > 0.0 ? (double)step->moved_bytes * 1e-9 / seconds : 0.0,
                ul_shown(name, step->name));
        moved += seconds;
        predicted_moved += step->predicted_seconds;
        count++;
    }
    fprintf(out,
            "all %" PRIu32 "       %.2f us, predicted %.2f; waited for %.2f us, predicted %.2f\n",
            count, moved * 1e6, predicted_moved * 1e6, waited * 1e6, predicted_waited * 1e6);
}

/* The step's kernel; for a call that the library runs by another implementation than the planned
 * one, that implementation. */
static const char *kernel_of(const struct ul_session *s, const struct ul_step *step,
                             char text[KERNEL_NAME_BYTES])
{
    const struct ul_library *library =
        step->call != 0 ? ul_model_library(s->model, step->call - 1) : NULL;
    const struct ul_device *device = s->model->device;
    const char *name = NULL;
    if (device != NULL && step->call != 0)
        name = device->functions->implementation(s->context, (uint32_t)(step - s->model->steps),
                                                 step->call - 1);
    if (device != NULL)
        return name != NULL ? name : step->kernel;
    if (library != NULL)
        name = library->implementation(library, s->arena, step->call - 1);
    if (name == NULL || strcmp(name, library->calls[step->call - 1].implementation) == 0)
        return step->kernel;
    snprintf(text, KERNEL_NAME_BYTES, "%s %s", library->plan_name, name);
    return text;
}

static void write_parts(struct ul_json *json, const struct bench *bench)
{
    struct ul_device_memory memory;
    for (int part = 0; part < PART_COUNT; part++) {
        const double *samples = bench->parts[part];
        ul_json_open(json, part_keys[part], '{');
        ul_json_number(json, "min", samples[0]);
        ul_json_number(json, "median", median(samples, bench->sample_count));
        ul_json_number(json, "max", samples[bench->sample_count - 1]);
        ul_json_close(json, '}');
    }
    bench->s->model->device->functions->memory(bench->s->context, &memory);
    ul_device_memory_write(json, &memory);
}

/* Where values are offloaded: when a step began in the last run, and its transfer, counted from the
 * first step. */
static void write_times(struct ul_json *json, const struct bench *bench, uint32_t step)
{
    if (bench->moved == NULL)
        return;
    double first = bench->step_begin[0];
    for (uint32_t i = 0; i < bench->s->model->step_count; i++)
        first = fmin(first, bench->step_begin[i]);
    ul_json_number(json, "begin_seconds", bench->step_begin[step] - first);
    if (!begins_transfer(&bench->s->model->steps[step]))
        return;
    ul_json_number(json, "transfer_seconds", bench->moved_seconds[step]);
    ul_json_number(json, "transfer_begin_seconds", bench->moved[step].begin - first);
    ul_json_number(json, "transfer_end_seconds", bench->moved[step].end - first);
}

static void write_json(struct ul_json *json, const void *context)
{
    const struct bench *bench = context;
    const struct ul_model *model = bench->s->model;
    ul_json_text(json, "model", model->name);
    ul_json_count(json, "runs", bench->sample_count);
    ul_json_number(json, "wall_seconds", bench->wall_seconds);
    ul_json_number(json, "cpu_seconds", bench->cpu_seconds);
    ul_json_number(json, "runs_per_second", (double)bench->sample_count / bench->wall_seconds);
    ul_json_open(json, "latency_seconds", '{');
    ul_json_number(json, "min", bench->samples[0]);
    ul_json_number(json, "mean", bench->mean);
    ul_json_number(json, "median", median(bench->samples, bench->sample_count));
    ul_json_number(json, "max", bench->samples[bench->sample_count - 1]);
    ul_json_number(json, "stddev", bench->stddev);
    ul_json_number(json, "p90", percentile(bench, 0.90));
    ul_json_number(json, "p95", percentile(bench, 0.95));
    ul_json_number(json, "p99", percentile(bench, 0.99));
    ul_json_close(json, '}');
    if (model->device != NULL)
        write_parts(json, bench);
    ul_json_bool(json, "changes_state", ul_session_has_state(bench->s));
    ul_json_number(json, "flops", total_flops(model));
    ul_json_count(json, "reserved_bytes", model->arena_bytes);
    ul_json_count(json, "peak_resident_bytes", ul_pages_resident().peak_bytes);
    if (bench->profile_count == 0)
        return;
    ul_json_count(json, "profiled_runs", bench->profile_count);
    bool with_predicted = is_predicted(model);
    ul_json_open(json, "steps", '[');
    for (uint32_t i = 0; i < model->step_count; i++) {
        const struct ul_step *step = &model->steps[bench->order[i]];
        ul_json_open(json, NULL, '{');
        ul_json_text(json, "name", step->name);
        char kernel[KERNEL_NAME_BYTES];
        ul_json_text(json, "kernel", kernel_of(bench->s, step, kernel));
        ul_json_text(json, "op", step->op);
        ul_json_text(json, "node", step->node);
        ul_json_number(json, "seconds", bench->step_seconds[bench->order[i]]);
        ul_json_number(json, "least_seconds", bench->step_min[bench->order[i]]);
        if (with_predicted)
            ul_json_number(json, "predicted_seconds", step->predicted_seconds);
        write_times(json, bench, bench->order[i]);
        ul_json_count(json, "flops", step->flop_count);
        ul_json_count(json, "moved_bytes", step->moved_bytes);
        ul_json_close(json, '}');
    }
    ul_json_close(json, ']');
}

static int bench_prepared(struct ul_session *s, struct bench *bench, const struct ul_saved *inputs)
{
    const char *json = s->options->json;
    bool json_alone = json != NULL && strcmp(json, "-") == 0;
    int status = warm_up(s, inputs);
    if (status == UL_EXIT_OK)
        status = measure(s, bench, inputs);
    if (status == UL_EXIT_OK && s->options->profile)
        status = measure_steps(s, bench, inputs);
    if (status != UL_EXIT_OK)
        return status;
    summarise(bench);
    sort_steps(bench, bench->profile_count != 0 ? s->model->step_count : 0);
    if (!json_alone)
        print_summary(bench, stdout);
    if (!json_alone && bench->profile_count != 0)
        print_profile(bench, stdout);
    if (!json_alone && bench->moved != NULL)
        print_transfers(bench, stdout);
    return json != NULL ? ul_json_write(s, json, write_json, bench) : UL_EXIT_OK;
}

/* Samples for the parts of a run on a device. */
static bool new_parts(struct bench *bench)
{
    bool got = true;
    for (int part = 0; part < PART_COUNT && bench->s->model->device != NULL; part++) {
        bench->parts[part] = malloc(SAMPLE_LIMIT * sizeof(double));
        got = got && bench->parts[part] != NULL;
    }
    return got;
}

/* Makes room for transfers where values are offloaded to what the program can look at. */
static bool new_transfers(struct bench *bench)
{
    struct ul_span span;
    uint32_t count = bench->s->model->step_count;
    if (!ul_store_span(bench->s, 0, &span))
        return true;
    bench->moved = calloc(count, sizeof *bench->moved);
    bench->moved_seconds = calloc(count, sizeof *bench->moved_seconds);
    bench->moved_samples =
        calloc((size_t)bench->profile_limit * count, sizeof *bench->moved_samples);
    return bench->moved != NULL && bench->moved_seconds != NULL && bench->moved_samples != NULL;
}

int ul_bench(struct ul_session *s)
{
    struct bench bench = {0};
    size_t step_room = (size_t)s->model->step_count + 1;
    if (s->options->profile && s->model->steps == NULL)
        return ul_error(s, UL_EXIT_UNSUPPORTED,
                        "--profile needs the tables that -DUL_NO_TABLES "
                        "left out");
    int status = ul_inputs_fill(s, true);
    if (status != UL_EXIT_OK)
        return status;
    struct ul_saved inputs;
    bool saved = ul_inputs_save(s, &inputs) == UL_EXIT_OK;
    bench.s = s;
    bench.samples = malloc(SAMPLE_LIMIT * sizeof *bench.samples);
    if (s->options->profile) {
        uint64_t limit = PROFILE_SAMPLE_LIMIT / step_room;
        bench.profile_limit = limit < PROFILE_RUNS_MIN ? PROFILE_RUNS_MIN : limit;
    }
    bench.step_samples = malloc((size_t)bench.profile_limit * step_room * sizeof(double) + 1);
    bench.step_seconds = calloc(step_room, sizeof *bench.step_seconds);
    bench.step_min = calloc(step_room, sizeof *bench.step_min);
    bench.order = calloc(step_room, sizeof *bench.order);
    bench.step_begin = calloc(step_room, sizeof *bench.step_begin);
    bool got = new_parts(&bench) && new_transfers(&bench) && bench.step_begin != NULL;
    if (!got || !saved || bench.samples == NULL || bench.step_seconds == NULL ||
        bench.step_samples == NULL || bench.step_min == NULL || bench.order == NULL)
        status = ul_out_of_memory(s, SAMPLE_LIMIT * sizeof *bench.samples);
    else
        status = ul_session_set_up(s);
    if (status == UL_EXIT_OK)
        status = bench_prepared(s, &bench, &inputs);
    ul_inputs_forget(&inputs);
    free(bench.samples);
    for (int part = 0; part < PART_COUNT; part++)
        free(bench.parts[part]);
    free(bench.step_samples);
    free(bench.step_seconds);
    free(bench.step_min);
    free(bench.step_begin);
    free(bench.moved);
    free(bench.moved_seconds);
    free(bench.moved_samples);
    free(bench.order);
    return status;
}
