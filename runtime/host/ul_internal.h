/* SPDX-License-Identifier: 0BSD */
/*
 * What the files of the command line share. Not for users of the library form.
 *
 * Ownership: a session owns the arena and the buffers that stand in for a caller's; everything else
 * that a function allocates it frees before it returns. Nothing is allocated while a model runs.
 * Errors: a function that can fail returns an exit code, 0 for success, after one line on stderr
 * that names the file and the remedy. There is no other channel, and no exit().
 * Strings that come from files or models are untrusted: they are printed through ul_shown.
 */
#ifndef UL_INTERNAL_H
#define UL_INTERNAL_H

#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#ifndef _FILE_OFFSET_BITS
#define _FILE_OFFSET_BITS 64
#endif

#include "ul_device.h"
#include "ul_model.h"
#include "ul_program.h"

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __GNUC__
#define UL_RT_PRINTF(text, first) __attribute__((format(printf, text, first)))
#else
#define UL_RT_PRINTF(text, first)
#endif

#define UL_RANK_LIMIT 32        /* dims of a tensor in a file */
#define UL_SHOWN_BYTES 256      /* an untrusted string, made printable */
#define UL_SIZE_TEXT_BYTES 64   /* for ul_size_text */
#define UL_SHAPE_TEXT_BYTES 256 /* "float32 [1,3,224,224]" */
#define UL_PATH_BYTES 4096

enum ul_exit {
    UL_EXIT_OK = 0,
    UL_EXIT_USAGE = 1,
    UL_EXIT_INVALID = 2,
    UL_EXIT_UNSUPPORTED = 3,
    UL_EXIT_NO_FIT = 4,
    UL_EXIT_IO = 5,
    UL_EXIT_VERIFY = 6,
    UL_EXIT_INTERNAL = 70
};

struct ul_run_options;
struct ul_sizes;
struct ul_store;

struct ul_session {
    const char *program; /* how it was called, for messages */
    const struct ul_model *model;
    const struct ul_run_options *options;
    unsigned char *block; /* the one allocation: margin, arena, margin */
    unsigned char *arena;
    uint64_t mapped_bytes; /* of the block, where it has pages of its own; else it is on the heap */
    uint64_t margin_bytes; /* 0 except in the modes that look for stray writes */
    void **inputs;         /* NULL for a tensor that is in the arena, else a buffer */
    void **outputs;
    /* On a device there is no block. Every tensor has a buffer, and the caller's tensors also have
       device memory instead of the caller's. */
    struct ul_context *context;
    void **device_inputs; /* what a run takes: that, or the buffer */
    void **device_outputs;
    uint64_t fault_count;   /* runs that met a value out of bounds */
    struct ul_sizes *sizes; /* of the next run; NULL: the model's are fixed */
    struct ul_store *store; /* what values are offloaded to; NULL: none are, or a device has it */
    bool ready;             /* the arena holds a model that is set up */
    bool has_line;          /* a terminal shows a line of progress, whose place messages take */
    uint64_t library_bytes; /* the most that the library took for itself at a set-up, and kept */
};

/* ---- ul_sizes.c: the sizes of a run, which its inputs or options say. Until then they are the
   largest; s->model describes the model at these sizes. ---- */
int ul_sizes_open(struct ul_session *s);
void ul_sizes_close(struct ul_session *s);
/* The description that was compiled, which stays while s->model follows sizes. */
const struct ul_model *ul_sizes_model(const struct ul_session *s);
/* All but those of options are unknown again. */
void ul_sizes_forget(struct ul_session *s);
/* Says that all sizes have been learnt: a file that comes later may say no others by which the
   model would take its inputs elsewhere. */
void ul_sizes_settle(struct ul_session *s);
/* Whether the next run has the largest sizes of its piece, as all runs of other models have. */
bool ul_sizes_are_largest(const struct ul_session *s);
/* Takes sizes from the dimensions that a file has for an input; an error where two inputs, or an
   input and an option, contradict each other, or one is out of its range. */
