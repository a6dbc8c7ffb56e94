/*
 * A design as tables, and what its generated core programs call. Generated C includes this and nothing else.
 *
 * SIM_MORE is defined, here and for the runtime, for designs that have what few have: initial values, FIFOs with an
 * iter_count, stores by cores, objects that a core keeps for ever. The others are made as if there were none of it.
 */

#ifndef ELFKILN_SIM_H
#define ELFKILN_SIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernel_interface.h"

enum { SIM_DIMS = 5, SIM_QUEUE = 4, SIM_ARGUMENTS = 3, SIM_NONE = 0xFFFF };

/* An access pattern in bytes: `dims` nested loops, outermost first, around contiguous runs; `bytes` is all it moves. */
typedef struct {
    int64_t offset;
    uint64_t run;
    uint64_t bytes;
    uint32_t dims;
    struct {
        uint64_t size;
        int64_t stride;
    } dim[SIM_DIMS];
} sim_pattern;

/* A place within a pattern over the bytes at `base`. */
typedef struct {
    uint8_t *base;
    const sim_pattern *pattern;
    uint64_t in_run;
    int64_t at;
    uint64_t index[SIM_DIMS];
} sim_cursor;

/*
 * What surely lies behind an agent: ticks of the sequence (part 0), of cores and of streams. `version` grows with every
 * change. See order.c.
 */
typedef struct {
    uint64_t version;
    uint64_t *ticks;
} sim_clock;

/* The clocks that go along with the slots of a pool in one direction, and up to which version the taker has them. */
typedef struct {
    uint64_t *ticks;
    uint64_t *versions;
    uint64_t seen;
} sim_slots;

/* Room for the bytes of one object; `users` slots have their object in it. */
typedef struct sim_block {
    uint8_t *bytes;
    struct sim_block *next;
    uint32_t users;
} sim_block;

/*
 * Where the object of a slot is: in a block, or (block NULL) in the host's memory, whole or as rows of `run` bytes that
 * are `stride` apart (`run` 0: whole). See place.c.
 */
typedef struct {
    uint8_t *bytes;
    sim_block *block;
    uint64_t run;
    int64_t stride;
} sim_place;

/* When a core last used a parameter or a lock, and in which statement. */
typedef struct {
    uint64_t tick;
    uint32_t step;
} sim_use;

/*
 * The objects of a FIFO at one tile: a ring of `depth`. One agent writes, one reads; each takes objects and gives them
 * on. Counters count objects since load_pdi; object i lies in slot i % depth. `filled` says of a slot whether anything
 * wrote the object in it. At a mem tile with a link, the ring serves both FIFOs, as on the array. Blocks that no slot
 * uses are kept by `peer`, the first pool whose slots have as many bytes; in a `fixed` pool each slot keeps its own.
 */
typedef struct sim_pool {
    const char *name;
    const char *tile;
    uint8_t *objects;
    uint8_t *filled;
    uint32_t depth;
    uint32_t object_bytes;
    uint32_t slot_bytes;
    uint16_t writer;
    uint16_t reader;
    uint64_t writer_took;
    uint64_t writer_gave;
    uint64_t reader_took;
    uint64_t reader_gave;
    sim_slots given;
    sim_slots freed;
#ifdef SIM_MORE
    /* Objects that are full from load_pdi on, with what they hold, and how many the reader takes once and keeps. */
    const uint8_t *contents;
    uint32_t initial;
    uint32_t kept;
#endif
    /* Set when the array is loaded. */
    sim_place *places;
    struct sim_pool *peer;
    sim_block *unused;
    bool fixed;
} sim_pool;

/* One stop of a stream: the pattern of its DMA over the objects of a pool. */
typedef struct {
    sim_pool *pool;
    sim_pattern pattern;
} sim_segment;

/* A task queued on a channel of a shim tile, in the order of its start. */
typedef struct {
    uint32_t first;
    uint32_t count;
    uint32_t task[SIM_QUEUE];
} sim_queue;

/* One end of a stream: it visits its segments in turn. Without segments it is a shim's channel and runs tasks. */
typedef struct {
    const sim_segment *segments;
    uint16_t count;
    const char *tile;
    bool open;
    uint16_t segment;
    uint16_t repeated;
    uint64_t left;
    sim_cursor cursor;
    sim_queue queue;
    /* Of a sink: whether its object has a place by now, and whether that is one that holds the bytes already. */
    bool placed;
    bool shared;
#ifdef SIM_MORE
    /* How many objects a bounded chain of descriptors moves before it stops (0: no end), and how many it began. */
    uint64_t most;
    uint64_t begun;
#endif
} sim_end;

