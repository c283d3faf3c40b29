/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files that emit a program. */
#ifndef UL_EMIT_INTERNAL_H
#define UL_EMIT_INTERNAL_H

#include "codegen/emit/emit.h"
#include "codegen/program/library.h"
#include "codegen/program/program.h"
#include "planner/model/plan.h"

/* In the first comment of each generated file: what is made from a model belongs to its author. */
#define UL_EMIT_SPDX "SPDX-License-Identifier: 0BSD"

enum ul_emit_space { UL_EMIT_ARENA, UL_EMIT_INPUT, UL_EMIT_OUTPUT, UL_EMIT_ROM, UL_EMIT_OFFLOAD };
struct ul_emit_place {
    enum ul_emit_space space;
    uint32_t index; /* of the caller's input or output */
    uint64_t offset_bytes;
    uint32_t slot_number; /* 1 + its slot, where its offset follows from sizes; else 0 */
};

/* A position that moves a value. */
struct ul_emit_transfer {
    uint32_t number; /* transfers are counted in the order of the plan */
    uint32_t range;  /* in the arena */
    uint64_t arena_offset_bytes, offload_offset_bytes, size_bytes;
    uint32_t done; /* the position that waits for it first, itself on stream 0; or UL_PLAN_NONE */
};

struct ul_emitter;
/* A generated file of the folder. */
struct ul_emit_file {
    const char *name;
    void (*put)(struct ul_emitter *emitter);
    bool is_rom;     /* only where weights are read-only data */
    bool is_inside;  /* only where the file of weights is in the library */
    bool is_program; /* only for a program of its own */
    bool is_alone;   /* only for a library alone */
    /* The name is that of the model here, or the prefix, followed by this: ".c" for model.c. */
    bool is_suffix, is_header; /* a header: one for each part of the program */
};

/* The parts of a library, for make and CMake: words separated by blanks. */
struct ul_emit_build {
    const char *native;   /* sources that are compiled for the processor: "model.c" */
    const char *own;      /* those of the runtime among them, with a blank before each */
    const char *plain;    /* for any processor */
    const char *assembly; /* weights.S or rom.S, or "": none */
    const char *devices;  /* sources in CUDA C++, or "" */
    const char *flags;    /* for native sources */
    const char *cflags;   /* for plain ones: where headers of libraries are */
    const char *libraries;
    /* What a program needs in addition after an archive, which the compiler that links a shared
     * library adds itself; the same for CMake; and the CMake package that has them, or NULL. */
    const char *behind_archive, *behind_archive_cmake, *archive_package;
    bool has_threads; /* threads of OpenMP */
};

/* How a target writes a step; the text around the steps is the same for all. */
struct ul_emit_language {
    const struct ul_emit_file *files; /* ends with one without a name */
    bool runs_on_host;                /* the steps of an entry point are a function of the host's */
    /* Announces the step, on a line of its own, before the step. */
    void (*put_mark)(struct ul_emitter *emitter, const struct ul_program_step *step,
                     uint32_t position);
    void (*put_step)(struct ul_emitter *emitter, const struct ul_program_step *step,
                     uint32_t position, uint32_t indent);
    /* Writes steps at `count` positions as one launch; NULL: the target has none. */
    void (*put_joined)(struct ul_emitter *emitter, const uint32_t *positions, uint32_t count,
                       uint32_t indent);
    /* Begins the transfer at a position; and waits for the transfer with a number and all before it
     * on its stream, at a position or, with UL_PLAN_NONE, between two. */
    void (*put_transfer)(struct ul_emitter *emitter, uint32_t position);
    void (*put_wait)(struct ul_emitter *emitter, uint32_t position, uint32_t number);
    /* At a position, waits for all steps on another stream; `joins`: there are some. */
    void (*put_join)(struct ul_emitter *emitter, uint32_t position, bool joins);
    /* Opens the block of a branch. */
    void (*put_branch)(struct ul_emitter *emitter, uint32_t region, uint32_t position);
    /* The address of a buffer of the caller's, as unsigned char *. */
    void (*put_buffer)(struct ul_emitter *emitter, struct ul_emit_place place);
    /* Behind the table of calls, where there are any: the libraries that are set up for them. */
    void (*put_libraries)(struct ul_emitter *emitter);
    /* The part of the constant description that runs the program: fields of struct ul_model. */
    void (*put_runner)(struct ul_emitter *emitter);
    const char *handle; /* what functions of a model take first, as C declares it */
    /* The call that runs an entry of a model with inputs `from`, and outputs `to` or NULL. */
    void (*put_entry)(struct ul_emitter *emitter, const char *model, const char *entry,
                      const char *to);
    struct ul_emit_build (*build)(const struct ul_emitter *emitter);
};