int ul_sizes_learn(const struct ul_session *s, const char *file, const struct ul_rt_tensor *tensor,
                   uint32_t rank, const int64_t *dims);

/* ---- ul_error.c ---- */
int ul_error(const struct ul_session *s, int exit_code, const char *format, ...) UL_RT_PRINTF(3, 4);
int ul_out_of_memory(const struct ul_session *s, uint64_t size_bytes);
/* A copy of an untrusted string with control and non-ASCII bytes escaped; long ones are cut. */
const char *ul_shown(char buffer[UL_SHOWN_BYTES], const char *text);
/* "12.34 MiB = 12939428 bytes", below 1 KiB "17 bytes": how texts give sizes. */
const char *ul_size_text(char buffer[UL_SIZE_TEXT_BYTES], uint64_t bytes);
/* "542", "4.2", "0.042": how many a second, with at least two digits. */
const char *ul_speed_text(char buffer[UL_SIZE_TEXT_BYTES], double per_second);

/* ---- ul_types.c ---- */
struct ul_type_info {
    enum ul_rt_type type;
    char kind;        /* 'f' float, 'i' signed, 'u' unsigned, 'b' bool */
    uint32_t bytes;   /* of one element, in the arena as in .npy */
    uint32_t bits;    /* how many bits it uses, from the low end */
    const char *name; /* numpy's name */
    const char *npy;  /* the type code of .npy, without byte order */
};

const struct ul_type_info *ul_type_find(enum ul_rt_type type); /* NULL for an unknown number */
/* How the model's f32 is stored and multiplied: "f32 stored as bf16". */
const char *ul_precision_text(const struct ul_model *model);
uint64_t ul_element_count(uint32_t rank, const int64_t *dims);
/* "float32 [1,3]" */
const char *ul_shape_text(char buffer[UL_SHAPE_TEXT_BYTES], enum ul_rt_type type, uint32_t rank,
                          const int64_t *dims);
/* One element as a double; 64-bit integers lose their low bits. */
double ul_element_get(enum ul_rt_type type, const void *data, uint64_t element);
/* Whether all elements of a float type are numbers, and finite. */
bool ul_all_finite(enum ul_rt_type type, const void *data, uint64_t count);
/* One element in decimal. */
const char *ul_element_text(char buffer[UL_SHOWN_BYTES], enum ul_rt_type type, const void *data,
                            uint64_t element);
/* One integer, of an integer type or bool, put into a place of another such type; false where it
   does not fit. A place of a float type takes the nearest float. */
bool ul_integer_get(enum ul_rt_type type, const void *data, uint64_t element, int64_t *value);
bool ul_integer_put(enum ul_rt_type type, void *data, uint64_t element, int64_t value);
/* Makes every byte of bool 0 or 1, and every 4-bit element a number in its range. */
void ul_normalise(const struct ul_rt_tensor *tensor, void *data);
/* Floats uniform in [-1, 1), integers in 0..9, bool 0 or 1; a function of seed, stream, element. */
void ul_fill_random(const struct ul_rt_tensor *tensor, void *data, uint64_t seed, uint32_t stream);

/* ---- ul_file.c ---- */
/* A part of an open file that is read from front to back. */
struct ul_reader {
    FILE *file;
    const char *name;
    uint64_t left_bytes; /* UINT64_MAX when not known, as on a pipe */
};

/* A file that appears under its name only when it is complete. SIGINT and SIGTERM wait until then,
   so that nothing half-written is left. */
struct ul_writer {
    FILE *file;
    char path[UL_PATH_BYTES];
    char temporary[UL_PATH_BYTES]; /* empty when written in place: signals do not wait */
    sigset_t signals;              /* the signals that were blocked before */
    bool durable;                  /* set it before closing: the file is on the disk before it is
                                      seen */
};

