/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuDNN for tests/cuda_emulation: backend descriptors, as strict as the library's own. An attribute
 * that a descriptor does not have, of another type or count, one that is missing, one set after
 * the end, or one that names what is not final is refused; so are plans without a place for each
 * tensor, places that lie otherwise than a tensor says, and workspaces that are not there. What is
 * undefined ends the program.
 *
 * Which graphs there are engines for, and what these compute, say the files of patterns (graph.h).
 * The heuristic offers, the best first, what programs may not take, too. With
 * UL_EMULATE_NO_ALGORITHMS in the environment nothing is offered, with UL_EMULATE_HALF_ALGORITHMS
 * to every other graph.
 */
#include "graph.h"

#include <stdlib.h>

#include <memory>
#include <set>

namespace
{

enum { MAX_DIMS = 8, MAX_OPERATIONS = 64, MAX_KNOBS = 32, MAX_RESULTS = 64 };

struct attribute {
    int64_t count;
    std::vector<unsigned char> bytes;
};

} // namespace

struct descriptor {
    cudnnBackendDescriptorType_t type;
    bool is_final;
    std::map<int, struct attribute> attributes;
    std::unique_ptr<struct problem> problem; /* of a graph */
    bool is_served;                          /* the same: it has engines */
    size_t workspace_bytes;                  /* of a configuration and of a plan */
};