enum sim_wait { SIM_RUNS, SIM_WAITS_SOURCE, SIM_WAITS_SINK, SIM_WAITS_POOL, SIM_WAITS_LOCK, SIM_ENDED };

/* The pattern of a stream's source, `of`, over an object that is rows of the host's memory, so long and so far apart. */
typedef struct {
    sim_pattern over;
    const sim_pattern *of;
    uint64_t run;
    int64_t stride;
} sim_rows;

/* A FIFO's stream: one source, every sink gets the same bytes. `repeat` is how often each source object is sent. */
typedef struct {
    const char *name;
    sim_end source;
    sim_end *sinks;
    uint16_t sink_count;
    uint16_t repeat;
    uint16_t part;
    sim_clock clock;
    enum sim_wait waits;
    uint16_t waits_sink;
    bool queued;
} sim_stream;

struct sim_sequence;
struct sim_buffer;

/* An element of a buffer that some sequence writes; `written` is the tick of the last write, 0 for none. */
typedef struct {
    struct sim_buffer *buffer;
    uint32_t element;
    sim_use *uses;
    uint64_t written;
    const struct sim_sequence *written_by;
    uint32_t written_at;
} sim_parameter;

typedef struct sim_buffer {
    const char *name;
    const char *tile;
    uint8_t *bytes;
    uint8_t *filled;
    uint32_t elements;
    uint8_t element_bytes;
    bool is_signed;
    sim_parameter *parameters;
    uint32_t parameter_count;
#ifdef SIM_MORE
    const uint8_t *contents;
#endif
} sim_buffer;

typedef struct {
    const char *name;
    const char *tile;
    int32_t init;
    bool acquired;
    sim_use *uses;
    uint64_t *ticks;
    int64_t value;
    uint64_t set;
    const struct sim_sequence *set_by;
    uint32_t set_at;
} sim_lock;

typedef struct {
    const char *name;
    const elfkiln_declaration *declaration;
} sim_kernel;

/* One end of a FIFO that a core uses. `consumed` is the core's count of consumed objects when it took the object. */
typedef struct {
    const char *fifo;
    sim_pool *pool;
    bool consume;
    uint64_t consumed;
} sim_port;

/* A value of a core's program: `number` names a loaded value or a loop's index. */
typedef struct {
    enum { SIM_CONST, SIM_LOADED, SIM_INDEX } kind;
    uint16_t number;
    int64_t value;
} sim_value;

/* An argument of a call: object `index` of acquisition `number`, buffer `number`, or a value. */
typedef struct {
    enum { SIM_OBJECT, SIM_BUFFER, SIM_SCALAR } kind;
    uint16_t number;
    uint16_t index;
    uint16_t port;
    sim_value value;
} sim_argument;

/*
 * One statement of a core's program, by its number in the program's order. What a field means is the kind's: `index`
 * is a port, a buffer, a lock or a kernel, `count` how many objects. `loops` are the numbers of the loops around it.
 * `fault` is what is wrong with it whatever happens; it ends the run when the core comes to it.
 */
typedef struct {
    enum {
        SIM_ACQUIRE,
        SIM_RELEASE,
        SIM_CALL,
        SIM_LOAD,
        SIM_LOCK,
        SIM_LOOP,
#ifdef SIM_MORE
        SIM_STORE,
#endif
    } kind;
    uint16_t index;
    uint16_t number;
    uint32_t count;
    enum { SIM_LOCK_EQUAL, SIM_LOCK_AT_LEAST, SIM_LOCK_RELEASE } action;
    sim_value value;
    const sim_argument *arguments;
    uint16_t argument_count;
    uint16_t loop_count;
    uint16_t loops[8];
    const char *fault;
#ifdef SIM_MORE
    sim_value stored;
#endif
} sim_statement;

struct sim_core;

typedef void sim_program(struct sim_core *core);

typedef struct {
    uint64_t first;
    uint32_t count;
} sim_acquired;