/* Kernels that are one launch, by their numbers. */
struct ul_emit_joint {
    uint32_t count, kernels[UL_PROGRAM_JOINED];
};

/* A set, in the order in which names were added. */
struct ul_emit_names {
    const char **names;
    uint32_t count, capacity;
};

/* What a header declares: the program, which begins and ends, or a root of it, which runs. Where
 * there is one root, one header declares both. */
enum ul_emit_part { UL_EMIT_PROGRAM = 1, UL_EMIT_ROOT = 2, UL_EMIT_BOTH = 3 };

struct ul_emitter {
    struct ul_arena *arena;
    const struct ul_program *program;
    const struct ul_plan *plan;
    const struct ul_emit_options *options;
    struct ul_diag *diag;
    const struct ul_emit_language *language;
    struct ul_text *text;
    struct ul_emit_names *included; /* names of the runtime in the text */
    uint64_t *scratch_offsets;      /* by position */
    uint32_t *scratch_slots;        /* likewise: 1 + its slot, as in struct ul_emit_place */
    ul_block_id root;               /* that is being written */
    enum ul_emit_part part;         /* the part of a header or a definition */
    bool **entry_runs;              /* by entry and position */
    uint32_t **joined;              /* likewise: ul_program_find_joined */
    struct ul_emit_joint *joints;   /* distinct, in the order of their finding */
    uint32_t joint_count, joint_capacity;
    struct ul_emit_transfer *transfers; /* by position, for transfers */
    uint32_t transfer_count;
    uint32_t *call_numbers; /* per call of the program: its place in the table, or UL_NONE */
    uint32_t *calls;        /* by place in the table: those of one library follow one another */
    uint32_t call_count;    /* that the plan runs */
    bool *runs_kernel;      /* per kernel of the program: the plan does */
    uint32_t weight_count;  /* scratch of counting */
    const struct ul_pack **packs; /* distinct layouts of weights */
    uint32_t pack_count, pack_capacity;
    uint32_t layout_number_count; /* of slots and rows, where offsets follow from sizes */
    uint32_t edge_number_count;   /* of a program for a range of sizes, set by its tables */
    /* of the weights, set by ul_emit_weights */
    uint64_t payload_bytes;
    uint64_t payload_hash;
};

/* emit.c */

/* How offsets follow from sizes; NULL: they do not. */
const struct ul_program_layout *ul_emit_layout(const struct ul_emitter *emitter);
/* The slot of a range, or UL_PLAN_NONE. */
uint32_t ul_emit_slot(const struct ul_emitter *emitter, const struct ul_plan_range *range);
/* Where a place of the program is at `position`. */
struct ul_emit_place ul_emit_place(const struct ul_emitter *emitter, uint32_t place,
                                   uint32_t position);
/* Where a place is between two runs: a persistent value may be offloaded then. */
struct ul_emit_place ul_emit_home(const struct ul_emitter *emitter, uint32_t place);
/* Where a base value is. */
struct ul_emit_place ul_emit_value_place(const struct ul_emitter *emitter, ul_value_id base,
                                         uint32_t position);
/* "UL_SPACE_ARENA" ... as in runtime/lib/ul_model.h. */
const char *ul_emit_space_name(enum ul_emit_space space);
/* A C string literal; names are untrusted. */
void ul_emit_string(struct ul_text *text, const char *string);

/* The address at `position` as an expression. */
void ul_emit_address(struct ul_emitter *emitter, const struct ul_program_address *address,
                     uint32_t position);

/* Writes the address of the scratch of a position. */
void ul_emit_scratch(struct ul_emitter *emitter, uint32_t position);

/* Finds the steps of each entry point; call it before anything is emitted. */
void ul_emit_find_entries(struct ul_emitter *emitter);
/* The positions [*begin, *end) among which an entry point's steps are in the plan. */
void ul_emit_entry_span(const struct ul_emitter *emitter, uint32_t entry, uint32_t *begin,
                        uint32_t *end);
/* The body of an entry point's function: steps in the plan's order, with loops and branches around
 * them. */
void ul_emit_steps(struct ul_emitter *emitter, uint32_t entry);
/* The step at a position, in words and in code. */
void ul_emit_step(struct ul_emitter *emitter, uint32_t position, uint32_t indent);
/* The positions of the steps that are one launch from `position` on; returns their number. */
uint32_t ul_emit_joined(const struct ul_emitter *emitter, uint32_t entry, uint32_t position,
                        uint32_t positions[UL_PROGRAM_JOINED]);
