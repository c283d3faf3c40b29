/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention of the emulated cuDNN, spelled out as the library's engines know it:
 *
 *      scores = q k; scaled by a number; masks are added; where causal, keys after the query are
 *      -infinity; weights = softmax by the largest score and the sum, rounded; weights v
 *
 * in this order of operations, what lies between being virtual and in f32. Without the logarithm of
 * the sum, which need not be virtual, there is no engine, as in the library.
 *
 * Engines, the best first: one that is not deterministic; one that counts in its workspace, which
 * it takes to be zeroed; one with a workspace, and one without as a fallback; all are compiled when
 * a plan is made. The size of a head is a multiple of 8.
 */
#include "attention.h"

namespace
{

struct job {
    struct tensor q, k, v, o, masks[MAX_MASKS];
    struct tensor scale, never, norms; /* the last one virtual: it is not stored */
    int64_t mask_count;
    bool is_causal;
    float scale_value;
    const void *q_bytes, *k_bytes, *v_bytes, *mask_bytes[MAX_MASKS];
    void *o_bytes, *norms_bytes, *workspace;
    size_t workspace_bytes;
    bool counts;
};

enum { COUNTING = 1, COMPILED = 2 };

const std::vector<struct engine> engines = {
    {{CUDNN_NUMERICAL_NOTE_TENSOR_CORE, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC},
     {CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION},
     {},
     0,
     false},
    {{CUDNN_NUMERICAL_NOTE_TENSOR_CORE}, {CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION}, {}, 0, false},
    {{CUDNN_NUMERICAL_NOTE_TENSOR_CORE},
     {CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION},
     {CUDNN_KNOB_TYPE_STAGES},
     2,
     false},
    {{CUDNN_NUMERICAL_NOTE_TENSOR_CORE}, {CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION}, {}, 0, true}};

/* ---- running ---- */

/* Runs one query. */
void run_query(const struct job &job, int64_t b, int64_t h, int64_t i, std::vector<float> &weights)
{
    int64_t keys = job.k.dims[3], group = h / (job.q.dims[1] / job.k.dims[1]);
    float largest = -INFINITY, sum = 0;
    for (int64_t t = 0; t < keys; t++) {
        float score = 0;
        for (int64_t d = 0; d < job.q.dims[3]; d++)
            score += element_get(job.q_bytes, job.q.type, at(job.q, b, h, i, d)) *
                     element_get(job.k_bytes, job.k.type, at(job.k, b, group, d, t));
        score *= job.scale_value;
        for (int64_t m = 0; m < job.mask_count; m++)
            score +=
                element_get(job.mask_bytes[m], job.masks[m].type, at(job.masks[m], b, h, i, t));
        score = job.is_causal && t > i ? -INFINITY : score;
        weights[(size_t)t] = score;
        largest = score > largest ? score : largest;
    }
    for (int64_t t = 0; t < keys; t++) {
        weights[(size_t)t] = expf(weights[(size_t)t] - largest);
        sum += weights[(size_t)t];
    }
    if (!job.norms.is_virtual)
        element_put(job.norms_bytes, job.norms.type, at(job.norms, b, h, i, 0),
                    largest + logf(sum));
    for (int64_t d = 0; d < job.o.dims[3]; d++) {
        float result = 0;
        for (int64_t t = 0; t < keys; t++)
            result += rounded(job.v.type, weights[(size_t)t] / sum) *
                      element_get(job.v_bytes, job.v.type, at(job.v, b, group, t, d));
        element_put(job.o_bytes, job.o.type, at(job.o, b, h, i, d), result);
    }
}

void run_job(const void *arguments)
{
    const struct job &job = *(const struct job *)arguments;
    std::vector<float> weights((size_t)job.k.dims[3]);
    /* Its counter says that these queries are done. */
    int64_t done = job.counts && *(const uint32_t *)job.workspace != 0 ? 1 : 0;
    if (job.workspace_bytes > 0 && !job.counts)
        memset(job.workspace, 0xA5, job.workspace_bytes);
    for (int64_t b = 0; b < job.q.dims[0]; b++) {
        for (int64_t h = 0; h < job.q.dims[1]; h++) {
            for (int64_t i = done; i < job.q.dims[2]; i++)
                run_query(job, b, h, i, weights);
        }
    }
}

/* ---- problems ---- */

struct attention : problem {
    struct job job;
    bool serves(size_t engine, size_t *workspace_bytes) const override;
    bool enqueue(const struct run &run, cudaStream_t stream) const override;
};

bool attention::serves(size_t engine, size_t *workspace_bytes) const
{
    *workspace_bytes = engine == COMPILED || engine == COUNTING ? 256 : 0;
    return job.q.dims[3] % 8 == 0 && job.o.dims[3] % 8 == 0;
}

bool attention::enqueue(const struct run &run, cudaStream_t stream) const
{
    struct job ready = job;
    std::vector<struct extent> operands;
    if (run.engine == engines->data())
        ul_emulate_fail("cuDNN: the engine of attention does not keep bits");
    ready.q_bytes = place_operand(run, &operands, "queries", job.q);
    ready.k_bytes = place_operand(run, &operands, "keys", job.k);
    ready.v_bytes = place_operand(run, &operands, "values", job.v);
    for (int64_t m = 0; m < job.mask_count; m++)
        ready.mask_bytes[m] = place_operand(run, &operands, "a mask", job.masks[m]);
    ready.o_bytes = run.places.at(job.o.uid);
    ready.norms_bytes = job.norms.is_virtual ? NULL : run.places.at(job.norms.uid);
    ready.workspace = run.workspace;
    ready.workspace_bytes = run.workspace_bytes;
    ready.counts = run.engine == engines->data() + COUNTING;
    ready.scale_value = *(const float *)run.places.at(job.scale.uid);
    if (job.is_causal && *(const float *)run.places.at(job.never.uid) != -INFINITY)
        return false;
    need_memory("cuDNN", operands, {"", NULL, 0}, {"the result", ready.o_bytes, graph_reach(job.o)},
                {"the workspace", ready.workspace, ready.workspace_bytes});
    if (!job.norms.is_virtual) {
        const struct extent norms = {"the norms", ready.norms_bytes, graph_reach(job.norms)};
        operands.push_back({"the result", ready.o_bytes, graph_reach(job.o)});
        operands.push_back({"the workspace", ready.workspace, ready.workspace_bytes});
        need_result(&operands, norms);
    }
    return ul_emulate_enqueue(stream, "cuDNN's attention", run_job, &ready, sizeof ready) ==
           cudaSuccess;
}

/* ---- graphs ---- */

/* Scale, masks and what is not seen; what becomes of the scores. */
struct tensor read_scores(struct reader *reader, struct job *job)
{
    struct product first = take_product(reader);
    job->q = first.a;
    job->k = first.b;
    struct tensor scores = take_scaled(reader, first.c, &job->scale, job->masks, &job->mask_count);
    job->is_causal = take_causal(reader, &scores, &job->never);
    return scores;
}

/* The weights of values. */
struct tensor read_softmax(struct reader *reader, const struct tensor &scores, struct job *job)
{
    struct tensor largest = take_reduction(reader, CUDNN_REDUCE_TENSOR_MAX, scores);
    struct pointwise below = take_pointwise(reader, CUDNN_POINTWISE_SUB, 2);
    struct pointwise weights = take_pointwise(reader, CUDNN_POINTWISE_EXP, 1);
    struct tensor sum = take_reduction(reader, CUDNN_REDUCE_TENSOR_ADD, weights.y);
    struct pointwise logarithm = take_pointwise(reader, CUDNN_POINTWISE_LOG, 1);
    struct pointwise statistic =
        take_pointwise(reader, CUDNN_POINTWISE_ADD, 2, CUDNN_DATA_FLOAT, true);
    struct pointwise result = take_pointwise(reader, CUDNN_POINTWISE_DIV, 2);
    reader->good = reader->good && below.x.uid == scores.uid && below.b.uid == largest.uid &&
                   weights.x.uid == below.y.uid && logarithm.x.uid == sum.uid &&
                   statistic.x.uid == largest.uid && statistic.b.uid == logarithm.y.uid &&
                   result.x.uid == weights.y.uid && result.b.uid == sum.uid &&
                   statistic.y.data_type == CUDNN_DATA_FLOAT;
    job->norms = statistic.y;
    return result.y;
}

} // namespace