/* A core: its program resumes at `resume`. The arrays are as long as its program needs them. */
typedef struct sim_core {
    const char *tile;
    sim_program *program;
    const sim_statement *statements;
    sim_port *ports;
    uint16_t port_count;
    const uint16_t *buffers;
    const uint16_t *locks;
    sim_acquired *acquired;
    int64_t *loaded;
    int64_t *index;
    int64_t *bound;
    int64_t *by;
    uint32_t resume;
    uint32_t step;
    uint64_t consumed;
    uint32_t calls;
    elfkiln_modes modes;
    uint16_t part;
    uint16_t last_lock;
    sim_clock clock;
    enum sim_wait waits;
    uint16_t waits_index;
    bool queued;
    void *pointers[ELFKILN_MOST_ARGUMENTS];
    int64_t scalars[ELFKILN_MOST_ARGUMENTS];
} sim_core;

/* A task of a sequence. `fault` is what is wrong with it whatever happens; it ends the run when the task starts. */
typedef struct {
    uint16_t stream;
    uint16_t shim;
    uint8_t argument;
    bool drains;
    bool token;
    uint32_t configured_at;
    const char *fifo;
    const char *fault;
    sim_pattern pattern;
} sim_task;

typedef struct {
    enum { SIM_LOAD_PDI, SIM_START, SIM_AWAIT, SIM_FREE, SIM_RTP_WRITE, SIM_SET_LOCK } kind;
    uint32_t index;
    uint32_t element;
    int64_t value;
    const char *fault;
} sim_step;

typedef struct {
    uint64_t bytes;
    uint32_t element_bytes;
    bool written;
    bool read;
} sim_host_argument;

typedef struct sim_sequence {
    const char *name;
    const sim_task *tasks;
    uint32_t task_count;
    const sim_step *steps;
    uint32_t step_count;
    sim_host_argument arguments[SIM_ARGUMENTS];
} sim_sequence;

typedef struct {
    bool configured;
    bool started;
    bool done;
    bool awaited;
    bool freed;
    bool covered;
    bool proven;
    uint32_t started_at;
    uint64_t started_tick;
    uint64_t done_tick;
} sim_task_state;

/* The whole design. Agents are numbered: cores first, then streams. */
typedef struct {
    const char *device;
    const char *fault;
    const char *initializer;
    sim_core *cores;
    uint16_t core_count;
    sim_stream *streams;
    uint16_t stream_count;
    sim_rows *rows;
    sim_pool *pools;
    uint16_t pool_count;
    sim_place *places;
    sim_block *blocks;
    sim_buffer *buffers;
    uint16_t buffer_count;
    sim_lock *locks;
    uint16_t lock_count;
    const sim_kernel *kernels;
    const char *const *shims;
    uint16_t shim_count;
    uint16_t *shim_tasks;
    const sim_sequence *sequences;
    uint16_t sequence_count;
    sim_task_state *task_states;
    uint64_t *task_ticks;
    sim_clock clock;
    uint16_t part_count;
    sim_parameter *parameters;
    uint32_t parameter_count;
    uint64_t *ticks;
    uint64_t tick_bytes;
    uint64_t *slot_versions;
    uint64_t slot_version_bytes;
    uint64_t *written;
    uint16_t *ready;
    uint8_t *staging;
    uint32_t staging_bytes;
    uint32_t descriptors;
    uint32_t most_lock;
} sim_machine;

/* The design this ELF holds, defined by the generated C. */
extern sim_machine sim_design;

/*
 * Runs sequence `number` over the host's buffers; see docs/simulator.md for the codes and messages. With `again` it does
 * without load_pdi where the array is loaded: the firmware leaves it out then, and the run meets what the last one left.
 */
int sim_run(uint32_t number, bool again, const void *a, const void *b, void *c, char *message, size_t capacity);

/*
 * What a core's program does at statement `step`. A program returns at once when one of these is false: it waits (and
 * is resumed at `resume`), it has ended, or the run has failed.
 */
bool sim_acquire(sim_core *core, uint32_t step);
bool sim_release(sim_core *core, uint32_t step);
bool sim_use_lock(sim_core *core, uint32_t step);
bool sim_load(sim_core *core, uint32_t step);
#ifdef SIM_MORE
bool sim_store(sim_core *core, uint32_t step);
#endif
bool sim_call(sim_core *core, uint32_t step, void (*kernel)(sim_core *core));
bool sim_loop(sim_core *core, uint32_t step, sim_value lower, sim_value upper, sim_value by);
bool sim_turn(sim_core *core, uint32_t step);
bool sim_next(sim_core *core, uint16_t loop);
void sim_ended(sim_core *core);

#endif