namespace
{

/* ---- what there is ---- */

struct row {
    cudnnBackendDescriptorType_t descriptor;
    cudnnBackendAttributeName_t name;
    cudnnBackendAttributeType_t type;
    int64_t max_count; /* 0: only read */
    bool is_needed;
};

#define OF(name) CUDNN_BACKEND_##name##_DESCRIPTOR
#define AT(name) CUDNN_ATTR_##name
#define AS(name) CUDNN_TYPE_##name
const struct row rows[] = {
    {OF(TENSOR), AT(TENSOR_BYTE_ALIGNMENT), AS(INT64), 1, true},
    {OF(TENSOR), AT(TENSOR_DATA_TYPE), AS(DATA_TYPE), 1, true},
    {OF(TENSOR), AT(TENSOR_DIMENSIONS), AS(INT64), MAX_DIMS, true},
    {OF(TENSOR), AT(TENSOR_STRIDES), AS(INT64), MAX_DIMS, true},
    {OF(TENSOR), AT(TENSOR_UNIQUE_ID), AS(INT64), 1, true},
    {OF(TENSOR), AT(TENSOR_IS_VIRTUAL), AS(BOOLEAN), 1, false},
    {OF(TENSOR), AT(TENSOR_IS_BY_VALUE), AS(BOOLEAN), 1, false},
    {OF(MATMUL), AT(MATMUL_COMP_TYPE), AS(DATA_TYPE), 1, true},
    {OF(OPERATION_MATMUL), AT(OPERATION_MATMUL_ADESC), AS(BACKEND_DESCRIPTOR), 1, true},
    {OF(OPERATION_MATMUL), AT(OPERATION_MATMUL_BDESC), AS(BACKEND_DESCRIPTOR), 1, true},
    {OF(OPERATION_MATMUL), AT(OPERATION_MATMUL_CDESC), AS(BACKEND_DESCRIPTOR), 1, true},
    {OF(OPERATION_MATMUL), AT(OPERATION_MATMUL_DESC), AS(BACKEND_DESCRIPTOR), 1, true},
    {OF(REDUCTION), AT(REDUCTION_OPERATOR), AS(REDUCTION_OPERATOR_TYPE), 1, true},
    {OF(REDUCTION), AT(REDUCTION_COMP_TYPE), AS(DATA_TYPE), 1, true},
    {OF(OPERATION_REDUCTION), AT(OPERATION_REDUCTION_XDESC), AS(BACKEND_DESCRIPTOR), 1, true},
    {OF(OPERATION_REDUCTION), AT(OPERATION_REDUCTION_YDESC), AS(BACKEND_DESCRIPTOR), 1, true},
    {OF(OPERATION_REDUCTION), AT(OPERATION_REDUCTION_DESC), AS(BACKEND_DESCRIPTOR), 1, true},
    {OF(OPERATION_RESHAPE), AT(OPERATION_RESHAPE_XDESC), AS(BACKEND_DESCRIPTOR), 1, true},
    {OF(OPERATION_RESHAPE), AT(OPERATION_RESHAPE_YDESC), AS(BACKEND_DESCRIPTOR), 1, true},
    {OF(POINTWISE), AT(POINTWISE_AXIS), AS(INT64), 1, false},
    {OF(OPERATION_POINTWISE), AT(OPERATION_POINTWISE_TDESC), AS(BACKEND_DESCRIPTOR), 1, false},
    {OF(POINTWISE), AT(POINTWISE_MODE), AS(POINTWISE_MODE), 1, true},
    {OF(POINTWISE), AT(POINTWISE_MATH_PREC), AS(DATA_TYPE), 1, true},
    {OF(OPERATION_POINTWISE), AT(OPERATION_POINTWISE_PW_DESCRIPTOR), AS(BACKEND_DESCRIPTOR), 1,
     true},
    {OF(OPERATION_POINTWISE), AT(OPERATION_POINTWISE_XDESC), AS(BACKEND_DESCRIPTOR), 1, true},
    {OF(OPERATION_POINTWISE), AT(OPERATION_POINTWISE_BDESC), AS(BACKEND_DESCRIPTOR), 1, false},
    {OF(OPERATION_POINTWISE), AT(OPERATION_POINTWISE_YDESC), AS(BACKEND_DESCRIPTOR), 1, true},
    {OF(CONVOLUTION), AT(CONVOLUTION_COMP_TYPE), AS(DATA_TYPE), 1, true},
    {OF(CONVOLUTION), AT(CONVOLUTION_CONV_MODE), AS(CONVOLUTION_MODE), 1, true},
    {OF(CONVOLUTION), AT(CONVOLUTION_DILATIONS), AS(INT64), MAX_DIMS, true},
    {OF(CONVOLUTION), AT(CONVOLUTION_FILTER_STRIDES), AS(INT64), MAX_DIMS, true},
    {OF(CONVOLUTION), AT(CONVOLUTION_POST_PADDINGS), AS(INT64), MAX_DIMS, true},
    {OF(CONVOLUTION), AT(CONVOLUTION_PRE_PADDINGS), AS(INT64), MAX_DIMS, true},
    {OF(CONVOLUTION), AT(CONVOLUTION_SPATIAL_DIMS), AS(INT64), 1, true},
    {OF(OPERATION_CONVOLUTION_FORWARD), AT(OPERATION_CONVOLUTION_FORWARD_ALPHA), AS(FLOAT), 1,
     true},
    {OF(OPERATION_CONVOLUTION_FORWARD), AT(OPERATION_CONVOLUTION_FORWARD_BETA), AS(FLOAT), 1, true},
    {OF(OPERATION_CONVOLUTION_FORWARD), AT(OPERATION_CONVOLUTION_FORWARD_CONV_DESC),
     AS(BACKEND_DESCRIPTOR), 1, true},
    {OF(OPERATION_CONVOLUTION_FORWARD), AT(OPERATION_CONVOLUTION_FORWARD_X), AS(BACKEND_DESCRIPTOR),
     1, true},
    {OF(OPERATION_CONVOLUTION_FORWARD), AT(OPERATION_CONVOLUTION_FORWARD_W), AS(BACKEND_DESCRIPTOR),
     1, true},
    {OF(OPERATION_CONVOLUTION_FORWARD), AT(OPERATION_CONVOLUTION_FORWARD_Y), AS(BACKEND_DESCRIPTOR),
     1, true},
    {OF(OPERATION_CONVOLUTION_BACKWARD_DATA), AT(OPERATION_CONVOLUTION_BWD_DATA_ALPHA), AS(FLOAT),
     1, true},
    {OF(OPERATION_CONVOLUTION_BACKWARD_DATA), AT(OPERATION_CONVOLUTION_BWD_DATA_BETA), AS(FLOAT), 1,
     true},
    {OF(OPERATION_CONVOLUTION_BACKWARD_DATA), AT(OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC),
     AS(BACKEND_DESCRIPTOR), 1, true},
    {OF(OPERATION_CONVOLUTION_BACKWARD_DATA), AT(OPERATION_CONVOLUTION_BWD_DATA_DX),
     AS(BACKEND_DESCRIPTOR), 1, true},
    {OF(OPERATION_CONVOLUTION_BACKWARD_DATA), AT(OPERATION_CONVOLUTION_BWD_DATA_W),
     AS(BACKEND_DESCRIPTOR), 1, true},
    {OF(OPERATION_CONVOLUTION_BACKWARD_DATA), AT(OPERATION_CONVOLUTION_BWD_DATA_DY),
     AS(BACKEND_DESCRIPTOR), 1, true},
    {OF(OPERATION_CONVOLUTION_BACKWARD_FILTER), AT(OPERATION_CONVOLUTION_BWD_FILTER_ALPHA),
     AS(FLOAT), 1, true},
    {OF(OPERATION_CONVOLUTION_BACKWARD_FILTER), AT(OPERATION_CONVOLUTION_BWD_FILTER_BETA),
     AS(FLOAT), 1, true},
    {OF(OPERATION_CONVOLUTION_BACKWARD_FILTER), AT(OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC),
     AS(BACKEND_DESCRIPTOR), 1, true},
    {OF(OPERATION_CONVOLUTION_BACKWARD_FILTER), AT(OPERATION_CONVOLUTION_BWD_FILTER_X),
     AS(BACKEND_DESCRIPTOR), 1, true},
    {OF(OPERATION_CONVOLUTION_BACKWARD_FILTER), AT(OPERATION_CONVOLUTION_BWD_FILTER_DW),
     AS(BACKEND_DESCRIPTOR), 1, true},
    {OF(OPERATION_CONVOLUTION_BACKWARD_FILTER), AT(OPERATION_CONVOLUTION_BWD_FILTER_DY),
     AS(BACKEND_DESCRIPTOR), 1, true},
    {OF(OPERATIONGRAPH), AT(OPERATIONGRAPH_HANDLE), AS(HANDLE), 1, true},
    {OF(OPERATIONGRAPH), AT(OPERATIONGRAPH_OPS), AS(BACKEND_DESCRIPTOR), MAX_OPERATIONS, true},
    {OF(ENGINEHEUR), AT(ENGINEHEUR_OPERATION_GRAPH), AS(BACKEND_DESCRIPTOR), 1, true},
    {OF(ENGINEHEUR), AT(ENGINEHEUR_MODE), AS(HEUR_MODE), 1, true},
    {OF(ENGINEHEUR), AT(ENGINEHEUR_RESULTS), AS(BACKEND_DESCRIPTOR), 0, false},
    {OF(ENGINE), AT(ENGINE_OPERATION_GRAPH), AS(BACKEND_DESCRIPTOR), 1, true},
    {OF(ENGINE), AT(ENGINE_GLOBAL_INDEX), AS(INT64), 1, true},
    {OF(ENGINE), AT(ENGINE_NUMERICAL_NOTE), AS(NUMERICAL_NOTE), 0, false},
    {OF(ENGINE), AT(ENGINE_BEHAVIOR_NOTE), AS(BEHAVIOR_NOTE), 0, false},
    {OF(KNOB_CHOICE), AT(KNOB_CHOICE_KNOB_TYPE), AS(KNOB_TYPE), 1, true},
    {OF(KNOB_CHOICE), AT(KNOB_CHOICE_KNOB_VALUE), AS(INT64), 1, true},
    {OF(ENGINECFG), AT(ENGINECFG_ENGINE), AS(BACKEND_DESCRIPTOR), 1, true},
    {OF(ENGINECFG), AT(ENGINECFG_KNOB_CHOICES), AS(BACKEND_DESCRIPTOR), MAX_KNOBS, false},
    {OF(ENGINECFG), AT(ENGINECFG_WORKSPACE_SIZE), AS(INT64), 0, false},
    {OF(EXECUTION_PLAN), AT(EXECUTION_PLAN_HANDLE), AS(HANDLE), 1, true},
    {OF(EXECUTION_PLAN), AT(EXECUTION_PLAN_ENGINE_CONFIG), AS(BACKEND_DESCRIPTOR), 1, true},
    {OF(EXECUTION_PLAN), AT(EXECUTION_PLAN_WORKSPACE_SIZE), AS(INT64), 0, false},
    {OF(VARIANT_PACK), AT(VARIANT_PACK_UNIQUE_IDS), AS(INT64), MAX_OPERATIONS, true},
    {OF(VARIANT_PACK), AT(VARIANT_PACK_DATA_POINTERS), AS(VOID_PTR), MAX_OPERATIONS, true},
    {OF(VARIANT_PACK), AT(VARIANT_PACK_WORKSPACE), AS(VOID_PTR), 1, false},
};
#undef OF
#undef AT
#undef AS

const struct row *find_row(const struct descriptor *descriptor, cudnnBackendAttributeName_t name)
{
    for (const struct row &row : rows) {
        if (row.descriptor == descriptor->type && row.name == name)
            return &row;
    }
    return NULL;
}

size_t size_of(cudnnBackendAttributeType_t type)
{
    switch (type) {
    case CUDNN_TYPE_BOOLEAN:
        return sizeof(bool);
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
        return 8;
    default:
        return 4; /* enumerators, and floats */
    }
}

/* Those that were made and not destroyed. */
std::set<const struct descriptor *> living;

bool is_alive(const struct descriptor *descriptor)
{
    if (descriptor != NULL && living.count(descriptor) == 0)
        ul_emulate_fail("cuDNN: %p is no descriptor", (const void *)descriptor);
    return descriptor != NULL;
}

/* ---- attributes ---- */

const struct attribute *find_attribute(const struct descriptor *descriptor, int name)
{
    auto found = descriptor->attributes.find(name);
    return found == descriptor->attributes.end() ? NULL : &found->second;
}

template <class T>
T value_of(const struct descriptor *descriptor, cudnnBackendAttributeName_t name, size_t index)
{
    const struct attribute *attribute = find_attribute(descriptor, name);
    T value = T();
    if (attribute != NULL && (index + 1) * sizeof value <= attribute->bytes.size())
        memcpy(&value, attribute->bytes.data() + index * sizeof value, sizeof value);
    return value;
}

void put(struct descriptor *descriptor, cudnnBackendAttributeName_t name, size_t size_bytes,
         int64_t count, const void *values)
{
    struct attribute *attribute = &descriptor->attributes[name];
    attribute->count = count;
    attribute->bytes.assign((const unsigned char *)values,
                            (const unsigned char *)values + size_bytes * (size_t)count);
}

/* Those of a descriptor that names others are to be final. */
bool are_final(const struct row &row, int64_t count, const void *values)
{
    if (row.type == CUDNN_TYPE_HANDLE)
        return handle_is_alive(*(const struct ul_emulate_dnn *const *)values);
    for (int64_t i = 0; row.type == CUDNN_TYPE_BACKEND_DESCRIPTOR && i < count; i++) {
        const struct descriptor *named = ((const struct descriptor *const *)values)[i];
        if (!is_alive(named) || !named->is_final)
            return false;
    }
    return true;
}

/* ---- what is final ---- */

const struct descriptor *graph_of(const struct descriptor *engine)
{
    return graph_one(engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH);
}

const struct engine *engine_of(const struct descriptor *engine)
{
    const struct problem &problem = *graph_of(engine)->problem;
    return &(*problem.engines)[(size_t)graph_int(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX)];
}

int64_t bytes_of(int type)
{
    return type == CUDNN_DATA_BOOLEAN                               ? 1
           : type == CUDNN_DATA_HALF || type == CUDNN_DATA_BFLOAT16 ? 2
                                                                    : 4;
}

cudnnStatus_t end_tensor(const struct descriptor *tensor)
{
    size_t rank = graph_count(tensor, CUDNN_ATTR_TENSOR_DIMENSIONS);
    int64_t align = graph_int(tensor, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT);
    int type = graph_word(tensor, CUDNN_ATTR_TENSOR_DATA_TYPE);
    if (align <= 0 || align % bytes_of(type) != 0 ||
        graph_count(tensor, CUDNN_ATTR_TENSOR_STRIDES) != rank)
        return CUDNN_STATUS_BAD_PARAM;
    for (size_t i = 0; i < rank; i++) {
        if (graph_int(tensor, CUDNN_ATTR_TENSOR_DIMENSIONS, i) < 1)
            return CUDNN_STATUS_BAD_PARAM;
    }
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t end_graph(struct descriptor *graph)
{
    static int count;
    std::vector<const struct descriptor *> operations;
    for (size_t i = 0; i < graph_count(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS); i++)
        operations.push_back(graph_one(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, i));
    graph->problem.reset(graph_convolution(operations));
    if (graph->problem == NULL)
        graph->problem.reset(graph_attention(operations));
    if (graph->problem == NULL)
        graph->problem.reset(graph_attention_gradient(operations));
    graph->is_served = graph->problem != NULL && getenv("UL_EMULATE_NO_ALGORITHMS") == NULL;
    if (count++ % 2 != 0 && getenv("UL_EMULATE_HALF_ALGORITHMS") != NULL)
        graph->is_served = false;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t end_engine(struct descriptor *engine)
{
    const struct descriptor *graph = graph_of(engine);
    int64_t index = graph_int(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX);
    size_t bytes = 0;
    if (!graph->is_served || index < 0 || index >= (int64_t)graph->problem->engines->size() ||
        !graph->problem->serves((size_t)index, &bytes))
        return CUDNN_STATUS_NOT_SUPPORTED;
    engine->workspace_bytes = bytes;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t end_config(struct descriptor *config)
{
    const struct descriptor *engine = graph_one(config, CUDNN_ATTR_ENGINECFG_ENGINE);
    const struct engine *properties = engine_of(engine);
    config->workspace_bytes = engine->workspace_bytes;
    for (size_t i = 0; i < graph_count(config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES); i++) {
        const struct descriptor *knob = graph_one(config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, i);
        int64_t value = graph_int(knob, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE);
        bool known = false;
        for (cudnnBackendKnobType_t type : properties->knobs)
            known = known || graph_word(knob, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE) == (int)type;
        if (!known || value < 0 || value > properties->max_knob)
            return CUDNN_STATUS_BAD_PARAM;
    }
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t end(struct descriptor *descriptor)
{
    switch (descriptor->type) {
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR:
        return end_tensor(descriptor);
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR:
        return end_graph(descriptor);
    case CUDNN_BACKEND_ENGINE_DESCRIPTOR:
        return end_engine(descriptor);
    case CUDNN_BACKEND_ENGINECFG_DESCRIPTOR:
        return end_config(descriptor);
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR:
        descriptor->workspace_bytes =
            graph_one(descriptor, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG)->workspace_bytes;
        return CUDNN_STATUS_SUCCESS;
    case CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR:
        return graph_count(descriptor, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS) ==
                       graph_count(descriptor, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS)
                   ? CUDNN_STATUS_SUCCESS
                   : CUDNN_STATUS_BAD_PARAM;
    default:
        return CUDNN_STATUS_SUCCESS;
    }
}

/* ---- what is read ---- */

/* Copies at most `max` of them, or only counts. */
cudnnStatus_t answer(const void *from, size_t count, size_t size_bytes, int64_t max, int64_t *found,
                     void *values)
{
    *found = (int64_t)count;
    if (max > 0 && count > 0)
        memcpy(values, from, size_bytes * std::min(count, (size_t)max));
    return CUDNN_STATUS_SUCCESS;
}

struct offer {
    int64_t engine, knob;
};

/* Each engine that serves the graph, with two settings of its knobs. */
std::vector<struct offer> offers_of(const struct descriptor *heuristic)
{
    const struct descriptor *graph = graph_one(heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
    bool fallback = graph_word(heuristic, CUDNN_ATTR_ENGINEHEUR_MODE) == CUDNN_HEUR_MODE_FALLBACK;
    std::vector<struct offer> offers;
    for (size_t i = 0; graph->is_served && i < graph->problem->engines->size(); i++) {
        const struct engine &engine = (*graph->problem->engines)[i];
        size_t bytes = 0;
        if (engine.is_named || engine.is_fallback != fallback || !graph->problem->serves(i, &bytes))
            continue;
        offers.push_back({(int64_t)i, engine.max_knob});
        if (!engine.knobs.empty())
            offers.push_back({(int64_t)i, 0});
    }
    return offers;
}

struct descriptor *make(cudnnBackendDescriptorType_t type)
{
    struct descriptor *made = new struct descriptor();
    made->type = type;
    living.insert(made);
    return made;
}

/* A descriptor of the caller's, of that type and without attributes, which gets them here. */
bool is_fresh(const struct descriptor *descriptor, cudnnBackendDescriptorType_t type)
{
    return is_alive(descriptor) && descriptor->type == type && !descriptor->is_final &&
           descriptor->attributes.empty();
}

/* What the library keeps of its own for the configurations that it hands out. */
std::vector<std::unique_ptr<struct descriptor>> kept;

void fill_config(struct descriptor *config, const struct descriptor *graph,
                 const struct offer &offer)
{
    kept.emplace_back(make(CUDNN_BACKEND_ENGINE_DESCRIPTOR));
    struct descriptor *engine = kept.back().get();
    std::vector<struct descriptor *> knobs;
    put(engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, 8, 1, &graph);
    put(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, 8, 1, &offer.engine);
    engine->is_final = end(engine) == CUDNN_STATUS_SUCCESS;
    for (cudnnBackendKnobType_t type : engine_of(engine)->knobs) {
        kept.emplace_back(make(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR));
        knobs.push_back(kept.back().get());
        put(knobs.back(), CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, 4, 1, &type);
        put(knobs.back(), CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, 8, 1, &offer.knob);
        knobs.back()->is_final = true;
    }
    put(config, CUDNN_ATTR_ENGINECFG_ENGINE, 8, 1, &engine);
    put(config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, 8, (int64_t)knobs.size(), knobs.data());
    config->is_final = end(config) == CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t read_results(const struct descriptor *heuristic, int64_t max, int64_t *count,
                           void *values)
{
    const struct descriptor *graph = graph_one(heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
    std::vector<struct offer> offers = offers_of(heuristic);
    *count = (int64_t)offers.size();
    if (max == 0) {
        *count += *count > 0; /* one more, of which it then finds that it does not run here */
        return CUDNN_STATUS_SUCCESS;
    }
    *count = std::min(*count, max);
    for (int64_t i = 0; i < *count; i++) {
        struct descriptor *config = ((struct descriptor **)values)[i];
        if (!is_fresh(config, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR))
            return CUDNN_STATUS_BAD_PARAM;
        fill_config(config, graph, offers[(size_t)i]);
    }
    return CUDNN_STATUS_SUCCESS;
}

/* Attributes that name descriptors are copied into those of the caller's. */
cudnnStatus_t read_named(const struct descriptor *descriptor, const struct row &row, int64_t max,
                         int64_t *count, void *values)
{
    *count = (int64_t)graph_count(descriptor, row.name);
    for (int64_t i = 0; i < std::min(*count, max); i++) {
        const struct descriptor *from = graph_one(descriptor, row.name, (size_t)i);
        struct descriptor *to = ((struct descriptor **)values)[i];
        if (!is_fresh(to, from->type))
            return CUDNN_STATUS_BAD_PARAM;
        to->attributes = from->attributes;
        to->workspace_bytes = from->workspace_bytes;
        to->is_final = true;
    }
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t read(const struct descriptor *descriptor, const struct row &row, int64_t max,
                   int64_t *count, void *values)
{
    int64_t workspace = (int64_t)descriptor->workspace_bytes;
    switch (row.name) {
    case CUDNN_ATTR_ENGINEHEUR_RESULTS:
        return read_results(descriptor, max, count, values);
    case CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE:
    case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE:
        return answer(&workspace, 1, sizeof workspace, max, count, values);
    case CUDNN_ATTR_ENGINE_NUMERICAL_NOTE: {
        const auto &notes = engine_of(descriptor)->numbers;
        return answer(notes.data(), notes.size(), sizeof notes[0], max, count, values);
    }
    case CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE: {
        const auto &notes = engine_of(descriptor)->behaviours;
        return answer(notes.data(), notes.size(), sizeof notes[0], max, count, values);
    }
    default:
        break;
    }
    if (row.type == CUDNN_TYPE_BACKEND_DESCRIPTOR)
        return read_named(descriptor, row, max, count, values);
    const struct attribute *attribute = find_attribute(descriptor, row.name);
    return attribute == NULL ? CUDNN_STATUS_BAD_PARAM
                             : answer(attribute->bytes.data(), (size_t)attribute->count,
                                      size_of(row.type), max, count, values);
}

/* ---- running ---- */

cudnnStatus_t find_places(const struct problem &problem, const struct descriptor *pack,
                          struct run *run)
{
    for (size_t i = 0; i < graph_count(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS); i++)
        run->places[graph_int(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, i)] =
            value_of<void *>(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, i);
    for (const struct tensor &tensor : problem.tensors) {
        auto place = run->places.find(tensor.uid);
        if (place == run->places.end() || place->second == NULL)
            return CUDNN_STATUS_BAD_PARAM;
        if (!tensor.is_by_value && (uintptr_t)place->second % (uintptr_t)tensor.align_bytes != 0)
            return CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER;
    }
    run->workspace = value_of<void *>(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, 0);
    return run->workspace == NULL && run->workspace_bytes > 0 ? CUDNN_STATUS_BAD_PARAM_NULL_POINTER
                                                              : CUDNN_STATUS_SUCCESS;
}

} // namespace

/* ---- what patterns ask ---- */

bool graph_has(const struct descriptor *descriptor, cudnnBackendAttributeName_t name)
{
    return find_attribute(descriptor, name) != NULL;
}

int64_t graph_int(const struct descriptor *descriptor, cudnnBackendAttributeName_t name,
                  size_t index)
{
    return value_of<int64_t>(descriptor, name, index);
}

int graph_word(const struct descriptor *descriptor, cudnnBackendAttributeName_t name)
{
    return value_of<int>(descriptor, name, 0);
}

float graph_float(const struct descriptor *descriptor, cudnnBackendAttributeName_t name)
{
    return value_of<float>(descriptor, name, 0);
}

size_t graph_count(const struct descriptor *descriptor, cudnnBackendAttributeName_t name)
{
    const struct attribute *attribute = find_attribute(descriptor, name);
    return attribute == NULL ? 0 : (size_t)attribute->count;
}

const struct descriptor *graph_one(const struct descriptor *descriptor,
                                   cudnnBackendAttributeName_t name, size_t index)
{
    const struct descriptor *one = value_of<const struct descriptor *>(descriptor, name, index);
    (void)is_alive(one);
    return one;
}

cudnnBackendDescriptorType_t graph_type(const struct descriptor *descriptor)
{
    return descriptor->type;
}

bool graph_tensor(const struct descriptor *descriptor, struct tensor *tensor)
{
    int type = graph_word(descriptor, CUDNN_ATTR_TENSOR_DATA_TYPE);
    if (descriptor->type != CUDNN_BACKEND_TENSOR_DESCRIPTOR ||
        graph_count(descriptor, CUDNN_ATTR_TENSOR_DIMENSIONS) != 4)
        return false;
    tensor->uid = graph_int(descriptor, CUDNN_ATTR_TENSOR_UNIQUE_ID);
    tensor->type = type == CUDNN_DATA_HALF       ? ELEMENT_F16
                   : type == CUDNN_DATA_BFLOAT16 ? ELEMENT_BF16
                                                 : ELEMENT_F32;
    tensor->align_bytes = graph_int(descriptor, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT);
    tensor->data_type = type;
    tensor->is_by_value = value_of<bool>(descriptor, CUDNN_ATTR_TENSOR_IS_BY_VALUE, 0);
    tensor->is_virtual = value_of<bool>(descriptor, CUDNN_ATTR_TENSOR_IS_VIRTUAL, 0);
    for (size_t i = 0; i < 4; i++) {
        tensor->dims[i] = graph_int(descriptor, CUDNN_ATTR_TENSOR_DIMENSIONS, i);
        tensor->strides[i] = graph_int(descriptor, CUDNN_ATTR_TENSOR_STRIDES, i);
    }
    return true;
}

bool graph_same(const struct tensor &a, const struct tensor &b)
{
    return memcmp(a.dims, b.dims, sizeof a.dims) == 0 &&
           memcmp(a.strides, b.strides, sizeof a.strides) == 0;
}

size_t graph_reach(const struct tensor &tensor)
{
    int64_t last = 0;
    for (size_t i = 0; i < 4; i++)
        last += (tensor.dims[i] - 1) * tensor.strides[i];
    return (size_t)(last + 1) * element_bytes(tensor.type);
}

/* ---- functions ---- */

extern "C" {

cudnnStatus_t cudnnCreate(cudnnHandle_t *handle)
{
    handle_open(handle);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle)
{
    return handle_close(handle) ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_NOT_INITIALIZED;
}

size_t cudnnGetVersion(void)
{
    return CUDNN_VERSION;
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream)
{
    if (!handle_is_alive(handle))
        return CUDNN_STATUS_NOT_INITIALIZED;
    handle->stream = stream;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t *descriptor)
{
    struct api api;
    for (const struct row &row : rows) {
        if (row.descriptor != type)
            continue;
        *descriptor = make(type);
        return CUDNN_STATUS_SUCCESS;
    }
    return CUDNN_STATUS_NOT_SUPPORTED;
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t opaque)
{
    struct api api;
    struct descriptor *descriptor = (struct descriptor *)opaque;
    if (!is_alive(descriptor))
        return CUDNN_STATUS_BAD_PARAM;
    living.erase(descriptor);
    delete descriptor;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t opaque,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count,
                                       const void *values)
{
    struct api api;
    struct descriptor *descriptor = (struct descriptor *)opaque;
    if (!is_alive(descriptor) || values == NULL)
        return CUDNN_STATUS_BAD_PARAM_NULL_POINTER;
    const struct row *row = find_row(descriptor, name);
    if (descriptor->is_final || row == NULL || count < 1 || count > row->max_count)
        return CUDNN_STATUS_BAD_PARAM;
    if (row->type != type)
        return CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE;
    if (!are_final(*row, count, values))
        return CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED;
    put(descriptor, name, size_of(type), count, values);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t opaque)
{
    struct api api;
    struct descriptor *descriptor = (struct descriptor *)opaque;
    if (!is_alive(descriptor) || descriptor->is_final)
        return CUDNN_STATUS_BAD_PARAM;
    for (const struct row &row : rows) {
        if (row.descriptor == descriptor->type && row.is_needed && !graph_has(descriptor, row.name))
            return CUDNN_STATUS_BAD_PARAM;
    }
    cudnnStatus_t status = end(descriptor);
    descriptor->is_final = status == CUDNN_STATUS_SUCCESS;
    return status;
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const opaque,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t max,
                                       int64_t *count, void *values)
{
    struct api api;
    const struct descriptor *descriptor = (const struct descriptor *)opaque;
    if (!is_alive(descriptor) || count == NULL || (max > 0 && values == NULL))
        return CUDNN_STATUS_BAD_PARAM_NULL_POINTER;
    const struct row *row = find_row(descriptor, name);
    if (!descriptor->is_final)
        return CUDNN_STATUS_NOT_INITIALIZED;
    if (row == NULL || max < 0)
        return CUDNN_STATUS_BAD_PARAM;
    if (row->type != type)
        return CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE;
    return read(descriptor, *row, max, count, values);
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t opaque_plan,
                                  cudnnBackendDescriptor_t opaque_pack)
{
    struct api api;
    const struct descriptor *plan = (const struct descriptor *)opaque_plan;
    const struct descriptor *pack = (const struct descriptor *)opaque_pack;
    struct run run;
    if (!handle_is_alive(handle))
        return CUDNN_STATUS_NOT_INITIALIZED;
    if (!is_alive(plan) || !is_alive(pack))
        return CUDNN_STATUS_BAD_PARAM_NULL_POINTER;
    if (!plan->is_final || !pack->is_final ||
        plan->type != CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR ||
        pack->type != CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR)
        return CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED;
    const struct descriptor *engine = graph_one(
        graph_one(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG), CUDNN_ATTR_ENGINECFG_ENGINE);
    const struct problem &problem = *graph_of(engine)->problem;
    run.engine = engine_of(engine);
    run.workspace_bytes = plan->workspace_bytes;
    cudnnStatus_t status = find_places(problem, pack, &run);
    if (status != CUDNN_STATUS_SUCCESS)
        return status;
    return problem.enqueue(run, handle->stream) ? CUDNN_STATUS_SUCCESS
                                                : CUDNN_STATUS_EXECUTION_FAILED;
}
}