struct problem *graph_attention(const std::vector<const struct descriptor *> &operations)
{
    struct attention *made = new struct attention();
    struct job *job = &made->job;
    struct reader reader = {operations, 0, true};
    memset(job, 0, sizeof *job);
    struct tensor scores = read_scores(&reader, job);
    struct tensor weights = read_softmax(&reader, scores, job);
    struct product last = take_product(&reader);
    job->v = last.b;
    job->o = last.c;
    bool good = reader.good && reader.next == operations.size() && last.a.uid == weights.uid &&
                weights.type == job->v.type && is_half(job->q, job->q) && is_half(job->k, job->q) &&
                is_half(job->v, job->q) && is_half(job->o, job->q) && job->q.strides[3] == 1 &&
                job->k.strides[2] == 1 && job->v.strides[3] == 1 && job->o.strides[3] == 1;
    if (!good) {
        delete made;
        return NULL;
    }
    made->engines = &engines;
    made->tensors = {job->q, job->k, job->v, job->o, job->scale};
    for (int64_t m = 0; m < job->mask_count; m++)
        made->tensors.push_back(job->masks[m]);
    if (job->is_causal)
        made->tensors.push_back(job->never);
    if (!job->norms.is_virtual)
        made->tensors.push_back(job->norms);
    return made;
}