/* The number of these among the distinct joints; it is added if it is new. */
uint32_t ul_emit_joint(struct ul_emitter *emitter, const uint32_t *positions, uint32_t count);
/* Finds the scratch of each position in the plan's ranges; call it before anything is emitted. */
void ul_emit_find_scratch(struct ul_emitter *emitter);
/* The block of the root that is being written, and the prefix of its names in C. */
const struct ul_block *ul_emit_root(const struct ul_emitter *emitter);
const char *ul_emit_root_prefix(const struct ul_emitter *emitter);
/* The constant description of the root; that of the first root while the program is written. */
const char *ul_emit_root_model(const struct ul_emitter *emitter);
/* The description that a run goes by: in a program of several pieces, the one that ul_model_at
 * makes. */
const char *ul_emit_run_model(const struct ul_emitter *emitter);
/* The models that callers see: each root, or, where roots are pieces of a range of sizes, one,
 * which is described as the last root is. */
uint32_t ul_emit_model_count(const struct ul_emitter *emitter);
/* The root of the first one, which is the emitter's but for the time of such a call. */
uint32_t ul_emit_first_model(const struct ul_emitter *emitter);
/* Calls `put` for each. */
void ul_emit_each_model(struct ul_emitter *emitter, void (*put)(struct ul_emitter *));
/* The entry of the root that is being written, such as UL_PROGRAM_RUN. */
uint32_t ul_emit_root_entry(const struct ul_emitter *emitter, uint32_t entry);
/* The first and the last position of the root's steps. */
void ul_emit_root_span(const struct ul_emitter *emitter, uint32_t *first, uint32_t *last);
/* The name of an array or function of which each root has one. */
const char *ul_emit_root_array(const struct ul_emitter *emitter, const char *name);
/* The prefix in capitals. */
const char *ul_emit_upper(struct ul_arena *arena, const char *prefix);
/* model.h up to its functions; ul_emit_header_end writes what follows them. */
void ul_emit_header_begin(struct ul_emitter *emitter, const char *purpose);
/* model.h's declaration of <prefix>_set_up, or nothing where no input is kept. */
const char *ul_emit_set_up_text(struct ul_emitter *emitter);
void ul_emit_main_c(struct ul_emitter *emitter);

/* emit_offload.c */
/* Finds what each transfer moves, and when it is done; call it before anything is emitted. */
void ul_emit_find_transfers(struct ul_emitter *emitter);
/* The transfer or wait at a position, as the entry point runs it. */
void ul_emit_transfer(struct ul_emitter *emitter, uint32_t entry, uint32_t position);
/* Waits for what is still under way at the end of an entry point. */
void ul_emit_last_waits(struct ul_emitter *emitter, uint32_t entry);
/* "save x #7", unique. */
const char *ul_emit_transfer_name(const struct ul_emitter *emitter, uint32_t position);

/* emit_calls.c: the tables of a program's library calls, and helpers of targets for calls. */
/* Numbers the calls that the plan runs, and marks the kernels; call it before anything is
 * emitted. */
void ul_emit_find_functions(struct ul_emitter *emitter);
/* The number in the table of a step's call, as the plan runs it. */
uint32_t ul_emit_call_number(const struct ul_emitter *emitter, const struct ul_program_step *step);
void ul_emit_calls(struct ul_emitter *emitter);
/* Some call is the library's. */
bool ul_emit_uses(const struct ul_emitter *emitter, const struct ul_target_library *library);
/* The same, and the program's start sets the library up. */
bool ul_emit_sets_up(const struct ul_emitter *emitter, const struct ul_target_library *library);
/* The place of such a library in the program's table of them; NULL: the number of them all. */
uint32_t ul_emit_library_number(const struct ul_emitter *emitter,
                                const struct ul_target_library *library);
/* The function that packs weights as their calls want them. */
const char *ul_emit_packer(const struct ul_emitter *emitter);
/* Whether the program is made of this source of the runtime, which is in one of the target's rooms:
 * it belongs to no library, or a call wants it. Headers come as they are included. */
bool ul_emit_takes_file(const struct ul_emitter *emitter, const char *name);
/* Sources that belong to libraries and that calls want, with a blank in front of each: those that
 * are compiled for the processor, or the others. */
const char *ul_emit_library_files(const struct ul_emitter *emitter, bool native);
/* Some arguments of a step that is a call, as an array `args`; and its scratch, or NULL. */
void ul_emit_call_args(struct ul_emitter *emitter, const struct ul_program_step *step,
                       uint32_t count, uint32_t position);