int ul_reader_open(const struct ul_session *s, struct ul_reader *reader, const char *path);
void ul_reader_close(struct ul_reader *reader);
bool ul_reader_get(struct ul_reader *reader, void *target, uint64_t size_bytes);
bool ul_reader_seek(struct ul_reader *reader, uint64_t offset_bytes);
/* Reads all that is left, into memory that the caller frees. */
int ul_reader_all(const struct ul_session *s, struct ul_reader *reader, unsigned char **bytes,
                  uint64_t *size_bytes);
/* Where results for standard output go. */
FILE *ul_results(const struct ul_session *s);
int ul_writer_open(const struct ul_session *s, struct ul_writer *writer, const char *path);
/* Completes the file, or removes what there is of it when `good` is false or writing failed. */
int ul_writer_close(const struct ul_session *s, struct ul_writer *writer, bool good);

/* ---- ul_npy.c ---- */
/* The header of a .npy file, checked for itself but not against anything. */
struct ul_npy {
    char descr[16]; /* "<f4" */
    bool fortran;
    bool has_descr, has_fortran, has_shape;
    uint32_t rank;
    int64_t dims[UL_RANK_LIMIT];
};

/* The elements follow where the reader then is. */
int ul_npy_read_header(const struct ul_session *s, struct ul_reader *reader, struct ul_npy *header);
/* Whether its elements are of that type, apart from the order of bytes. */
bool ul_npy_holds(const struct ul_npy *header, enum ul_rt_type type);
bool ul_npy_is_swapped(const struct ul_npy *header); /* against this machine's order */
/* numpy's name for their type, or what the file says. */
const char *ul_npy_type_name(const struct ul_npy *header, char buffer[UL_SHOWN_BYTES]);
/* Reads into `data` (size_bytes of the tensor) after checking type and shape; NULL: only learns the
   sizes of a run. `what` names the tensor in messages: "input". */
int ul_npy_read(const struct ul_session *s, struct ul_reader *reader, const char *what,
                const struct ul_rt_tensor *tensor, void *data);
/* The header's bytes, a multiple of 64; the elements follow as they are in the arena. */
size_t ul_npy_header(const struct ul_rt_tensor *tensor, char *buffer, size_t buffer_bytes);
#define UL_NPY_HEADER_BYTES 1024
int ul_npy_write(const struct ul_session *s, const char *path, const struct ul_rt_tensor *tensor,
                 const void *data);

/* ---- ul_crc.c ---- */
struct ul_crc {
    uint32_t state;
    uint32_t tables[4][256];
};

void ul_crc_init(struct ul_crc *crc);
void ul_crc_add(struct ul_crc *crc, const void *bytes, size_t size_bytes);
uint32_t ul_crc_get(const struct ul_crc *crc);

/* ---- ul_npz.c ---- */
/* Reads entry `key`, or, when key is NULL, the one named like the tensor, or the only one. */
int ul_npz_read(const struct ul_session *s, struct ul_reader *reader, const char *key,
                const char *what, const struct ul_rt_tensor *tensor, void *data);
/* Calls visit for the name of each entry, without its ".npy", until it returns another code. Names
   longer than a page do not count. */
typedef int ul_npz_name(void *context, const char *name);
int ul_npz_visit(const struct ul_session *s, struct ul_reader *reader, ul_npz_name *visit,
                 void *context);

/* ---- ul_npz_write.c ---- */
/* A member of an archive. Where `data` is NULL, `read` gets its bytes, piece by piece and more than
   once; it returns an exit code. */
struct ul_npz_member {
    struct ul_rt_tensor tensor;
    const void *data;
    int (*read)(void *context, uint64_t offset_bytes, void *target, uint64_t size_bytes);
    void *context;
    uint32_t crc; /* ul_npz_write sets these */
    uint64_t size_bytes;
    uint64_t offset_bytes;
};

/* `durable`: the file is on the disk before it is seen. */
int ul_npz_write(const struct ul_session *s, const char *path, struct ul_npz_member *members,
                 uint32_t count, bool durable);

