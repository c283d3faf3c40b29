/* SPDX-License-Identifier: Apache-2.0 */
/* Files of recorded data: which input or output each is for, and what it holds; files of something
 * else, cut after every byte, and with every bit flipped, get a message.
 *
 * usage: frontend_recorded       writes into a folder of its own, below the current one
 */
#define _POSIX_C_SOURCE 200809L
#include "frontend/frontend.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BYTES(text) text, sizeof(text) - 1
/* f32[2] = [1.0,2.0], and the scalar 3.0, as TensorProto, without a name. */
#define PAIR "\x08\x02\x10\x01\x4a\x08\x00\x00\x80\x3f\x00\x00\x00\x40"
#define SCALAR "\x10\x01\x4a\x04\x00\x00\x40\x40"
/* A SequenceProto "s" of tensors, and its head alone. */
#define HEAD "\x0a\x01s\x10\x01"
#define SEQUENCE HEAD "\x1a\x0e" PAIR "\x1a\x08" SCALAR

static const char folder[] = "recorded_data"; /* where ctest runs the test */
static const char *names[] = {"input_0.pb", "input_1.pb", "input_2.pb"};
static int failed;

static void expect(bool holds, const char *what)
{
    if (!holds) {
        printf("FAIL %s\n", what);
        failed = 1;
    }
}

static const char *path_of(struct ul_arena *arena, uint32_t number)
{
    return ul_arena_printf(arena, "%s/%s", folder, names[number]);
}

static void write_file(struct ul_arena *arena, uint32_t number, const void *data, size_t size)
{
    struct ul_diag diag = {0};
    if (ul_file_write(path_of(arena, number), data, size, &diag) != UL_OK) {
        fprintf(stderr, "%s\n", diag.text);
        exit(UL_IO);
    }
}

static void remove_files(struct ul_arena *arena)
{
    for (uint32_t i = 0; i < sizeof names / sizeof *names; i++)
        remove(path_of(arena, i));
}

/* Reads what the file holds, as an input of that kind. */
static enum ul_status read_as(struct ul_arena *arena, const char *kind, uint32_t *count,
                              struct ul_diag *diag)
{
    struct ul_recorded file = {.path = path_of(arena, 0), .kind = kind};
    const struct ul_tensor **tensors;
    return ul_recorded_read(arena, &file, &tensors, count, diag);
}

static void expect_message(struct ul_arena *arena, const char *kind, const void *data, size_t size,
                           const char *message)
{
    struct ul_diag diag = {0};
    uint32_t count;
    write_file(arena, 0, data, size);
    enum ul_status status = read_as(arena, kind, &count, &diag);
    bool is_said = status != UL_OK && diag.status == status &&
                   strstr(diag.text, names[0]) != NULL && strstr(diag.text, message) != NULL;
    expect(is_said, message);
    if (!is_said)
        printf("  but status %d: %s\n", (int)status, diag.text);
}

static void test_reading(struct ul_arena *arena)
{
    struct ul_recorded file = {.path = path_of(arena, 0), .kind = "sequence"};
    const struct ul_tensor **tensors;
    struct ul_diag diag = {0};
    uint32_t count = 0;
    write_file(arena, 0, BYTES(SEQUENCE));
    expect(ul_recorded_read(arena, &file, &tensors, &count, &diag) == UL_OK && count == 2,
           "a sequence has two tensors");
    expect(count == 2 && tensors[0]->type.rank == 1 && tensors[0]->type.dims[0] == 2 &&
               ul_tensor_get_float(tensors[0], 1) > 1.5 && tensors[1]->type.rank == 0 &&
               ul_tensor_get_float(tensors[1], 0) > 2.5,
           "they are a pair and a scalar");
    write_file(arena, 0, BYTES(HEAD));
    expect(read_as(arena, "sequence", &count, &diag) == UL_OK && count == 0, "one may be empty");
    write_file(arena, 0, BYTES(PAIR));
    expect(read_as(arena, "tensor", &count, &diag) == UL_OK && count == 1, "a tensor is one");
}

static void test_messages(struct ul_arena *arena)
{
    expect_message(arena, "tensor", BYTES(SEQUENCE), "holds a sequence or an optional");
    expect_message(arena, "sequence", BYTES(PAIR), "not a SequenceProto");
    expect_message(arena, "sequence", BYTES(SCALAR), "not a SequenceProto");
    expect_message(arena, "sequence", BYTES("\x0a\x01s\x10\x04\x32\x00"), "a sequence of maps");
    expect_message(arena, "sequence", BYTES("\x0a\x01s\x10\x7f"), "of nothing that is known");
    expect_message(arena, "sequence", BYTES(HEAD "\x1a\x02\x10\x01"), "tensor 0");
    expect_message(arena, "optional", BYTES(SEQUENCE), "holds an optional");
    expect_message(arena, "map", BYTES(SEQUENCE), "holds a map");
    size_t count = UL_LIMIT_SEQUENCE + 1, item = sizeof "\x1a\x08" SCALAR - 1;
    char *many = malloc(count * item);
    for (size_t i = 0; many != NULL && i < count; i++)
        memcpy(many + i * item, "\x1a\x08" SCALAR, item);
    if (many != NULL)
        expect_message(arena, "sequence", many, count * item, "more than 4096 tensors");
    free(many);
}