void ul_emit_call_scratch(struct ul_emitter *emitter, const struct ul_program_step *step,
                          uint32_t position);
/* The number of a layout in the table `packs`. */
uint32_t ul_emit_pack_index(struct ul_emitter *emitter, const struct ul_pack *pack);

/* emit_training.c: the description of training. */
void ul_emit_training(struct ul_emitter *emitter);
/* model.h's declarations of its training, or nothing where it does not train. */
const char *ul_emit_training_text(struct ul_emitter *emitter);
/* Their definitions, likewise. */
void ul_emit_training_functions(struct ul_emitter *emitter);

/* emit_library.c: the functions that describe a library, and how callers in any language begin and
 * end. */
/* The end of model.h, with their declarations. */
void ul_emit_header_end(struct ul_emitter *emitter);
void ul_emit_library_c(struct ul_emitter *emitter);
/* Whether the file of weights is part of the library. */
bool ul_emit_has_weights_inside(const struct ul_emitter *emitter);
/* Whether there are more read-only weights than code around them could reach: then they come after
 * everything else, and code finds them by the pointer PREFIX_rom_begin. */
bool ul_emit_is_rom_far(const struct ul_emitter *emitter);
void ul_emit_weights_s(struct ul_emitter *emitter);

/* emit_tables.c: the constant description that runtime/lib/ul_model.h defines. */
void ul_emit_tables(struct ul_emitter *emitter);

/* emit_run.c */
/* The functions by which a root runs. */
void ul_emit_root_functions(struct ul_emitter *emitter);
/* What programs for a range of sizes have; nothing is written where sizes are fixed. */
/* The struct of sizes, for the header; and the parameter of a run. */
void ul_emit_sizes_struct(struct ul_emitter *emitter);
const char *ul_emit_sizes_parameter(struct ul_emitter *emitter);
/* The sizes as variables n0, n1 ... of a function that has `run`. */
void ul_emit_sizes_locals(struct ul_emitter *emitter);
/* Tables, and the fields of the model that point to them. */
void ul_emit_sizes_tables(struct ul_emitter *emitter);
void ul_emit_sizes_fields(struct ul_emitter *emitter, bool is_piece);

/* emit_layout.c */
/* Tables for the run, `layout` among them; nothing where offsets are fixed. */
void ul_emit_layout_tables(struct ul_emitter *emitter);

/* emit_build.c: how a library alone is built and installed. */
void ul_emit_cmakelists(struct ul_emitter *emitter);
void ul_emit_cmake_config(struct ul_emitter *emitter);
void ul_emit_pkg_config(struct ul_emitter *emitter);
/* The last rules of a Makefile: `make install` of a library, and `make clean`. */
void ul_emit_last_rules(struct ul_emitter *emitter);

/* emit_headers.c */
/* The lines by which a source, in C or in CUDA C++, includes the headers whose names its body
 * has. */
void ul_emit_includes(struct ul_emitter *emitter, const char *body, bool is_device);
/* The body of a source as a text of its own, since the head depends on it; `put` writes it. */
const char *ul_emit_body(struct ul_emitter *emitter, void (*put)(struct ul_emitter *));

/* emit_files.c */
/* Finds the sources of the runtime; call it before anything is emitted. */
enum ul_status ul_emit_find_sources(struct ul_emitter *emitter) UL_MUST_CHECK;
/* Those with the ending, a blank before each. */
const char *ul_emit_sources(const struct ul_emitter *emitter, const char *ending);
/* The name of the model's files before the dot. */
const char *ul_emit_stem(const struct ul_emitter *emitter);
/* Adds the files of the runtime that a source includes. */
void ul_emit_add_includes(struct ul_emitter *emitter, const char *source, size_t length);
enum ul_status ul_emit_weights(struct ul_emitter *emitter, const char *directory) UL_MUST_CHECK;
enum ul_status ul_emit_runtime(struct ul_emitter *emitter, const char *directory) UL_MUST_CHECK;
/* Calls `visit` for every place of a weight that the plan has, in order; a packed weight is no
 * splat, whatever its elements are. */
void ul_emit_each_weight(struct ul_emitter *emitter, bool splat,
                         void (*visit)(struct ul_emitter *, uint32_t place));

/* emit_folder.c */
/* Writes the folder: weights, the language's files, the runtime's. */
enum ul_status ul_emit_folder(struct ul_arena *arena, const struct ul_emit_language *language,
                              const struct ul_program *program, const struct ul_plan *plan,
                              const struct ul_emit_options *options, const char *directory,
                              struct ul_diag *diag) UL_MUST_CHECK;

#endif