/* ---- ul_pb.c ---- */
/* A TensorProto, still encoded; it points into the bytes that it was parsed from. */
struct ul_pb {
    const unsigned char *bytes;
    uint64_t size_bytes;
    const unsigned char *name;
    uint64_t name_bytes;
    uint64_t type;
    uint32_t rank;
    int64_t dims[UL_RANK_LIMIT];
    const unsigned char *raw; /* NULL: typed fields */
    uint64_t raw_bytes;
};

int ul_pb_parse(const struct ul_session *s, const char *file, const unsigned char *bytes,
                uint64_t size_bytes, struct ul_pb *pb);
int ul_pb_decode(const struct ul_session *s, const char *file, const struct ul_pb *pb,
                 const char *what, const struct ul_rt_tensor *tensor, void *data);

/* ---- ul_options.c ---- */
enum ul_mode {
    UL_MODE_RUN,
    UL_MODE_TEST_DATA,
    UL_MODE_BENCH,
    UL_MODE_MEMORY,
    UL_MODE_GUARD,
    UL_MODE_TRAIN,
    UL_MODE_VERSION,
    UL_MODE_HELP
};

/* argv[at] is "NAME=FILE" for a tensor. */
struct ul_assignment {
    const char *text;
    const char *file; /* after the '=' */
    uint32_t tensor;
};

struct ul_train_options {
    const char *given; /* the last of these options that was given; NULL: none */
    const char *data;
    const char *labels;
    const char *val_data;
    const char *val_labels;
    const char *metrics;
    const char *init;
    const char *save;
    const char *resume;
    uint64_t epochs; /* 0: not given; likewise */
    uint64_t steps;
    uint64_t seed;        /* UINT64_MAX: not given */
    double learning_rate; /* below 0: not given */
    bool in_order;
    bool pad;
};

struct ul_run_options {
    enum ul_mode mode;
    struct ul_train_options train;
    struct ul_assignment *inputs;
    uint32_t input_count;
    struct ul_assignment *val_inputs;
    uint32_t val_input_count;
    struct ul_assignment *outputs;
    uint32_t output_count;
    const char **sizes; /* "NAME=N" */
    uint32_t size_count;
    bool takes_stdout; /* something that is asked for is written there */
    FILE *results;     /* standard output without what libraries print; NULL: it is stdout */
    const char *output_dir;
    const char *output_npz;
    const char *test_data;
    const char *weights;
    const char *offload; /* a file, or a folder for one; NULL: as compiled */
    const char *json;
    uint32_t threads;    /* 0: as many as the environment and the plan allow */
    uint32_t device;     /* 1 + its number; 0: CUDA's first */
    const char *tune;    /* a file to write the libraries' choices to */
    const char *choices; /* a file of choices to read */
    uint64_t repeat;     /* runs, of a plain run */
    bool random;
    uint64_t seed;
    bool print;
    bool profile;
    bool norm;
    const char *norm_limits; /* "0.1,0": for each output, the last one for the rest; NULL: the
                                program's */
    double step_limit;       /* share of an output's integers that may be `steps` away; 0: none */
    uint64_t steps;
    double rtol;
    double atol;
    double warmup_seconds;
    double duration_seconds;
    uint64_t iterations;
};

int ul_options_parse(const struct ul_session *s, struct ul_run_options *options, int argc,
                     char **argv);
void ul_options_done(struct ul_run_options *options);
void ul_options_help(const struct ul_session *s, FILE *out);

/* ---- ul_pages.c ---- */
/* Gives back the pages of code and constants, of this program and its libraries, that are resident
   now, and free pages of the heap; what is used again comes back by itself. */
void ul_pages_release(void);
/* Does so where making one more primitive might take more than the plan says. */
void ul_pages_bound(const struct ul_library *library);
/* Resident bytes by where they come from; all 0 where the kernel does not say. */
struct ul_resident {
    uint64_t peak_bytes; /* the most so far of a process: of this program alone, where getrusage
                            would begin with the peak of whoever started it */
    uint64_t anonymous_bytes;
    uint64_t file_bytes; /* pages that are as in their file */
};
struct ul_resident ul_pages_resident(void); /* of the process */
/* Counts the pages that the bytes touch; a page between two blocks counts for both. */
struct ul_resident ul_pages_of(const void *bytes, uint64_t size_bytes);