/* Each damaged file is read, or refused with a message. */
static void test_damage(struct ul_arena *arena)
{
    char bytes[] = SEQUENCE;
    size_t size = sizeof bytes - 1;
    uint32_t count;
    for (size_t i = 0; i < 9 * size; i++) {
        struct ul_diag diag = {0};
        size_t at = i / 9, cut = i % 9 == 8 ? at : size;
        char flip = (char)(i % 9 == 8 ? 0 : 1 << i % 9);
        bytes[at] ^= flip;
        write_file(arena, 0, bytes, cut);
        bytes[at] ^= flip;
        for (int kind = 0; kind < 2; kind++) {
            diag = (struct ul_diag){0};
            enum ul_status status =
                read_as(arena, kind == 0 ? "sequence" : "tensor", &count, &diag);
            expect((status == UL_OK) == (diag.text[0] == '\0'), "a refusal has a message");
        }
    }
}

static uint32_t port_of(struct ul_arena *arena, const struct ul_model_port *ports, uint32_t count,
                        uint32_t number, const char **kind)
{
    struct ul_diag diag = {0};
    struct ul_recorded *files;
    uint32_t file_count;
    if (ul_recorded_list(arena, folder, "input", ports, count, &files, &file_count, &diag) !=
            UL_OK ||
        number >= file_count)
        return UL_LIMIT_VALUES;
    *kind = files[number].kind;
    return files[number].port;
}

/* A list of ports as inputs are, with sequences whole, and as outputs are, with their tensors. */
static void test_ports(struct ul_arena *arena)
{
    const struct ul_model_port whole[] = {{.name = "x", .kind = "tensor"},
                                          {.name = "s", .kind = "sequence"},
                                          {.name = "y", .kind = "tensor"}};
    const struct ul_model_port parts[] = {{.name = "x", .kind = "tensor"},
                                          {.name = "s[0]", .kind = "tensor", .sequence = "s"},
                                          {.name = "s[1]", .kind = "tensor", .sequence = "s"},
                                          {.name = "y", .kind = "tensor"}};
    const char *kind = "";
    remove_files(arena);
    write_file(arena, 0, BYTES(PAIR));
    write_file(arena, 1, BYTES("\x10\x01\x1a\x08" SCALAR));
    write_file(arena, 2, BYTES(PAIR));
    expect(port_of(arena, whole, 3, 1, &kind) == 1 && strcmp(kind, "sequence") == 0,
           "a file without a name is for the port of its number");
    expect(port_of(arena, parts, 4, 1, &kind) == 1 && strcmp(kind, "sequence") == 0 &&
               port_of(arena, parts, 4, 2, &kind) == 3 && strcmp(kind, "tensor") == 0,
           "a sequence has one number, and those behind it shift");
    expect(port_of(arena, parts, 1, 0, &kind) == UL_LIMIT_VALUES, "there may be too many files");
    write_file(arena, 0, BYTES("\x10\x01\x1a\x08" SCALAR));
    expect(port_of(arena, parts, 4, 0, &kind) == UL_LIMIT_VALUES,
           "a sequence is not in the place of a tensor");
    write_file(arena, 0, BYTES(SEQUENCE));
    write_file(arena, 1, BYTES(PAIR "\x42\x01y"));
    write_file(arena, 2, BYTES(PAIR "\x42\x01x"));
    expect(port_of(arena, parts, 4, 0, &kind) == 1 && strcmp(kind, "sequence") == 0 &&
               port_of(arena, parts, 4, 1, &kind) == 3 && port_of(arena, whole, 3, 2, &kind) == 0,
           "names count before numbers, be they of a tensor or of a sequence");
    expect(port_of(arena, &parts[3], 1, 0, &kind) == UL_NONE &&
               port_of(arena, &parts[3], 1, 1, &kind) == 0,
           "a file that no port wants is for none");
    write_file(arena, 0, BYTES(PAIR "\x42\x04s[1]"));
    write_file(arena, 1, BYTES(PAIR "\x42\x04s[0]"));
    expect(port_of(arena, &parts[1], 2, 0, &kind) == 1 && strcmp(kind, "tensor") == 0,
           "tensors of a sequence may have files of their own");
    write_file(arena, 0, BYTES(PAIR "\x42\x01s"));
    expect(port_of(arena, &whole[1], 1, 0, &kind) == 0 && strcmp(kind, "tensor") == 0,
           "a tensor may have the name of what is declared a sequence");
}

int main(void)
{
    struct ul_arena arena;
    ul_arena_init(&arena);
    if (mkdir(folder, 0777) != 0 && errno != EEXIST) {
        perror(folder);
        return UL_IO;
    }
    test_reading(&arena);
    test_messages(&arena);
    test_damage(&arena);
    test_ports(&arena);
    remove_files(&arena);
    rmdir(folder);
    ul_arena_done(&arena);
    return failed ? UL_MISMATCH : UL_OK;
}
