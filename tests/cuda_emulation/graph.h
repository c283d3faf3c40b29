/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Graphs of the emulated cuDNN: what cudnn.cc, which keeps descriptors, convolution.cc and
 * attention*.cc, which compute, know of each other.
 *
 * A pattern is a kind of graphs that there are engines for. Descriptors are attributes by name, set
 * before they are final; those that they name are final and stay alive as long.
 */
#ifndef GRAPH_H
#define GRAPH_H

#include "cudnn.h"
#include "library.h"
#include "product.h"

#include <map>
#include <vector>

struct ul_emulate_dnn {
    enum { ALIVE = 0x646E6E, HANDLE_BYTES = 8 << 20 };
    uint64_t alive;
    cudaStream_t stream;
};

struct descriptor;

/* ---- attributes of final descriptors ---- */

bool graph_has(const struct descriptor *descriptor, cudnnBackendAttributeName_t name);
int64_t graph_int(const struct descriptor *descriptor, cudnnBackendAttributeName_t name,
                  size_t index = 0);
/* An enumerator. */
int graph_word(const struct descriptor *descriptor, cudnnBackendAttributeName_t name);
float graph_float(const struct descriptor *descriptor, cudnnBackendAttributeName_t name);
size_t graph_count(const struct descriptor *descriptor, cudnnBackendAttributeName_t name);
const struct descriptor *graph_one(const struct descriptor *descriptor,
                                   cudnnBackendAttributeName_t name, size_t index = 0);
cudnnBackendDescriptorType_t graph_type(const struct descriptor *descriptor);

/* ---- tensors of four axes ---- */

struct tensor {
    int64_t uid;
    enum element type;
    int64_t dims[4], strides[4];
    int64_t align_bytes;
    int data_type; /* cudnnDataType_t */
    bool is_virtual, is_by_value;
};
/* false: it has another rank. */
bool graph_tensor(const struct descriptor *descriptor, struct tensor *tensor);
bool graph_same(const struct tensor &a, const struct tensor &b); /* dims and strides */
/* From its first byte to one past its last. */
size_t graph_reach(const struct tensor &tensor);

/* ---- patterns ---- */

/* What engines do and need; the pattern determines the workspace. */
struct engine {
    std::vector<cudnnBackendNumericalNote_t> numbers;
    std::vector<cudnnBackendBehaviorNote_t> behaviours;
    std::vector<cudnnBackendKnobType_t> knobs;
    int64_t max_knob; /* from 0 */
    bool is_fallback;
    bool is_named = false; /* no heuristic offers it */
};

/* One of a plan. */
struct run {
    std::map<int64_t, void *> places; /* by uid */
    void *workspace;
    size_t workspace_bytes;
    const struct engine *engine;
};

struct problem {
    virtual ~problem()
    {
    }
    /* Tensors that must have a place. */
    std::vector<struct tensor> tensors;
    const std::vector<struct engine> *engines;
    /* false: the engine of this number does not compute it. */
    virtual bool serves(size_t engine, size_t *workspace_bytes) const = 0;
    /* Checks the memory and enqueues; false: it does not fit into the stream. */
    virtual bool enqueue(const struct run &run, cudaStream_t stream) const = 0;
};

/* NULL: these operations, in their order, are no convolution with what may follow one. */
struct problem *graph_convolution(const std::vector<const struct descriptor *> &operations);
/* NULL: they are no attention as programs spell it out. */
struct problem *graph_attention(const std::vector<const struct descriptor *> &operations);
/* The same of its gradient. */
struct problem *graph_attention_gradient(const std::vector<const struct descriptor *> &operations);

#endif