/* ---- ul_weights.c ---- */
struct ul_weights_file {
    int descriptor;
    bool pages; /* the arena consists of whole pages of its own */
    int error;  /* errno of the first read that failed; 0 with a short read */
    char path[UL_PATH_BYTES];
    struct ul_weights_source source;
};

/* --weights FILE, else what is appended to the program, else PROGRAM.weights beside it. */
int ul_weights_open(const struct ul_session *s, struct ul_weights_file *file);
void ul_weights_close(struct ul_weights_file *file);

/* ---- ul_offload.c ---- */
/* Opens memory, or a file without a name, of exactly the planned bytes, and starts a thread that
   moves values to it and back. UL_EXIT_IO where the file, or the room for it, cannot be had. Where
   a model offloads nothing there is nothing to open. */
int ul_store_open(struct ul_session *s);
void ul_store_close(struct ul_session *s);
/* For ul_offload_attach; NULL: there is none. */
const struct ul_offload *ul_store_offload(const struct ul_session *s);
/* The memory; NULL: it is a file. With --guard it is memory, and transfers are done as late as
   possible: when they are waited for. */
unsigned char *ul_store_memory(const struct ul_session *s);
uint64_t ul_store_bytes(const struct ul_session *s); /* how many there are */
/* One line for a transfer that failed, and UL_EXIT_IO. */
int ul_store_report(const struct ul_session *s);
/* When the transfer of that number was last made, by ul_now. false where nobody looked: only
   --bench --profile does. */
struct ul_span {
    double begin, end;
};
bool ul_store_span(const struct ul_session *s, uint64_t number, struct ul_span *span);

/* ---- ul_report.c ---- */
/* Reports a failure to set up or to run, with its numbers. file: where weights came from, or
 * NULL. */
int ul_report_failure(const struct ul_session *s, const struct ul_weights_file *file,
                      const struct ul_failure *failure);
/* Reports which value of the data was out of bounds. */
int ul_report_fault(const struct ul_session *s, const struct ul_failure *failure);

/* ---- ul_session_device.c: the parts of a session whose model runs on a device ---- */
/* Opens the context with its arena, and the buffers; the weights are loaded after that. */
int ul_session_device_open(struct ul_session *s, uint64_t margin_bytes);
void ul_session_device_close(struct ul_session *s);
int ul_session_device_set_up(struct ul_session *s);
enum ul_result ul_session_device_run(struct ul_session *s, uint32_t entry, ul_step_hook *hook,
                                     void *context, struct ul_failure *failure);
/* A run whose steps are timed by the device. */
int ul_session_device_profile(struct ul_session *s, double *step_seconds);
/* Fetches an output that stands in for a caller's from the device. */
int ul_session_device_fetch(const struct ul_session *s, uint32_t output);
int ul_session_device_store(const struct ul_session *s, uint32_t output);
/* Bytes of the arena, with offsets from its start; margins have offsets outside of it. */
int ul_session_device_read(const struct ul_session *s, int64_t offset_bytes, void *target,
                           uint64_t size_bytes);
int ul_session_device_fill(const struct ul_session *s, int64_t offset_bytes, unsigned char value,
                           uint64_t size_bytes);
/* Exchanges the bits that are 1 in `pattern`. */
int ul_session_device_exchange(const struct ul_session *s, int64_t offset_bytes,
                               unsigned char pattern, uint64_t size_bytes);

/* ---- ul_session.c ---- */
/* Gets the arena, loads the weights, and makes it ready, with margin_bytes of room on both
 * sides. */
int ul_session_open(struct ul_session *s, uint64_t margin_bytes);
/* Fills the arena and its margins, and sets the model up again. */
int ul_session_reload(struct ul_session *s, unsigned char fill);
/* The same where runs change weights: they become those of the file again. */
int ul_session_renew(struct ul_session *s);
void ul_session_close(struct ul_session *s);
/* Where an input or output is now: in the arena or in a buffer of the session. */
void *ul_session_input(const struct ul_session *s, uint32_t index);
void *ul_session_output(const struct ul_session *s, uint32_t index);
/* Whether inputs or weights are overwritten where they are, so that they go on from run to run. */
bool ul_session_has_state(const struct ul_session *s);
/* Gives such inputs what is in their places on the host; before the first run, and to begin
 * anew. */
int ul_session_set_up(struct ul_session *s);
/* Runs the entry point of that number on what is in the inputs' places. A data fault gives exit
   code 2, except in the modes that choose their own inputs, where it is only counted. */
int ul_session_enter(struct ul_session *s, uint32_t entry, ul_step_hook *hook, void *context);
int ul_session_run(struct ul_session *s, ul_step_hook *hook, void *context);

/* ---- ul_inputs.c ---- */
/* Fills inputs from the options; those that are not given are random when allowed. */
int ul_inputs_fill(struct ul_session *s, bool random_rest);
/* Copies of all inputs, for what runs more than once: save once, restore before each, forget at the
   end. Large ones are in a file that has no name: running often takes no more memory than running
   once. */
struct ul_saved {
    unsigned char *bytes; /* or NULL: */
    FILE *file;
    uint64_t size_bytes;
};
int ul_inputs_save(const struct ul_session *s, struct ul_saved *saved);
/* `state`: also those that go on from run to run. */
void ul_inputs_restore(const struct ul_session *s, const struct ul_saved *saved, bool state);
void ul_inputs_forget(struct ul_saved *saved);

/* ---- ul_outputs.c ---- */
int ul_outputs_write(const struct ul_session *s);

/* ---- one file per mode ---- */
void ul_print_outputs(const struct ul_session *s, FILE *out);
int ul_test_data(struct ul_session *s);
int ul_bench(struct ul_session *s);
double ul_now(void); /* seconds of a clock that only goes forward */
int ul_memory(struct ul_session *s);
int ul_guard(struct ul_session *s);
int ul_train(struct ul_session *s);

/* ---- ul_views.c ---- */
/* Calls visit for each contiguous piece of what a view covers. */
typedef void ul_visit(void *context, uint64_t offset_bytes, uint64_t size_bytes);
void ul_view_visit(const struct ul_model *model, const struct ul_rt_view *view, ul_visit *visit,
                   void *context);
/* From its first byte to after its last one; 0 and 0 where it has none. */
void ul_view_extent(const struct ul_model *model, const struct ul_rt_view *view, uint64_t *begin,
                    uint64_t *end);

/* ---- ul_json.c ---- */
/* A JSON text, indented; keys in the order of the calls. Numbers that JSON lacks become null. */
struct ul_json {
    FILE *out;
    int depth;
    bool first; /* nothing is in this object or array yet */
};

void ul_json_open(struct ul_json *json, const char *key, char bracket);
void ul_json_close(struct ul_json *json, char bracket);
void ul_json_text(struct ul_json *json, const char *key, const char *value);
void ul_json_count(struct ul_json *json, const char *key, uint64_t value);
void ul_json_number(struct ul_json *json, const char *key, double value);
void ul_json_bool(struct ul_json *json, const char *key, bool value);
/* Writes a file through `body`; "-" is standard output. */
typedef void ul_json_body(struct ul_json *json, const void *context);
int ul_json_write(const struct ul_session *s, const char *path, ul_json_body *body,
                  const void *context);

/* ---- ul_device_memory.c ---- */
/* `asked_count` of its runs were those of --iterations. */
void ul_device_memory_print(const struct ul_device_memory *device, uint64_t asked_count);
/* Written as the object "device". */
void ul_device_memory_write(struct ul_json *json, const struct ul_device_memory *device);

#endif
